-- The last message that was removed of a queue, of any partition, and how many between two seqs are known to be lost.
SELECT coalesce(max(
        (SELECT gone_seq FROM queues WHERE id = :queue_id),
        coalesce((SELECT max(floor_seq) FROM partitions WHERE queue_id = :queue_id), 0)
    ), 0),
    (
        SELECT coalesce(sum(min(messages, min(last_seq, :last_seq) - max(first_seq, :first_seq) + 1)), 0)
        FROM lost_messages
        WHERE queue_id = :queue_id AND first_seq <= :last_seq AND last_seq >= :first_seq
    )
