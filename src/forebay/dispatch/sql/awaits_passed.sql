-- Steps that wait for what a group has passed in a partition, the oldest first.
SELECT passed.did, passed.step, passed.first_seq, passed.last_seq, s.action, s.action_class, s.attempts
FROM (SELECT did, step, first_seq, last_seq
      FROM forebay.parcel_awaits
      WHERE queue = :queue AND queue_id = :queue_id AND group_name = :group AND partition = :partition
          AND last_seq < :next_seq
      ORDER BY last_seq, did, step
      LIMIT :limit) AS passed
JOIN forebay.parcel_flows AS s ON s.did = passed.did AND s.step = passed.step
ORDER BY passed.last_seq, passed.did
