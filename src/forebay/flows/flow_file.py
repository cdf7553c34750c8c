"""Reads flows from the settings file and from the Python modules that it names.

    flows:
      - name: clicks          # a flow, written out
        …
      - module: shop.flows    # every `Flow` that this module holds by a name, or in a list or tuple

Modules are looked for beside the file first, then where Python looks; relative paths begin beside the file. All faults
are collected, each with file and line; a flow that cannot be read does not keep the others from being judged.

Modules are code, and what stands at their top may ask for a Spark session: `@udf` makes another function for a Connect
server than for Spark in this process, and a column cannot be made without any. So a program that runs flows starts
Spark before the modules are imported, and `check_written` finds before that what can be found without them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from forebay.config.lists import DESTINATIONS
from forebay.config.load import FLOWS_KEY
from forebay.config.yaml_file import FileRefused, compose_file
from forebay.flows.checks import check_flow, check_flows
from forebay.flows.definition import Action, Flow, QueueSink, Sink, Source, SqlAction
from forebay.flows.faults import FlowFault, FlowsRefused
from forebay.flows.located import Located
from forebay.flows.neighbours import unknown_destinations
from forebay.flows.paths import rooted
from forebay.flows.registry import NotFound, find_module, search_beside
from forebay.flows.written import REFUSED, Written, from_python, from_yaml, read

MODULE_KEY = "module"
UNREADABLE = "(unreadable)"


@dataclass(frozen=True, slots=True)
class FoundFlows:
    """What a file defines, and everything that is wrong with it."""

    flows: Sequence[Located]
    faults: Sequence[FlowFault]
    has_modules: bool = False


@dataclass(slots=True)
class _Reading:
    """One file, and what was found in it beside flows."""

    file: Path
    is_code_loaded: bool
    faults: list[FlowFault] = field(default_factory=list)
    has_modules: bool = False
    destinations: set[str] = field(default_factory=set)
    """The names of those that the file has."""


def load_flows(file: Path) -> list[Flow]:
    """The flows of a file, fit to run. Raises FlowsRefused with every fault."""
    found = find_flows(file)
    if found.faults:
        raise FlowsRefused(found.faults)
    return [located.flow for located in found.flows]


def check_written(file: Path) -> FoundFlows:
    """What can be found without the code. Raises FlowsRefused for what is wrong whatever the modules hold."""
    found = find_flows(file, is_code_loaded=False)
    if found.faults:
        raise FlowsRefused(found.faults)
    return found


def find_flows(file: Path, *, is_code_loaded: bool = True) -> FoundFlows:
    """The flows of a file that could be read, and the faults of all of them.

    Without `is_code_loaded` nothing is imported: flows of modules are missing, and actions in Python are not judged.
    """
    reading = _Reading(file, is_code_loaded)
    search_beside(file)
    flows = list(_read_file(reading))
    faults = [*reading.faults, *check_flows(flows, is_code_loaded=is_code_loaded)]
    faults += unknown_destinations(flows, reading.destinations)
    return FoundFlows(flows, faults, reading.has_modules)


def _read_file(reading: _Reading) -> Iterator[Located]:
    file = reading.file
    try:
        root = compose_file(file)
    except FileRefused as refused:
        place = str(file) if refused.line is None else f"{file} line {refused.line}"
        reading.faults.append(FlowFault(place, "", "", f"it has to be {refused.allowed}"))
        return
    reading.destinations = set(_destination_names(root))
    for node in _flows_nodes(root):
        if not isinstance(node, yaml.SequenceNode):
            place = f"{file} line {node.start_mark.line + 1}"
            reading.faults.append(FlowFault(place, "", FLOWS_KEY, "expected a list of flows"))
            continue
        for index, item in enumerate(node.value):
            yield from _read_item(item, f"{FLOWS_KEY}.{index}", reading)


def _flows_nodes(root: yaml.Node | None) -> Iterator[yaml.Node]:
    for below in _nodes_of(root, FLOWS_KEY):
        if not (isinstance(below, yaml.ScalarNode) and below.value in ("", "null", "~")):
            yield below


def _nodes_of(node: yaml.Node | None, key: str) -> Iterator[yaml.Node]:
    """What stands under a key."""
    for name, below in node.value if isinstance(node, yaml.MappingNode) else ():
        if name.value == key:
            yield below


def _destination_names(root: yaml.Node | None) -> Iterator[str]:
    """As they are written; the settings judge the rest."""
    for items in _nodes_of(root, DESTINATIONS):
        for item in items.value if isinstance(items, yaml.SequenceNode) else ():
            yield from (str(name.value) for name in _nodes_of(item, "name"))


def _read_item(node: yaml.Node, path: str, reading: _Reading) -> Iterator[Located]:
    file, faults = str(reading.file), reading.faults
    name = ""

    def report(place: str, key: str, message: str) -> None:
        faults.append(FlowFault(place, name or path, key, message))

    written = from_yaml(node, file, report)
    if isinstance(written.value, dict):
        if set(written.value) == {MODULE_KEY}:
            reading.has_modules = True
            if reading.is_code_loaded:
                yield from _read_module(written.value[MODULE_KEY], report_to=faults)
            return
        if "name" in written.value:
            name = str(written.value["name"].plain())
    flow = read(written, Flow, "", report)
    places = dict(written.places())
    if flow is not REFUSED:
        yield Located(rooted(flow, Path(file).parent), written.place, places)
    elif isinstance(written.value, dict):
        part = Located(_readable_part(written, name or path), written.place, places)
        faults.extend(check_flow(part, is_code_loaded=reading.is_code_loaded))


def _readable_part(written: Written, name: str) -> Flow:
    """What can be read of a flow with faults, so that the rest is judged too. Gaps are filled with what is fine."""
    values = {
        key: value
        for key, kind in (("mode", str), ("source", Source), ("sink", Sink))
        if key in written.value and (value := read(written.value[key], kind, key, _unheard)) is not REFUSED
    }
    items = written.value["actions"].value if "actions" in written.value else []
    actions = [read(item, Action, "", _unheard) for item in items] if isinstance(items, list) else []
    filled = [
        SqlAction(name=f"unreadable:{index}", sql=UNREADABLE) if action is REFUSED else action
        for index, action in enumerate(actions)
    ]
    fine = {"source": Source(queue=f"{UNREADABLE} source"), "sink": QueueSink(queue=f"{UNREADABLE} sink")}
    return Flow(name=name, actions=tuple(filled), **{**fine, **values})


def _unheard(place: str, key: str, message: str) -> None:
    """What it would say has been reported already."""


def _read_module(written: Written, report_to: list[FlowFault]) -> Iterator[Located]:
    name = str(written.plain())
    try:
        module = find_module(name)
    except NotFound as missing:
        report_to.append(FlowFault(written.place, "", MODULE_KEY, str(missing)))
        return
    values = [value for key, value in vars(module).items() if not key.startswith("_")]
    flows = [flow for value in values for flow in (value if isinstance(value, (list, tuple)) else [value])]
    found = {id(flow): flow for flow in flows if isinstance(flow, Flow)}
    if not found:
        report_to.append(FlowFault(written.place, "", MODULE_KEY, f"module {name} holds no Flow"))
    for flow in found.values():
        yield from _judged(flow, f"module {name}", report_to)


def _judged(flow: Flow, origin: str, report_to: list[FlowFault]) -> Iterator[Located]:
    """A flow that Python code made, if its values are of the types that a written one must have."""

    def report(_: str, key: str, message: str) -> None:
        report_to.append(FlowFault(origin, str(flow.name), key, message))

    fitting = read(from_python(flow, lambda _: origin), Flow, "", report)
    if fitting is not REFUSED:
        yield Located(fitting, origin)
