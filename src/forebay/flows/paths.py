"""Paths of a flow that stands in a file: relative ones begin at that file's folder, wherever a worker is started."""

from __future__ import annotations

import re
from pathlib import Path

from msgspec.structs import replace

from forebay.flows.definition import Flow, Sink, TableSink

# `s3a://bucket/…`, `file:/…`, `dbfs:/…`: what is before the colon says which filesystem knows the rest.
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")


def rooted(flow: Flow, folder: Path) -> Flow:
    """The flow with absolute paths. What has a scheme stays as it is."""
    tables = {name: replace(table, path=_rooted(table.path, folder)) for name, table in flow.tables.items()}
    sinks = tuple(_rooted_sink(sink, folder) for sink in flow.sinks)
    sink = None if flow.sink is None else _rooted_sink(flow.sink, folder)
    return replace(flow, tables=tables, sink=sink, sinks=sinks, checkpoint=_rooted(flow.checkpoint, folder))


def _rooted_sink(sink: Sink, folder: Path) -> Sink:
    if not isinstance(sink, TableSink):
        return sink
    return replace(sink, table=replace(sink.table, path=_rooted(sink.table.path, folder)))


def _rooted(path: str | None, folder: Path) -> str | None:
    if path is None or _SCHEME.match(path):
        return path
    return str(folder.absolute() / path)
