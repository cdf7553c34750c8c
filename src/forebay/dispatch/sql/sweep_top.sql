-- The highest place below one, of a flow's unfinished steps.
SELECT max(u.place)
FROM (SELECT max(place) AS place FROM forebay.parcel_flows WHERE flow = :flow AND state = 'QUEUED' AND place < :below
      UNION ALL
      SELECT max(place) FROM forebay.parcel_flows WHERE flow = :flow AND state = 'COLD_QUEUED' AND place < :below
      UNION ALL
      SELECT max(place) FROM forebay.parcel_flows WHERE flow = :flow AND state = 'LEASED' AND place < :below
      UNION ALL
      SELECT max(place) FROM forebay.parcel_flows WHERE flow = :flow AND state = 'JOINING' AND place < :below
      UNION ALL
      SELECT max(place) FROM forebay.parcel_flows WHERE flow = :flow AND state = 'EXPORTING' AND place < :below
      UNION ALL
      SELECT max(place) FROM forebay.parcel_flows WHERE flow = :flow AND state = 'ERROR' AND place < :below) AS u
