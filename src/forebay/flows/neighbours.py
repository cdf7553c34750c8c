"""What must hold of flows together, and beside the destinations of their file: names, cursors and checkpoints of their
own, no circle of queues, and no sink that leads nowhere."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence

from forebay.flows.definition import ExportSink
from forebay.flows.faults import FlowFault
from forebay.flows.located import Located


def shared_names(flows: Sequence[Located]) -> Iterator[FlowFault]:
    first: dict[str, Located] = {}
    for located in flows:
        earlier = first.setdefault(located.flow.name.lower(), located)
        if earlier is not located:
            yield located.fault("name", f"another flow has that name already ({earlier.place('name')})")


def shared_cursors(flows: Sequence[Located]) -> Iterator[FlowFault]:
    cursors: dict[tuple[str, str], Located] = {}
    checkpoints: dict[str, Located] = {}
    for located in flows:
        flow = located.flow
        if not flow.source.queue:
            continue
        earlier = cursors.setdefault((flow.source.queue, flow.group), located)
        if earlier.flow.name.lower() != flow.name.lower():
            text = f"flow {earlier.flow.name!r} moves the cursor of group {flow.group!r} in the same queue"
            yield located.fault("source.group", text)
        if flow.checkpoint is not None and checkpoints.setdefault(flow.checkpoint, located) is not located:
            other = checkpoints[flow.checkpoint].flow.name
            yield located.fault("checkpoint", f"flow {other!r} has its checkpoint there")


def unknown_destinations(flows: Sequence[Located], known: Collection[str]) -> Iterator[FlowFault]:
    """Where the file has destinations, sinks name one of them. Without any they are another file's: the servers'."""
    for located in flows if known else ():
        flow = located.flow
        for index, sink in enumerate(flow.all_sinks):
            if isinstance(sink, ExportSink) and sink.export not in known:
                path = "sink.export" if flow.sink is not None and index == 0 else f"sinks.{index}.export"
                names = ", ".join(sorted(known))
                yield located.fault(path, f"there is no destination {sink.export!r}; this file has {names}")


def circles(flows: Sequence[Located]) -> Iterator[FlowFault]:
    """A circle of queues would feed on itself for ever. Each circle is reported once, at the flow that comes first."""
    leaving: dict[str, list[Located]] = defaultdict(list)
    for located in flows:
        if located.flow.source.queue:
            leaving[located.flow.source.queue].append(located)
    reported: set[frozenset[str]] = set()
    for located in flows:
        for way in _ways_back(located, leaving):
            names = frozenset(step.flow.name for step in way)
            if names not in reported:
                reported.add(names)
                queues = " -> ".join([*(step.flow.source.queue for step in way), located.flow.source.queue])
                yield located.fault("sink", f"the queues form a circle: {queues}")


def _ways_back(start: Located, leaving: Mapping[str, Sequence[Located]]) -> Iterator[list[Located]]:
    """The shortest way from the flow's outputs to its own source, if there is one."""
    seen = {start.flow.name}
    ways = [[start]]
    while ways:
        way = ways.pop(0)
        for queue in (*way[-1].flow.output_queues, way[-1].flow.errors_to):
            if queue == start.flow.source.queue and (queue != way[-1].flow.errors_to or len(way) > 1):
                yield way
                return
            for step in leaving.get(queue, ()):
                if step.flow.name not in seen:
                    seen.add(step.flow.name)
                    ways.append([*way, step])
