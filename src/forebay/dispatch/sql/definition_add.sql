-- The next version of a flow's definition; numbers go on where a forgotten flow of the name ended.
INSERT INTO forebay.dispatch_definitions (flow, version, definition, created_us)
SELECT :flow, COALESCE(max(version), 0) + 1, :definition, CAST(:now_us AS bigint)
FROM forebay.dispatch_definitions
WHERE flow = :flow
