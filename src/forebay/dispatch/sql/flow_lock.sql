-- Keep others from changing a flow or cutting its source until the transaction ends; its state and definition.
SELECT f.version, (SELECT d.definition FROM forebay.dispatch_definitions AS d
                   WHERE d.flow = f.flow AND d.version = f.version)
FROM forebay.dispatch_flows AS f
WHERE f.flow = :flow
--pg FOR UPDATE
