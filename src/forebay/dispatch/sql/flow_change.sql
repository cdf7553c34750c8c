-- New parcels of the flow get its newest definition.
UPDATE forebay.dispatch_flows
SET version = (SELECT max(d.version) FROM forebay.dispatch_definitions AS d WHERE d.flow = :flow),
    updated_us = :now_us
WHERE flow = :flow
