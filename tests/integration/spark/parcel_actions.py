"""Actions for tests of flows on parcels."""

from __future__ import annotations

import os
import resource
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from forebay.flows import ActionContext, ActionParams, DataFrameAction
from forebay.flows.record_action import Error, Filter, Record, RecordAction, RecordContext, Result, Results

HUNGER_BYTES_MAX = 256 << 20
PIECE_BYTES = 1 << 20


class Judge(RecordAction):
    schema = "n INT, word STRING"

    def transform(self, record: Record, context: RecordContext) -> Result | Results | Filter | Error:
        n = int(record["payload"])
        if n % 10 == 1:
            return Error(f"{n} is refused")
        if n % 10 == 2:
            return Filter("too plain")
        if n % 10 == 3:
            return Results([Result({"n": n, "word": word}) for word in ("first", "second")])
        return Result({"n": n, "word": str(context.did)}, {"seen": "yes"})


class Refuses(DataFrameAction):
    def transform(self, frame: DataFrame, context: ActionContext) -> DataFrame:
        return frame.select("did", f.expr("100 / (cast(cast(payload AS string) AS int) - 150)").alias("share"))


class Sleeps(DataFrameAction):
    def transform(self, frame: DataFrame, context: ActionContext) -> DataFrame:
        return frame.mapInArrow(_sleep, frame.schema)


def _sleep(batches: Iterator[Any]) -> Iterator[Any]:
    for batch in batches:
        time.sleep(60)
        yield batch


class WaitsForASign(RecordAction):
    """Is at work until a file is there."""

    schema = "n INT"

    class Params(ActionParams, frozen=True):
        sign: str

    def transform(self, record: Record, context: RecordContext) -> Result:
        deadline = time.monotonic() + 120
        while not Path(self.params.sign).exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        return Result({"n": int(record["payload"])})


class Crashes(RecordAction):
    """Ends its process on one record, as a system does that has run out of memory."""

    schema = "n INT"

    def transform(self, record: Record, context: RecordContext) -> Result:
        n = int(record["payload"])
        if n == 150:
            os.kill(os.getpid(), signal.SIGKILL)
        return Result({"n": n})


class Hungry(RecordAction):
    """Takes all the memory that there is, piece by piece, on one record."""

    schema = "n INT"

    def transform(self, record: Record, context: RecordContext) -> Result:
        n = int(record["payload"])
        if n == 150:
            _eat_everything()
        return Result({"n": n})


def _eat_everything() -> None:
    """Of what this process may have: not of the machine, which runs other tests."""
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + HUNGER_BYTES_MAX, hard))
    eaten = []
    try:
        while True:
            eaten.append(bytearray(PIECE_BYTES))
    finally:
        eaten.clear()
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


class AsksAround(RecordAction):
    """Asks another system, which is there when a file is."""

    schema = "n INT"

    class Params(ActionParams, frozen=True):
        sign: str

    def transform(self, record: Record, context: RecordContext) -> Result:
        if not Path(self.params.sign).exists():
            raise ConnectionError("the price list does not answer")
        return Result({"n": int(record["payload"])})


class Doubles(DataFrameAction):
    """Twice the number, and `did` with it. Each of its children is an action class of its own."""

    def transform(self, frame: DataFrame, context: ActionContext) -> DataFrame:
        return frame.select("did", f.expr("2 * cast(cast(payload AS string) AS int)").alias("n"))


class Doubles0(Doubles): ...


class Doubles1(Doubles): ...


class Doubles2(Doubles): ...


class Doubles3(Doubles): ...


class Doubles4(Doubles): ...


class Doubles5(Doubles): ...


class Doubles6(Doubles): ...


class Doubles7(Doubles): ...


class RefusesSeven(RecordAction):
    schema = "n INT"

    class Params(ActionParams, frozen=True):
        is_mended: bool = False

    def transform(self, record: Record, context: RecordContext) -> Result:
        if record["n"] == 7 and not self.params.is_mended:
            raise ValueError("it is seven")
        return Result({"n": record["n"]})


class RefusesSeventh(RecordAction):
    """The same of a message as it came."""

    schema = "n INT"

    def transform(self, record: Record, context: RecordContext) -> Result:
        if record["payload"] == b"7":
            raise ValueError("it is seven")
        return Result({"n": int(record["payload"])})


class Splits(RecordAction):
    schema = "n INT"

    def transform(self, record: Record, context: RecordContext) -> Results:
        n = int(record["payload"])
        return Results([{"n": n}, {"n": n + 100}])


class RejectsSeven(DataFrameAction):
    may_reject = True

    class Params(ActionParams, frozen=True):
        column: str = "payload"

    def transform(self, frame: DataFrame, context: ActionContext) -> DataFrame:
        return frame.where(f.col(self.params.column).cast("string") != "7").select("did", self.params.column)

    def rejected(self, frame: DataFrame, context: ActionContext) -> DataFrame:
        return frame.where(f.col(self.params.column).cast("string") == "7").withColumn("cause", f.lit("it is seven"))


class Prices(RecordAction):
    """Keeps all columns, fails on 10, and calls 20 bad."""

    schema = (
        "n INT, at TIMESTAMP, exact DECIMAL(20, 3), raw BINARY, nan DOUBLE, nothing STRING, "
        "pair STRUCT<a: INT, b: ARRAY<STRING>>"
    )

    class Params(ActionParams, frozen=True):
        is_mended: bool = False

    def transform(self, record: Record, context: RecordContext) -> Result | Error:
        if record["n"] == 10 and not self.params.is_mended:
            raise ValueError("no price list")
        if record["n"] == 20 and not self.params.is_mended:
            return Error("no price")
        names = ("n", "at", "exact", "raw", "nan", "nothing", "pair")
        return Result({name: record[name] for name in names})
