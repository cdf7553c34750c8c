-- Remove a bounded number of rows of each kind that refer to partitions, and say how many in all. By their places: by
-- their keys, all would be compared with all whenever the planner takes a table for nearly empty. A row that another
-- changes in this moment has another place afterwards, and is left for the next time.
WITH traces AS (
    DELETE FROM forebay.traces WHERE ctid = ANY (ARRAY(
        SELECT ctid FROM forebay.traces WHERE partition_id = ANY (%(partition_ids)b::bigint[]) LIMIT %(limit)b::bigint
    ))
    RETURNING 1
), deleted AS (
    DELETE FROM forebay.deleted_messages WHERE ctid = ANY (ARRAY(
        SELECT ctid FROM forebay.deleted_messages
        WHERE partition_id = ANY (%(partition_ids)b::bigint[]) LIMIT %(limit)b::bigint
    ))
    RETURNING 1
), deliveries AS (
    DELETE FROM forebay.deliveries WHERE ctid = ANY (ARRAY(
        SELECT ctid FROM forebay.deliveries WHERE partition_id = ANY (%(partition_ids)b::bigint[]) LIMIT %(limit)b::bigint
    ))
    RETURNING 1
)
SELECT (SELECT count(*) FROM traces) + (SELECT count(*) FROM deleted) + (SELECT count(*) FROM deliveries)
