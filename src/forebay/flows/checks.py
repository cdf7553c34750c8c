"""What must hold of flows beyond the shape of each key: names, classes, parameters, and how flows hang together.

All of it is decided from the definitions alone. Whether the SQL means something only Spark can tell:
`forebay.spark.flow_plan` does, when there is a session.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta

from forebay.flows.action import ActionParams, PythonAction
from forebay.flows.definition import PARCELS, TIME_LIMIT, ClassAction, Source, TableSink
from forebay.flows.faults import FlowFault
from forebay.flows.located import Located
from forebay.flows.neighbours import circles, shared_cursors, shared_names
from forebay.flows.registry import NotFound, find_action
from forebay.flows.written import REFUSED, from_python, read
from forebay.model.flow_names import ACTION_NAME, FLOW_NAME

VIEW_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
INPUT_VIEW = "input"


def check_flows(flows: Sequence[Located], *, is_code_loaded: bool = True) -> list[FlowFault]:
    """Everything that is wrong with them, each alone and all together; actions in Python only with `is_code_loaded`."""
    faults = [fault for located in flows for fault in check_flow(located, is_code_loaded=is_code_loaded)]
    return [*faults, *shared_names(flows), *shared_cursors(flows), *circles(flows)]


def check_flow(located: Located, *, is_code_loaded: bool = True) -> Iterator[FlowFault]:
    """Everything that is wrong with one flow alone."""
    flow = located.flow
    if not FLOW_NAME.fullmatch(flow.name):
        yield located.fault("name", f"{flow.name!r} is refused: letters, digits, '.', '_' and '-', at most 64")
    yield from _check_mode(located)
    yield from _check_source(located)
    for name in flow.tables:
        if not VIEW_NAME.fullmatch(name) or name.lower() == INPUT_VIEW:
            yield located.fault(f"tables.{name}", f"a table is named like a column, and not {INPUT_VIEW!r}")
    yield from _check_actions(located, is_code_loaded=is_code_loaded)
    yield from _check_sinks(located)
    if flow.errors_to in (flow.source.queue, *flow.output_queues):
        yield located.fault("error_queue", f"queue {flow.errors_to!r} is the flow's own source or sink")


def params_of(
    found: type[PythonAction], action: ClassAction, report: Callable[[str, str, str], None] | None = None
) -> ActionParams | None:
    """The parameters as the action's class wants them; None if they do not fit, which is reported."""
    on_report = report or (lambda *_: None)
    try:
        params = read(from_python(action.params, lambda path: path), found.Params, "", on_report)
    except Exception as fault:  # noqa: BLE001 - a user's class: whatever it raises is reported, and is not our bug
        on_report("", "", f"the Params of {action.class_name} cannot be used: {type(fault).__name__}: {fault}")
        return None
    return None if params is REFUSED else params


OF_STREAMS = "it belongs to mode: stream, and means nothing here"
OF_PARCELS = "it belongs to mode: parcels, and means nothing in a stream"
OF_QUEUES = "it belongs to a source that is a queue, and means nothing here"


def _check_mode(located: Located) -> Iterator[FlowFault]:
    """What one of the modes does not know is refused, not passed over in silence."""
    flow, source = located.flow, located.flow.source
    if flow.trigger is not None and flow.trigger < timedelta(0):
        yield located.fault("trigger", "it is below zero")
    if flow.time_limit <= timedelta(0):
        yield located.fault("time_limit", "it is not above zero")
    if flow.mode == PARCELS:
        of_streams: dict[str, object] = {
            "trigger": flow.trigger,
            "watermark": flow.watermark,
            "checkpoint": flow.checkpoint,
            "source.maxOffsetsPerTrigger": source.max_offsets_per_trigger,
            "source.maxBytesPerTrigger": source.max_bytes_per_trigger,
            "source.retryTimeout": source.retry_timeout,
        }
        for key, value in of_streams.items():
            if value is not None:
                yield located.fault(key, OF_STREAMS)
        return
    if len(flow.all_sinks) > 1:
        yield located.fault("sinks", "a stream has one sink: write `mode: parcels`, or a flow for each")
    own = Source()
    of_parcels: dict[str, object] = {
        "source.cron": source.cron,
        "source.errors": source.errors,
        "source.parcel_messages": source.parcel_messages != own.parcel_messages or None,
        "source.parcel_wait": source.parcel_wait != own.parcel_wait or None,
        "max_errors": flow.max_errors or None,
        "time_limit": flow.time_limit != TIME_LIMIT or None,
    }
    for index, action in enumerate(flow.actions):
        of_parcels[f"actions.{index}.isolate"] = action.isolate or None
        of_parcels[f"actions.{index}.join"] = action.join
        of_parcels[f"actions.{index}.time_limit"] = action.time_limit
    for key, value in of_parcels.items():
        if value is not None:
            yield located.fault(key, OF_PARCELS)


def _check_sinks(located: Located) -> Iterator[FlowFault]:
    flow = located.flow
    if not flow.all_sinks:
        yield located.fault("sink", "is missing")
    if flow.sink is not None and flow.sinks:
        yield located.fault("sinks", "stands beside sink: write one of them")
    paths = ["sink"] if flow.sink is not None else []
    paths += [f"sinks.{index}" for index in range(len(flow.sinks))]
    for path, sink in zip(paths, flow.all_sinks, strict=True):
        if not isinstance(sink, TableSink):
            continue
        table = sink.table
        if (table.path is None) == (table.name is None):
            yield located.fault(f"{path}.table", "it needs either path or name")
        if flow.mode == PARCELS and table.mode != "append":
            yield located.fault(f"{path}.table.mode", f"{table.mode} belongs to mode: stream; parcels append")


def _check_source(located: Located) -> Iterator[FlowFault]:
    source = located.flow.source
    kinds = [bool(source.queue), source.cron is not None, source.errors is not None]
    if sum(kinds) != 1:
        yield located.fault("source", "it needs a queue, or else cron or errors")
    elif not source.queue:
        yield from _check_source_without_queue(located)
    if source.parcel_wait < timedelta(0):
        yield located.fault("source.parcel_wait", "it is below zero")
    if not source.queue and (source.payload_as != "binary" or source.max_payload is not None) and source.errors is None:
        yield located.fault("source", "a timer's parcels have no payload")
    if (source.payload_as == "json") != (source.schema is not None):
        yield located.fault("source", "payloadAs: json and schema belong together: one is there without the other")
    offsets = source.starting_offsets
    is_named = isinstance(offsets, str) and offsets in ("earliest", "latest")
    if not is_named and not (isinstance(offsets, dict) and set(offsets) == {"seq"} and offsets["seq"] >= 1):
        yield located.fault("source.startingOffsets", f"{offsets!r} is refused: earliest, latest or {{seq: 100}}")


def _check_source_without_queue(located: Located) -> Iterator[FlowFault]:
    source, own = located.flow.source, Source()
    of_queues: dict[str, object] = {
        "group": source.group,
        "startingOffsets": source.starting_offsets != own.starting_offsets or None,
        "startingTimestamp": source.starting_timestamp,
        "parcel_messages": source.parcel_messages != own.parcel_messages or None,
        "parcel_wait": source.parcel_wait != own.parcel_wait or None,
    }
    if source.cron is not None:  # the messages of other flows' parcels are read, and a timer's parcels have none
        of_queues["partition"] = source.partition
        of_queues["minPartitions"] = source.min_partitions
        of_queues["maxRecordsPerPartition"] = source.max_records_per_partition
    for key, value in of_queues.items():
        if value is not None:
            yield located.fault(f"source.{key}", OF_QUEUES)


def _check_actions(located: Located, *, is_code_loaded: bool) -> Iterator[FlowFault]:
    seen: dict[str, int] = {}
    stateful = ""
    for index, action in enumerate(located.flow.actions):
        path = f"actions.{index}"
        if not ACTION_NAME.fullmatch(action.name) and located.flow.mode == PARCELS:
            yield located.fault(f"{path}.name", f"{action.name!r} is refused: letters, digits and '_.:/$-', 1 to 255")
        if action.time_limit is not None and action.time_limit <= timedelta(0):
            yield located.fault(f"{path}.time_limit", "it is not above zero")
        if action.name in seen:
            where = located.place(f"actions.{seen[action.name]}")
            yield located.fault(f"{path}.name", f"another action is named {action.name!r} already ({where})")
        seen.setdefault(action.name, index)
        if not isinstance(action, ClassAction) or not is_code_loaded:
            continue
        try:
            found = find_action(action.class_name)
        except NotFound as missing:
            yield located.fault(f"{path}.class", str(missing))
            continue
        yield from _check_params(located, found, action, f"{path}.params")
        if found.may_reject and stateful:
            text = f"{action.class_name} sets bad records aside and has to stand before {stateful!r}, which keeps state"
            yield located.fault(path, text)
        if found.is_stateful and located.flow.mode == PARCELS:
            text = f"{action.class_name} keeps state over parcels, which mode parcels has not: write `mode: stream`"
            yield located.fault(path, text)
        if found.is_stateful:
            stateful = stateful or action.name


def _check_params(located: Located, found: type[PythonAction], action: ClassAction, path: str) -> Iterator[FlowFault]:
    faults: list[FlowFault] = []

    def report(_: str, key: str, message: str) -> None:
        faults.append(located.fault(f"{path}.{key}" if key else path, message))

    params_of(found, action, report)
    yield from faults
