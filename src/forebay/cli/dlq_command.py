"""`forebay dlq`: dead letters, listed, replayed and purged."""

from __future__ import annotations

from typing import Annotated

import msgspec
import typer

from forebay.cli import output
from forebay.cli.output import Format, OutputOption
from forebay.cli.server_option import DEFAULT_URL, KeyOption, UrlOption, checked_text, connected
from forebay.errors import Permanent

app = typer.Typer(help="List, replay and purge dead letters.")

QueueFilter = Annotated[str | None, typer.Option("--queue", help="Only of this queue.")]
GroupFilter = Annotated[str | None, typer.Option("--group", help="Only of this group.")]
PartitionFilter = Annotated[str | None, typer.Option("--partition", help="Only of this partition.")]
IdFilter = Annotated[str | None, typer.Option("--id", help="Only the message with this transaction id.")]
AllOption = Annotated[bool, typer.Option("--all", help="Without a filter: all of them.")]


@app.command("list")
def list_letters(
    queue: QueueFilter = None,
    group: GroupFilter = None,
    partition: PartitionFilter = None,
    limit: Annotated[int, typer.Option("--limit", min=1, max=10_000, help="How many at the most.")] = 100,
    url: UrlOption = DEFAULT_URL,
    api_key: KeyOption = None,
    output_format: OutputOption = Format.TABLE,
) -> None:
    """List dead letters, the newest first, each with its reason."""
    query = _filter(queue, group, partition, None)
    with connected(url, api_key) as client:
        found = client.get("/api/v1/dlq", {**query, "limit": limit})
    if output_format is Format.JSON:
        output.show_json(found)
        return
    rows = [
        (
            letter["queue"],
            letter["partition"],
            letter["consumerGroup"],
            letter["transactionId"],
            letter["retryCount"],
            letter["failedAt"],
            letter["errorMessage"],
            msgspec.json.encode(letter["data"]).decode()[:80],
        )
        for letter in found["messages"]
    ]
    columns = ("queue", "partition", "group", "transaction id", "attempts", "failed at", "reason", "payload")
    output.show_table(columns, rows, right=("attempts",))
    output.say(f"{len(rows)} of {found['total']} dead letters")


@app.command()
def replay(
    queue: QueueFilter = None,
    group: GroupFilter = None,
    partition: PartitionFilter = None,
    transaction_id: IdFilter = None,
    is_all: AllOption = False,
    to_all_groups: Annotated[
        bool, typer.Option("--to-all-groups", help="Deliver them to every group, also to those that had them.")
    ] = False,
    url: UrlOption = DEFAULT_URL,
    api_key: KeyOption = None,
) -> None:
    """Push dead letters again, as new messages at the end of their partitions, each for the group in which it died."""
    body = _chosen(queue, group, partition, transaction_id, is_all)
    with connected(url, api_key) as client:
        answer = client.post("/api/v1/dlq/replay", {**body, "toAllGroups": to_all_groups})
    reach = "for every group" if to_all_groups else "each for the group in which it died"
    output.say(f"replayed {answer['replayed']}, {reach}")


@app.command()
def purge(
    queue: QueueFilter = None,
    group: GroupFilter = None,
    partition: PartitionFilter = None,
    transaction_id: IdFilter = None,
    is_all: AllOption = False,
    url: UrlOption = DEFAULT_URL,
    api_key: KeyOption = None,
) -> None:
    """Throw dead letters away."""
    body = _chosen(queue, group, partition, transaction_id, is_all)
    with connected(url, api_key) as client:
        answer = client.post("/api/v1/dlq/purge", body)
    output.say(f"purged {answer['purged']}")


def _chosen(
    queue: str | None, group: str | None, partition: str | None, transaction_id: str | None, is_all: bool
) -> dict[str, object]:
    body = _filter(queue, group, partition, transaction_id)
    if not body and not is_all:
        raise Permanent("no filter was given", remedy="Say which dead letters, or --all")
    return {**body, "all": is_all}


def _filter(
    queue: str | None, group: str | None, partition: str | None, transaction_id: str | None
) -> dict[str, object]:
    given = {"queue": queue, "consumerGroup": group, "partition": partition, "transactionId": transaction_id}
    return {name: checked_text(value) for name, value in given.items() if value is not None}
