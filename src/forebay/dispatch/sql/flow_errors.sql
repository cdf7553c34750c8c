-- How many parcels of a flow are in ERROR; counted no further than is requested.
SELECT count(*)
FROM (SELECT 1 FROM forebay.parcels WHERE flow = :flow AND state = 'ERROR' LIMIT :errors_max) AS e
