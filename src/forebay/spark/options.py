"""The options of `format("forebay")`: which exist, what they mean, and what was given.

Names are Kafka's where Kafka has one. Case does not matter, because Spark does not keep it. An option that does not
exist here, or does not belong to what is being done, is refused, and all faults are raised at once: an option that is
silently ignored is found out in production.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from forebay.errors import Permanent
from forebay.spark.option_table import BATCH_READ, OPTIONS, PAYLOAD_AS_WRITE, STREAM_READ, WRITES
from forebay.spark.positions import EARLIEST, LATEST, Position

OptionValue = bool | float | int | str | None
"""What Spark takes for an option."""
SPARKS_OWN = frozenset({"checkpointlocation", "queryname", "outputmode"})
"""What Spark passes on although it is meant for Spark itself."""


class OptionsRefused(Permanent):
    """The options are wrong. `faults` has all of them; the message ends with the options that exist."""

    def __init__(self, use: str, faults: Iterable[str]) -> None:
        self.faults = tuple(faults)
        known = ", ".join(option.name for option in OPTIONS if option.belongs_to(use))
        super().__init__(f'{use}.format("forebay"): {"; ".join(self.faults)}. The options are: {known}')


class Connection(NamedTuple):
    """How the servers are reached."""

    urls: tuple[str, ...]
    api_key: str | None = None
    retry_seconds: float = 60.0


@dataclass(frozen=True, slots=True)
class ReadOptions:
    connection: Connection
    queue: str
    starting: Position
    ending: Position = LATEST
    group: str | None = None
    partitions: tuple[str, ...] = ()
    rows_max: int | None = None
    bytes_max: int | None = None
    tasks_min: int = 1
    rows_per_task_max: int | None = None
    is_loss_fatal: bool = True
    payload_as: str = "binary"
    is_filter_pushed: bool = False
    hold_seconds: float = 86_400.0
    snapshot: str | None = None


@dataclass(frozen=True, slots=True)
class WriteOptions:
    connection: Connection
    queue: str
    payload_as: str | None = None
    stage_bytes_max: int = 16 * 1024 * 1024
    producer: str | None = None
    epoch: str | None = None
    write_name: str = ""
    is_first_kept: bool = False
    """Whether a repeat with other rows is left out, instead of failing the query."""


_BY_NAME = {option.name.lower(): option for option in OPTIONS}


def read_options(given: Mapping[str, str], use: str, defaults: Mapping[str, str] | None = None) -> ReadOptions:
    """What a reader was given; `OptionsRefused` with every fault."""
    found, faults = _found(given, use, defaults)
    for kind in ("starting", "ending"):
        if f"{kind}Offsets" in found and f"{kind}Timestamp" in found:
            faults.append(f"{kind}Offsets and {kind}Timestamp: give one of them")
    if found.get("payloadAs") == "json":
        # The readers of a prepared program do it themselves and ask here for bytes: see `json_frames`.
        faults.append(
            "payloadAs=json works in a Python program that has called forebay.spark.register(spark); elsewhere read "
            "payloadAs=string and use from_json"
        )
    elif "schema" in found:
        faults.append("schema belongs to payloadAs=json, which is not given")
    if faults:
        raise OptionsRefused(use, faults)
    begin = EARLIEST if use == BATCH_READ else LATEST
    return ReadOptions(
        _connection(found),
        found["queue"],
        found.get("startingTimestamp") or found.get("startingOffsets") or begin,
        found.get("endingTimestamp") or found.get("endingOffsets") or LATEST,
        found.get("group"),
        found.get("partition", ()),
        found.get("maxOffsetsPerTrigger"),
        found.get("maxBytesPerTrigger"),
        found.get("minPartitions", 1),
        found.get("maxRecordsPerPartition"),
        found.get("failOnDataLoss", True),
        found.get("payloadAs", "binary"),
        found.get("pushFilters", False),
        found.get("holdRetention", 86_400.0),
        found.get("snapshot"),
    )


def is_for_a_stream(given: Mapping[str, str]) -> bool:
    """Whether an option is given that only a stream has."""
    options = (_BY_NAME.get(name.lower()) for name in given)
    return any(option is not None and option.uses == (STREAM_READ,) for option in options)


def refuse_options_of_tables(given: Mapping[str, str]) -> None:
    """Refuse what a stream cannot have, as soon as it is loaded: Spark itself asks only when the query runs."""
    options = [_BY_NAME.get(name.lower()) for name in given]
    misplaced = [option.name for option in options if option is not None and option.uses == (BATCH_READ,)]
    if misplaced:
        faults = [f"{name} is an option of {BATCH_READ} only" for name in misplaced]
        if any(name.startswith("ending") for name in misplaced):
            faults.append("a stream has no end; with trigger(availableNow=True) it reads what is there and stops")
        raise OptionsRefused(STREAM_READ, faults)


def write_options(given: Mapping[str, str], use: str, defaults: Mapping[str, str] | None = None) -> WriteOptions:
    """What a writer was given; `OptionsRefused` with every fault."""
    found, faults = _found(given, use, defaults)
    if ("producer" in found) != ("epoch" in found):
        faults.append("producer and epoch belong together: one is given without the other")
    if "writeName" in found and "producer" not in found:
        faults.append("writeName belongs to producer and epoch, which are not given")
    if faults:
        raise OptionsRefused(use, faults)
    return WriteOptions(
        _connection(found),
        found["queue"],
        found.get("payloadAs"),
        found.get("maxBytesPerStage", 16 * 1024 * 1024),
        found.get("producer"),
        found.get("epoch"),
        found.get("writeName", ""),
        found.get("onDifferentRepeat") == "keep",
    )


def environment_defaults(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Options that the environment gives, in the words of this format."""
    named = {"url": environ.get("FOREBAY_URL"), "apiKey": environ.get("FOREBAY_API_KEY")}
    return {name: value for name, value in named.items() if value}


def _connection(found: Mapping[str, Any]) -> Connection:
    return Connection(
        found.get("url", ("http://127.0.0.1:6632",)), found.get("apiKey"), found.get("retryTimeout", 60.0)
    )


def _found(given: Mapping[str, str], use: str, defaults: Mapping[str, str] | None) -> tuple[dict[str, Any], list[str]]:
    found: dict[str, Any] = {}
    faults: list[str] = []
    for name, text in {**_lowered(defaults or {}), **_lowered(given)}.items():
        option = _BY_NAME.get(name)
        if option is None:
            if name not in SPARKS_OWN:
                faults.append(_unknown(name, use))
        elif not option.belongs_to(use):
            faults.append(f"{option.name} is an option of {' and '.join(option.uses)} only")
        else:
            reading = PAYLOAD_AS_WRITE if option.name == "payloadAs" and use in WRITES else option.read
            try:
                found[option.name] = reading(text)
            except ValueError as error:
                faults.append(f"{option.name}: {error}")
    if "queue" not in found and not any(fault.startswith("queue:") for fault in faults):
        faults.append("queue is missing")
    return found, faults


def _lowered(given: Mapping[str, str]) -> dict[str, str]:
    return {name.lower(): value for name, value in given.items()}


def _unknown(name: str, use: str) -> str:
    allowed = {option.name.lower(): option.name for option in OPTIONS if option.belongs_to(use)}
    close = difflib.get_close_matches(name, list(allowed), n=1, cutoff=0.6)
    return f"{name!r} is no option" + (f" (did you mean {allowed[close[0]]}?)" if close else "")
