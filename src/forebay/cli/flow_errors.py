"""`forebay flows errors`: the records that a flow has set aside.

Each letter in a flow's error queue holds the record, and in its headers what was wrong, where it is from and what the
payload is (`forebay.flows.letters`). `flow_retry` sends them through the flow again.
"""

from __future__ import annotations

import json
from datetime import datetime
from typing import Annotated, Any, NamedTuple

import msgspec
import typer

from forebay.cli import output
from forebay.cli.output import Format, OutputOption
from forebay.cli.server_option import DEFAULT_URL, KeyOption, UrlOption, checked_text, connected
from forebay.client import Client, Refused
from forebay.errors import Permanent
from forebay.flows.chains import flow_of_spec

CAUSE_CHARACTERS_SHOWN = 80

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="The flow.")]
LimitOption = Annotated[int, typer.Option("--limit", min=1, max=100_000, help="At most so many, the newest.")]


class FlowQueues(NamedTuple):
    """Where a flow's records are from, and where those go that it sets aside."""

    source: str
    errors: str


def errors(
    name: NameArgument,
    limit: LimitOption = 100,
    url: UrlOption = DEFAULT_URL,
    api_key: KeyOption = None,
    output_format: OutputOption = Format.TABLE,
) -> None:
    """List the records that a flow has set aside: when, where from, and what is wrong with each."""
    with connected(url, api_key) as client:
        queues = queues_of(client, checked_text(name))
        found = letters_of(client, queues.errors)[-limit:]
    if output_format is Format.JSON:
        output.show_json([{**one._asdict(), "at": one.time, "payload": one.text} for one in found])
        return
    heads = ("seq", "at", "queue", "of seq", "action", "cause")
    rows = [
        (
            one.seq,
            one.time,
            one.headers.get("queue", ""),
            one.headers.get("seq", ""),
            one.headers.get("action", ""),
            str(one.headers.get("cause", "")).partition("\n")[0][:CAUSE_CHARACTERS_SHOWN],
        )
        for one in found
    ]
    output.show_table(heads, rows, right=("seq", "of seq"))


class Letter(NamedTuple):
    """A record that was set aside."""

    seq: int
    at: datetime
    payload: bytes
    headers: dict[str, Any]

    @property
    def time(self) -> str:
        return self.at.isoformat(timespec="seconds")

    @property
    def text(self) -> str:
        return self.payload.decode(errors="replace")


def letters_of(client: Client, queue: str, first: int | None = None, last: int | None = None) -> list[Letter]:
    """The letters of an error queue, in order; none where it is not there."""
    try:
        rows = client.read_arrow(queue, first, last).to_pylist()
    except Refused as refused:
        if refused.status != 404:
            raise
        return []
    return [Letter(row["seq"], row["created_at"], row["payload"], json.loads(row["headers"] or "{}")) for row in rows]


def queues_of(client: Client, name: str) -> FlowQueues:
    """Of a flow on parcels, as it is defined; of a stream, as its worker reports it."""
    try:
        spec = client.flow(name)["definition"].get("spec", {})
    except Refused as refused:
        if refused.status != 404:
            raise
        spec = {}
    if spec:
        flow = flow_of_spec(spec)
        return FlowQueues(flow.source.queue, flow.errors_to)
    known = msgspec.convert(client.get("/api/v1/flows"), _Listed).flows
    for one in known:
        if one.report.name == name:
            return FlowQueues(one.report.queue, one.report.error_queue)
    raise Permanent(f"no server knows flow {name!r}", remedy="`forebay flows list` shows those that are known")


class _Report(msgspec.Struct, rename="camel"):
    name: str
    queue: str = ""
    error_queue: str = ""


class _Info(msgspec.Struct, rename="camel"):
    report: _Report


class _Listed(msgspec.Struct):
    flows: list[_Info]
