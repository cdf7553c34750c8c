-- Names of traces of a partition that is purged; a piece of them.
DELETE FROM trace_names WHERE trace_id IN (SELECT id FROM traces WHERE partition_id = ? LIMIT ?)
