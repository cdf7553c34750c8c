-- How many wait for joins, are in ERROR, and wait for exports. SQLite would read all steps for the first and the last.
SELECT (SELECT count(*) FROM forebay.parcel_flows
--lite         INDEXED BY parcel_flows_joining
        WHERE state = 'JOINING'),
       (SELECT count(*) FROM forebay.parcels WHERE state = 'ERROR'),
       (SELECT count(*) FROM forebay.parcel_flows
--lite         INDEXED BY parcel_flows_exporting
        WHERE state = 'EXPORTING')
