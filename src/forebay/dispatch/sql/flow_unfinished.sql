-- How many parcels of a flow are not finished.
SELECT count(*)
FROM forebay.parcels
WHERE flow = :flow AND state IN ('IN_FLIGHT', 'ERROR')
