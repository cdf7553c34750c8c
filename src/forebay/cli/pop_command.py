"""`forebay pop` and `forebay tail`: taking messages, and looking at them without taking them."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from typing import Annotated, Any

import msgspec
import typer

from forebay.cli import output
from forebay.cli.output import Format, OutputOption
from forebay.cli.server_option import DEFAULT_URL, KeyOption, UrlOption, connected
from forebay.client import Client, parse_address

_FOLLOW_SECONDS = 0.3


def pop(
    address: Annotated[str, typer.Argument(metavar="QUEUE[/PARTITION][@GROUP]", help="What to take, for whom.")],
    batch: Annotated[int, typer.Option("--batch", min=1, max=10_000, help="How many at the most.")] = 1,
    wait: Annotated[float, typer.Option("--wait", min=0, max=3600, help="Seconds to wait for a message.")] = 0,
    ack: Annotated[bool, typer.Option("--ack/--no-ack", help="Acknowledge what was printed, or only lease it.")] = True,
    url: UrlOption = DEFAULT_URL,
    api_key: KeyOption = None,
    output_format: OutputOption = Format.TABLE,
) -> None:
    """Take messages, print them, and acknowledge them: a message is finished only after it was printed."""
    with connected(url, api_key) as client:
        found = client.pop(address, batch=batch, wait=wait > 0, timeout=wait, partitions=batch)
        if output_format is Format.JSON:
            output.show_json(
                [
                    {
                        "seq": message.seq,
                        "partition": message.partition,
                        "transactionId": message.transaction_id,
                        "partitionId": message.partition_id,
                        "leaseId": message.lease_id,
                        "attempts": message.attempts,
                        "createdAt": message.created_at,
                        "data": message.data,
                    }
                    for message in found
                ]
            )
        else:
            for message in found:
                output.say(message.raw.decode())
        output.finish()
        if ack and found and not client.ack(found):
            output.tell("some messages were not acknowledged: their lease was over")


def tail(
    queue: Annotated[str, typer.Argument(metavar="QUEUE[/PARTITION]", help="What to look at.")],
    lines: Annotated[int, typer.Option("-n", "--lines", min=0, max=100_000, help="How many of the last ones.")] = 10,
    follow: Annotated[bool, typer.Option("-f", "--follow", help="Go on as messages arrive, until Ctrl-C.")] = False,
    url: UrlOption = DEFAULT_URL,
    api_key: KeyOption = None,
    output_format: OutputOption = Format.TABLE,
) -> None:
    """Print the last messages of a queue without taking them from anybody."""
    place = parse_address(queue)
    with connected(url, api_key) as client:
        next_seq = int(client.get(f"/api/v1/resources/queues/{place.queue}")["nextSeq"])
        from_seq = max(1, next_seq - lines)
        while True:
            for message in _messages(client, place.queue, place.partition, from_seq):
                _print(message, output_format)
                from_seq = message["seq"] + 1
            output.finish()
            if not follow:
                return
            time.sleep(_FOLLOW_SECONDS)


def _messages(client: Client, queue: str, partition: str | None, from_seq: int) -> Iterator[dict[str, Any]]:
    for _ in itertools.count():
        query: dict[str, object] = {"queue": queue, "fromSeq": from_seq, "limit": 1000}
        if partition is not None:
            query["partition"] = partition
        answer = client.get("/api/v1/messages", query)
        yield from answer["messages"]
        if answer["nextSeq"] is None:
            return
        from_seq = answer["nextSeq"]


def _print(message: dict[str, Any], output_format: Format) -> None:
    if output_format is Format.JSON:
        output.say(msgspec.json.encode(message).decode())
    else:
        payload = msgspec.json.encode(message["data"]).decode()
        output.say(f"{message['seq']:>8}  {message['createdAt']}  {message['partition']}  {payload}")
