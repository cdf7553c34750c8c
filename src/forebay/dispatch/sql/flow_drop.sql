-- Forget a flow; its definitions stay for the parcels that were cut with them.
DELETE FROM forebay.dispatch_flows WHERE flow = :flow
