"""A driver with several queries, each copying one queue to another, until it is killed.

    copies_job.py FILE

FILE is a JSON list of `{"url", "source", "target", "checkpoint", "group"}`. Prints `running` when all have begun.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from forebay.spark import spark_session

ROWS_PER_BATCH = "20"
TASKS = "2"


def main() -> None:
    # More threads than cores: a task that is held must not keep the other queries from running.
    spark = spark_session("local[8]", config={"spark.log.level": "OFF"})
    queries = []
    for copy in json.loads(Path(sys.argv[1]).read_text()):
        given = {"url": copy["url"], "queue": copy["source"], "group": copy["group"], "startingOffsets": "earliest"}
        frame = spark.readStream.format("forebay").options(**given, maxOffsetsPerTrigger=ROWS_PER_BATCH)
        writing = frame.option("minPartitions", TASKS).load().select("payload", "partition").writeStream
        writing = writing.format("forebay").options(url=copy["url"], queue=copy["target"])
        queries.append(writing.option("checkpointLocation", copy["checkpoint"]).start())
        # Spark gives the Python process of a query 10 s to start, too few when all of them start at once.
        while queries[-1].isActive and not queries[-1].recentProgress:
            time.sleep(0.05)
    sys.stdout.write("running\n")
    sys.stdout.flush()
    while all(query.isActive for query in queries):
        time.sleep(0.1)
    raise SystemExit(f"a query ended: {[query.exception() for query in queries]}")


if __name__ == "__main__":
    main()
