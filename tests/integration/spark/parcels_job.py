"""A driver with several workers of flows on parcels, each with a way of its own to the server, until it is killed.

    parcels_job.py FILE

FILE is a JSON list of `{"url", "spec"}`. Prints `running` when all have begun.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from forebay.flows.chains import flow_of_spec
from forebay.spark import spark_session
from forebay.spark.options import Connection
from forebay.spark.parcels.lanes import LaneOptions
from forebay.spark.parcels.worker import ParcelWorker, classes_of


def main() -> None:
    # More threads than cores: a task that is held must not keep the other jobs from running.
    spark = spark_session("local[8]", config={"spark.log.level": "OFF", "spark.scheduler.mode": "FAIR"})
    workers = []
    for number, one in enumerate(json.loads(Path(sys.argv[1]).read_text())):
        flow = flow_of_spec(one["spec"])
        options = LaneOptions(f"doomed-{number}", classes_of([flow]), lanes=1, lease_parcels=1)
        workers.append(ParcelWorker(spark, [flow], Connection((one["url"],), retry_seconds=120.0), options))
        workers[-1].start()
    sys.stdout.write("running\n")
    sys.stdout.flush()
    while True:
        for worker in workers:
            worker.check()
        time.sleep(0.1)


if __name__ == "__main__":
    main()
