-- Readers that are not groups, such as streams of Spark: the next seq of each. Retention spares what is finished from
-- there on, until that time.
CREATE TABLE forebay.holds (
    queue_id bigint NOT NULL,
    reader text COLLATE "C" NOT NULL,
    seq bigint NOT NULL,
    until_us bigint NOT NULL,
    PRIMARY KEY (queue_id, reader)
);
