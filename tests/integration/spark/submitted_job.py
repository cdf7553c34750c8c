"""A program for spark-submit that names no master: prints where it runs, and what it was told."""

from __future__ import annotations

import sys

from forebay.errors import Permanent
from forebay.spark import spark_session


def main() -> None:
    spark = spark_session(config={"spark.log.level": "ERROR"})
    for name in ("spark.master", "spark.app.name", "spark.ui.enabled", "spark.sql.session.timeZone"):
        say(f"{name}={spark.conf.get(name)}")
    again = spark_session(url="http://127.0.0.1:1")
    say(f"same={again is spark} url={again.conf.get('spark.forebay.url')}")
    try:
        spark_session("local[7]")
    except Permanent as refused:
        say(f"refused: {refused}")
    spark.stop()


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
