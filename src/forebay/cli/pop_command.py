"""`forebay pop`, `ack` and `tail`: taking messages, finishing them, and looking at them without taking them."""

from __future__ import annotations

import time
from base64 import b64encode
from collections import deque
from collections.abc import Iterator, Sequence
from http import HTTPStatus
from typing import Annotated, Any

import msgspec
import typer

from forebay.cli import output
from forebay.cli.output import Format, OutputOption
from forebay.cli.server_option import DEFAULT_URL, KeyOption, UrlOption, checked_text, connected, place_of
from forebay.client import Address, Client, Message, Refused
from forebay.client.paths import quoted
from forebay.errors import Permanent
from forebay.model.queue import DEFAULT_GROUP

_FOLLOW_SECONDS = 0.3
_PAGE_MESSAGES = 1000
_STEP_GROWTH = 4


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
    place = place_of(address)
    with connected(url, api_key) as client:
        found = client.pop(place, batch=batch, wait=wait > 0, timeout=wait, partitions=batch)
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
                        "data": _shown(message),
                        "encoding": "base64" if message.is_binary else "json",
                    }
                    for message in found
                ]
            )
        else:
            for message in found:
                output.say(_shown(message) if message.is_binary else message.raw.decode())
        output.finish()
        if not found:
            output.tell(_why_nothing(client, place))
        elif not ack:
            _tell_lease(client, place, found)
        elif not client.ack(found):
            output.tell("some messages were not acknowledged: their lease was over")


def _shown(message: Message) -> Any:
    return b64encode(message.raw).decode() if message.is_binary else message.data


def _why_nothing(client: Client, place: Address) -> str:
    path = f"/api/v1/consumer-groups/{quoted(place.group)}/queues/{quoted(place.queue)}/waiting"
    try:
        found = client.get(path, None if place.partition is None else {"partition": place.partition})
    except Refused as refused:
        if refused.status != HTTPStatus.NOT_FOUND:
            raise
        return f"nothing: there is no queue {place.queue!r}; the first push makes it"
    name = "the queue's own group" if place.group == DEFAULT_GROUP else f"group {place.group!r}"
    if not found["waiting"]:
        return f"nothing: no message of {place.queue!r} waits for {name}"
    due, leased = found["dueInSeconds"], found["leased"]
    when = f"; some may come at {found['dueAt']}, in {due:.0f} s" if due else ""
    where = "" if place.partition is None else f" (of partition {place.partition!r} only)"
    return f"nothing now{where}: {found['waiting']:,} wait for {name}, {leased:,} of them leased{when}"


def _tell_lease(client: Client, place: Address, found: Sequence[Message]) -> None:
    lease_id = found[0].lease_id
    seconds = client.get(f"/api/v1/resources/queues/{quoted(place.queue)}", {"limit": 1})["config"]["leaseTime"]
    output.tell(f"leased for {seconds} s, then delivered again. To finish: forebay ack {lease_id}")


def ack(
    lease: Annotated[str, typer.Argument(metavar="LEASE", help="As `forebay pop --no-ack` printed it.")],
    url: UrlOption = DEFAULT_URL,
    api_key: KeyOption = None,
) -> None:
    """Finish all messages that were popped under a lease and not answered yet."""
    with connected(url, api_key) as client:
        done = client.post(f"/api/v1/lease/{quoted(checked_text(lease))}/complete", {})
    if not done["success"]:
        raise Permanent(
            f"no such lease: {lease}", remedy="It was finished, or its time is over and its messages come again"
        )
    output.say(f"acknowledged {done['messages']:,}")


def tail(
    queue: Annotated[str, typer.Argument(metavar="QUEUE[/PARTITION]", help="What to look at.")],
    lines: Annotated[int, typer.Option("-n", "--lines", min=0, max=100_000, help="How many of the last ones.")] = 10,
    follow: Annotated[bool, typer.Option("-f", "--follow", help="Go on as messages arrive, until Ctrl-C.")] = False,
    url: UrlOption = DEFAULT_URL,
    api_key: KeyOption = None,
    output_format: OutputOption = Format.TABLE,
) -> None:
    """Print the last messages of a queue without taking them from any group."""
    place = place_of(queue)
    with connected(url, api_key) as client:
        status = client.get(f"/api/v1/resources/queues/{quoted(place.queue)}", {"limit": 1})
        from_seq = _start_of_last(client, place, lines, int(status["firstSeq"]), int(status["nextSeq"]))
        # A call that does not follow is not kept by messages that arrive faster than they are printed.
        end = None if follow else int(status["nextSeq"])
        while True:
            for message in _messages(client, place, from_seq, end):
                _print(message, output_format)
                from_seq = message["seq"] + 1
            output.finish()
            if not follow:
                return
            time.sleep(_FOLLOW_SECONDS)


def _start_of_last(client: Client, place: Address, count: int, first_seq: int, end: int) -> int:
    """From which seq on there are so many messages below `end`; the first one if there are fewer.

    Seqs count the whole queue, so it is not known how far back that is where other partitions lie between. It looks
    back in steps that grow, and at no message twice.
    """
    start, step = end, count
    while count > 0 and start > first_seq:
        step_end, start = start, max(first_seq, start - step)
        seqs = deque((message["seq"] for message in _messages(client, place, start, step_end)), maxlen=count)
        if len(seqs) == count:
            return int(seqs[0])
        count -= len(seqs)
        step *= _STEP_GROWTH
    return start


def _messages(client: Client, place: Address, from_seq: int, end: int | None) -> Iterator[dict[str, Any]]:
    """Messages from `from_seq` on and below `end`, or up to the last one there is."""
    while end is None or from_seq < end:
        limit = _PAGE_MESSAGES if end is None else min(_PAGE_MESSAGES, end - from_seq)
        query: dict[str, object] = {"queue": place.queue, "fromSeq": from_seq, "limit": limit}
        if place.partition is not None:
            query["partition"] = place.partition
        answer = client.get("/api/v1/messages", query)
        for message in answer["messages"]:
            if end is not None and message["seq"] >= end:
                return
            yield message
        if answer["nextSeq"] is None:
            return
        from_seq = answer["nextSeq"]


def _print(message: dict[str, Any], output_format: Format) -> None:
    if output_format is Format.JSON:
        output.say(msgspec.json.encode(message).decode())
    else:
        payload = msgspec.json.encode(message["data"]).decode()
        output.say(f"{message['seq']:>8}  {message['createdAt']}  {message['partition']}  {payload}")
