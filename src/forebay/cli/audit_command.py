"""`forebay audit`: read every message of every queue, and compare with what the server says.

It works beside producers and consumers. What changes while it counts is counted again, a few times; a queue that never
rests is then checked for what no change can excuse, and reported as `moving`. See `recount` for what is compared, and
`audit_stages` for parcels and send queues.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from typing import Annotated, Any
from urllib.parse import quote

import pyarrow as pa
import pyarrow.compute as pc
import typer

from forebay.cli import output
from forebay.cli.audit_stages import LOOKS_MAX, PAGE, StageBalance, file_balances, flow_balances
from forebay.cli.output import ExitCode, Format, OutputOption
from forebay.cli.recount import Balance, GroupFigures, QueueFigures, Recount, balance_of, done_of
from forebay.cli.server_option import DEFAULT_URL, KeyOption, connected
from forebay.client import Client, Refused
from forebay.errors import Permanent

NOT_FOUND, GONE = 404, 410


def audit(
    queue: Annotated[str | None, typer.Option("--queue", help="Only this queue.")] = None,
    url: Annotated[
        str, typer.Option("--server", "--url", envvar="FOREBAY_URL", help="The server to audit.")
    ] = DEFAULT_URL,
    api_key: KeyOption = None,
    output_format: OutputOption = Format.TABLE,
) -> None:
    """Recount messages and parcels and compare with the server's figures. Exits with 1 if they differ.

    All queues, flows and send queues, or the messages of one queue.
    """
    with connected(url, api_key) as client:
        names = _queue_names(client) if queue is None else [queue]
        balances = []
        with output.progress("counting", len(names)) as advance:
            for name in names:
                if (balance := _balance(client, name)) is not None:
                    balances.append(balance)
                elif queue is not None:
                    raise Permanent(f"there is no queue {name!r}")
                advance(1)
        notes = _notes(client.get("/api/v1/status/buffers"), {*names}, is_all=queue is None)
        lost = _lost(client, [balance for balance in balances if balance.figures.lost])
        stages = [*flow_balances(client), *file_balances(client)] if queue is None else []
    is_balanced = not any(one.differences for one in balances) and not any(one.differences for one in stages)
    if output_format is Format.JSON:
        output.show_json(
            {
                "balanced": is_balanced,
                "notes": notes,
                "lost": lost,
                "queues": [_document(balance) for balance in balances],
                "stages": [_stage_document(balance) for balance in stages],
            }
        )
    else:
        _show_queues(balances, lost)
        _show_stages(stages)
        _show_verdict(balances, stages, notes, is_balanced=is_balanced)
    if not is_balanced:
        raise typer.Exit(ExitCode.REFUSED)


# asking


def _queue_names(client: Client) -> list[str]:
    return [found["name"] for found in _pages(client, "/api/v1/resources/queues", "queues", internal="true")]


def _pages(client: Client, path: str, member: str, **query: object) -> Iterator[dict[str, Any]]:
    offset = 0
    while found := client.get(path, {**query, "limit": PAGE, "offset": offset})[member]:
        yield from found
        offset += len(found)
        if len(found) < PAGE:
            return


def _balance(client: Client, name: str) -> Balance | None:
    """Counted again while it changes, up to a limit; None when there is no such queue, or no more."""
    found: Balance | None = None
    for look in range(1, LOOKS_MAX + 1):
        try:
            before = _figures(client, name)
            found = balance_of(before, _recount(client, before), _figures(client, name))
        except Refused as refused:
            if refused.status == NOT_FOUND:
                return None
            if refused.status != GONE or (found is None and look == LOOKS_MAX):
                raise
            continue  # retention was faster
        if found.is_exact:
            break
    return found


def _figures(client: Client, name: str) -> QueueFigures:
    shown = client.get(f"/api/v1/status/queues/{quote(name, safe='')}")
    queue = shown["queue"]
    partitions = _pages(client, "/api/v1/resources/partitions", "partitions", queue=name)
    groups = [
        GroupFigures(one["name"], one["totalLag"], one["leased"], _dead(client, name, one["name"]))
        for one in shown["consumerGroups"]
    ]
    return QueueFigures(
        name,
        queue["firstSeq"],
        queue["nextSeq"],
        queue["messages"]["total"],
        queue["messages"]["deadLetter"],
        client.get("/api/v1/status/buffers")["queues"].get(name, 0),
        {one["name"]: one["messages"] for one in partitions},
        tuple(groups),
        queue["messages"].get("lost", 0),
    )


def _dead(client: Client, queue: str, group: str) -> int:
    return int(client.get("/api/v1/dlq", {"queue": queue, "consumerGroup": group, "limit": 1})["total"])


def _recount(client: Client, figures: QueueFigures) -> Recount:
    """Eight bytes of memory per message: ids are compared by their hashes."""
    recount = Recount()
    ids = array("q")
    for batch in client.iter_arrow(figures.name, figures.first_seq, figures.next_seq - 1):
        partitions = batch.column("partition").to_pylist()
        recount.add(batch.column("seq").to_pylist(), partitions)
        ids.extend(map(hash, zip(partitions, batch.column("transaction_id").to_pylist(), strict=True)))
    hashes = pa.Array.from_buffers(pa.int64(), len(ids), [None, pa.py_buffer(ids)])
    recount.repeated_ids = len(ids) - pc.count_distinct(hashes).as_py()
    return recount


def _lost(client: Client, balances: list[Balance]) -> list[dict[str, Any]]:
    """What cannot be read any more, to the seq."""
    names = [balance.figures.name for balance in balances]
    return [found for name in names for found in _pages(client, "/api/v1/status/lost", "lost", queue=name)]


def _notes(buffers: dict[str, Any], known: set[str], *, is_all: bool) -> list[str]:
    notes = []
    for queue, count in buffers["queues"].items() if is_all else ():
        if queue not in known:
            notes.append(f"queue {queue!r}: {count} messages wait in buffer files, and none is stored yet")
    if buffers["failed"]:
        notes.append(f"{buffers['failed']} buffered messages are refused by the store")
    if buffers["damagedFiles"]:
        notes.append(f"{len(buffers['damagedFiles'])} damaged buffer files: what may be in them is not counted")
    if not buffers["isDrainer"]:
        notes.append("another process drains the buffer files: only this server's own part of them is counted")
    return notes


# telling


def _show_queues(balances: list[Balance], lost: list[dict[str, Any]]) -> None:
    numbers = ("accepted", "in buffer", "stored", "removed", "lost", "dead")
    rows = [
        (
            balance.figures.name,
            balance.figures.accepted,
            balance.figures.buffered,
            balance.recount.stored,
            balance.figures.removed,
            balance.figures.lost,
            balance.figures.dead,
            _verdict(balance.differences, is_exact=balance.is_exact),
        )
        for balance in balances
    ]
    output.show_table(("queue", *numbers, "verdict"), rows, right=numbers)
    groups = [_group_row(group, balance.figures) for balance in balances for group in balance.figures.groups]
    if groups:
        output.say()
        columns = ("done", "waiting", "leased", "dead", "in buffer")
        output.show_table(("queue", "group", *columns), groups, right=columns)
    output.say()
    if lost:
        rows_lost = [
            (one["queue"], one["partition"] or "unknown", _seqs(one), one["messages"], one["foundAt"], one["reason"])
            for one in lost
        ]
        columns_lost = ("queue", "partition", "lost seqs", "messages", "found", "reason")
        output.show_table(columns_lost, rows_lost, right=("messages",))
        output.say()


def _show_stages(stages: list[StageBalance]) -> None:
    if stages:
        rows = [
            (one.stage, one.name, one.accepted, _parts_text(one), _verdict(one.differences, is_exact=one.is_exact))
            for one in stages
        ]
        output.show_table(("stage", "name", "accepted", "of which", "verdict"), rows, right=("accepted",))
        output.say()


def _parts_text(balance: StageBalance) -> str:
    return ", ".join(f"{count} {part}" for part, count in balance.parts.items() if count) or "nothing"


def _show_verdict(balances: list[Balance], stages: list[StageBalance], notes: list[str], *, is_balanced: bool) -> None:
    for balance in balances:
        for difference in balance.differences:
            output.say(f"difference: queue {balance.figures.name!r}: {difference}")
    for one in stages:
        for difference in one.differences:
            output.say(f"difference: {one.stage} {one.name!r}: {difference}")
    for note in notes:
        output.say(f"note: {note}")
    stored = sum(balance.recount.stored for balance in balances)
    verdict = "balanced" if is_balanced else "NOT balanced"
    output.say(f"{verdict}: {stored:,} messages counted in {len(balances)} queues")


def _seqs(lost: dict[str, Any]) -> str:
    return f"{lost['firstSeq']}-{lost['lastSeq']}"


def _verdict(differences: list[str], *, is_exact: bool) -> str:
    if differences:
        return "DIFFERENT"
    return "balanced" if is_exact else "balanced, moving"


def _group_row(group: GroupFigures, figures: QueueFigures) -> tuple[object, ...]:
    waiting = group.lag - group.leased
    return (figures.name, group.name, done_of(group, figures), waiting, group.leased, group.dead, figures.buffered)


def _stage_document(balance: StageBalance) -> dict[str, object]:
    return {
        "stage": balance.stage,
        "name": balance.name,
        "accepted": balance.accepted,
        "parts": dict(balance.parts),
        "exact": balance.is_exact,
        "differences": balance.differences,
    }


def _document(balance: Balance) -> dict[str, object]:
    figures = balance.figures
    return {
        "queue": figures.name,
        "accepted": figures.accepted,
        "buffered": figures.buffered,
        "stored": balance.recount.stored,
        "kept": figures.kept,
        "removed": figures.removed,
        "lost": figures.lost,
        "dead": figures.dead,
        "exact": balance.is_exact,
        "differences": balance.differences,
        "groups": [
            {
                "group": group.name,
                "done": done_of(group, figures),
                "waiting": group.lag - group.leased,
                "leased": group.leased,
                "dead": group.dead,
            }
            for group in figures.groups
        ],
    }
