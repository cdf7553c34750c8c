"""What must hold of flows beyond the shape of each key: names, classes, parameters, and how flows hang together.

All of it is decided from the definitions alone. Whether the SQL means something only Spark can tell:
`forebay.spark.flow_plan` does, when there is a session.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta

from forebay.flows.action import ActionParams, DataFrameAction
from forebay.flows.definition import PARCELS, ClassAction, Flow, TableSink
from forebay.flows.faults import FlowFault
from forebay.flows.registry import NotFound, find_action
from forebay.flows.written import REFUSED, from_python, read

FLOW_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
"""A flow has a directory of its name."""
VIEW_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
INPUT_VIEW = "input"


@dataclass(frozen=True, slots=True)
class Located:
    """A flow, and where its values stand."""

    flow: Flow
    origin: str
    """The file or module it came from."""
    places: Mapping[str, str] = field(default_factory=dict)

    def place(self, path: str) -> str:
        """Where the value at that path stands, or the nearest one around it."""
        while path and path not in self.places:
            path = path.rpartition(".")[0]
        return self.places.get(path, self.origin)

    def fault(self, path: str, message: str) -> FlowFault:
        return FlowFault(self.place(path), self.flow.name, path, message)


def check_flows(flows: Sequence[Located], *, is_code_loaded: bool = True) -> list[FlowFault]:
    """Everything that is wrong with them, each alone and all together; actions in Python only with `is_code_loaded`."""
    faults = [fault for located in flows for fault in check_flow(located, is_code_loaded=is_code_loaded)]
    return [*faults, *_shared_names(flows), *_shared_cursors(flows), *_cycles(flows)]


def check_flow(located: Located, *, is_code_loaded: bool = True) -> Iterator[FlowFault]:
    """Everything that is wrong with one flow alone."""
    flow = located.flow
    if not FLOW_NAME.fullmatch(flow.name):
        yield located.fault("name", f"{flow.name!r} is refused: letters, digits, '.', '_' and '-', at most 64")
    if flow.mode == PARCELS:
        yield located.fault("mode", "mode parcels, the default, is not available yet: write `mode: stream`")
    if flow.trigger < timedelta(0):
        yield located.fault("trigger", "it is below zero")
    yield from _check_source(located)
    for name in flow.tables:
        if not VIEW_NAME.fullmatch(name) or name.lower() == INPUT_VIEW:
            yield located.fault(f"tables.{name}", f"a table is named like a column, and not {INPUT_VIEW!r}")
    yield from _check_actions(located, is_code_loaded=is_code_loaded)
    if isinstance(flow.sink, TableSink) and (flow.sink.table.path is None) == (flow.sink.table.name is None):
        yield located.fault("sink.table", "it needs either path or name")
    if flow.errors_to in (flow.source.queue, flow.output_queue):
        yield located.fault("error_queue", f"queue {flow.errors_to!r} is the flow's own source or sink")


def params_of(
    found: type[DataFrameAction], action: ClassAction, report: Callable[[str, str, str], None] | None = None
) -> ActionParams | None:
    """The parameters as the action's class wants them; None if they do not fit, which is reported."""
    told = report or (lambda *_: None)
    try:
        params = read(from_python(action.params, lambda path: path), found.Params, "", told)
    except Exception as fault:  # noqa: BLE001 - somebody's class: whatever it raises is told, and is not our bug
        told("", "", f"the Params of {action.class_name} cannot be used: {type(fault).__name__}: {fault}")
        return None
    return None if params is REFUSED else params


def _check_source(located: Located) -> Iterator[FlowFault]:
    source = located.flow.source
    if (source.payload_as == "json") != (source.schema is not None):
        yield located.fault("source", "payloadAs: json and schema belong together: one is there without the other")
    offsets = source.starting_offsets
    is_named = isinstance(offsets, str) and offsets in ("earliest", "latest")
    if not is_named and not (isinstance(offsets, dict) and set(offsets) == {"seq"} and offsets["seq"] >= 1):
        yield located.fault("source.startingOffsets", f"{offsets!r} is refused: earliest, latest or {{seq: 100}}")


def _check_actions(located: Located, *, is_code_loaded: bool) -> Iterator[FlowFault]:
    seen: dict[str, int] = {}
    stateful = ""
    for index, action in enumerate(located.flow.actions):
        path = f"actions.{index}"
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
        if found.is_stateful:
            stateful = stateful or action.name


def _check_params(
    located: Located, found: type[DataFrameAction], action: ClassAction, path: str
) -> Iterator[FlowFault]:
    faults: list[FlowFault] = []

    def report(_: str, key: str, message: str) -> None:
        faults.append(located.fault(f"{path}.{key}" if key else path, message))

    params_of(found, action, report)
    yield from faults


def _shared_names(flows: Sequence[Located]) -> Iterator[FlowFault]:
    first: dict[str, Located] = {}
    for located in flows:
        earlier = first.setdefault(located.flow.name.lower(), located)
        if earlier is not located:
            yield located.fault("name", f"another flow has that name already ({earlier.place('name')})")


def _shared_cursors(flows: Sequence[Located]) -> Iterator[FlowFault]:
    cursors: dict[tuple[str, str], Located] = {}
    checkpoints: dict[str, Located] = {}
    for located in flows:
        flow = located.flow
        earlier = cursors.setdefault((flow.source.queue, flow.group), located)
        if earlier.flow.name.lower() != flow.name.lower():
            text = f"flow {earlier.flow.name!r} moves the cursor of group {flow.group!r} in the same queue"
            yield located.fault("source.group", text)
        if flow.checkpoint is not None and checkpoints.setdefault(flow.checkpoint, located) is not located:
            other = checkpoints[flow.checkpoint].flow.name
            yield located.fault("checkpoint", f"flow {other!r} has its checkpoint there")


def _cycles(flows: Sequence[Located]) -> Iterator[FlowFault]:
    """A circle of queues would feed on itself for ever. Each circle is told once, at the flow that comes first."""
    leaving: dict[str, list[Located]] = defaultdict(list)
    for located in flows:
        leaving[located.flow.source.queue].append(located)
    told: set[frozenset[str]] = set()
    for located in flows:
        for way in _ways_back(located, leaving):
            names = frozenset(step.flow.name for step in way)
            if names not in told:
                told.add(names)
                queues = " -> ".join([*(step.flow.source.queue for step in way), located.flow.source.queue])
                yield located.fault("sink", f"the queues form a circle: {queues}")


def _ways_back(start: Located, leaving: Mapping[str, Sequence[Located]]) -> Iterator[list[Located]]:
    """The shortest way from the flow's outputs to its own source, if there is one."""
    seen = {start.flow.name}
    ways = [[start]]
    while ways:
        way = ways.pop(0)
        for queue in (way[-1].flow.output_queue, way[-1].flow.errors_to):
            if queue == start.flow.source.queue and (queue != way[-1].flow.errors_to or len(way) > 1):
                yield way
                return
            for step in leaving.get(queue or "", ()):
                if step.flow.name not in seen:
                    seen.add(step.flow.name)
                    ways.append([*way, step])
