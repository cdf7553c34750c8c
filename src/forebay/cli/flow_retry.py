"""`forebay flows retry`: the records that a flow has set aside go through it again.

`retry` is a consumer group of the error queue, so it takes letters that it has not taken before. Each goes the way that
its headers allow (`forebay.flows.letters`):

| the record | goes |
|---|---|
| is a message of the flow's source | to that queue again: pushed and acknowledged in one transaction |
| is a row in front of a further step | to that step, alone: a parcel starts there, then the letter is acknowledged |
| was made of one message, which can still be read | as that message, to its queue: pushed and acknowledged in one transaction |
| cannot be sent alone | nowhere: its letter becomes a dead letter of the group, with the reason |

So each record is sent once, whatever is killed: a step knows records that it was given before, by the error queue's
identity and the letter's seq. Of a flow whose source is the errors of others, records go to the queues of the flows
that failed.

What cannot be sent alone can only go through the flow with its whole parcel (`forebay parcels replay DID`), whose other
results are then there twice.
"""  # noqa: E501 - a row of the table is a line

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import cached_property
from http import HTTPStatus
from typing import NamedTuple

import msgspec

from forebay.cli import output
from forebay.cli.flow_errors import FlowQueues, Letter, NameArgument, letters_of, queues_of
from forebay.cli.server_option import DEFAULT_URL, KeyOption, UrlOption, checked_text, connected
from forebay.client import Address, Client, Message, Refused, StepRecord
from forebay.client.paths import quoted
from forebay.flows.letters import Original, Stays, ToQueue, ToStep, replay_of, way_of

GROUP = "retry"
BATCH = 100
_OF_ONE_RECORD = (HTTPStatus.BAD_REQUEST, HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
"""How a server refuses records that it might take without one of them."""
_GONE = (HTTPStatus.NOT_FOUND, HTTPStatus.GONE)


class _Push(NamedTuple):
    """A message that is pushed in the transaction that acknowledges its letter."""

    queue: str
    partition: str
    payload: object


_Way = _Push | ToStep | Stays


class _Done(NamedTuple):
    """What became of letters."""

    pushed: Counter[str]
    """Records by the queue that they were pushed to."""
    started: Counter[str]
    """Records by the step that they were sent to."""
    left: Counter[str]
    """Records that stay, by the reason."""


def retry(name: NameArgument, url: UrlOption = DEFAULT_URL, api_key: KeyOption = None) -> None:
    """Send the records that a flow has set aside through it again, each once."""
    with connected(url, api_key) as client:
        queues = queues_of(client, checked_text(name))
        done = _Sending(client, name, queues).all()
    for queue, count in done.pushed.items():
        output.say(f"{name}: {_records(count)} sent to {queue} again")
    for step, count in done.started.items():
        output.say(f"{name}: {_records(count)} sent to step {step} again")
    if not done.pushed and not done.started:
        output.say(f"{name}: 0 records sent again")
    if left := done.left.total():
        output.say(
            f"{left:,} cannot be sent alone: `forebay dlq list --queue {queues.errors} --group {GROUP}` says why, "
            "`forebay parcels replay DID` sends a whole parcel again"
        )


def _records(count: int) -> str:
    return f"{count:,} record{'' if count == 1 else 's'}"


class _Sending:
    """Sends what the group has not taken of a flow's error queue."""

    def __init__(self, client: Client, flow: str, queues: FlowQueues) -> None:
        self._client = client
        self._flow = flow
        self._queues = queues
        self._done = _Done(Counter(), Counter(), Counter())

    def all(self) -> _Done:
        while letters := self._client.pop(Address(self._queues.errors, None, GROUP), batch=BATCH, partitions=BATCH):
            self._send(letters)
        return self._done

    def _send(self, popped: Sequence[Message]) -> None:
        """Steps first: what starts there is known to them, and acknowledged when it has started."""
        seqs = [message.seq for message in popped]
        letters = {letter.seq: letter for letter in letters_of(self._client, self._queues.errors, min(seqs), max(seqs))}
        ways = {message.seq: self._way(message, letters.get(message.seq)) for message in popped}
        ways |= self._started(popped, ways)
        transaction = self._client.transaction()
        for message in popped:
            way = ways[message.seq]
            if isinstance(way, Stays):
                transaction.ack(message, "dlq", error=way.reason)
                self._done.left[way.reason] += 1
                continue
            if isinstance(way, _Push):
                transaction.push(Address(way.queue, way.partition), way.payload)
                self._done.pushed[way.queue] += 1
            else:
                self._done.started[way.step] += 1
            transaction.ack(message)
        transaction.commit()

    def _way(self, message: Message, letter: Letter | None) -> _Way:
        if letter is None:
            return Stays("the letter was removed while it was read")
        way = way_of(letter.headers, self._flow, self._queues.source)
        if isinstance(way, ToQueue):
            payload = message.raw if message.is_binary else msgspec.Raw(message.raw)
            return _Push(way.queue, message.partition, payload)
        return self._original(way, letter.at) if isinstance(way, Original) else way

    def _original(self, way: Original, written_at: datetime) -> _Push | Stays:
        """The message that the record was made of, as long as it is there."""
        try:
            rows = self._client.read_arrow(way.queue, way.seq, way.seq).to_pylist()
        except Refused as refused:
            if refused.status not in _GONE:
                raise
            rows = []
        # A queue that was made again counts from 1: what is younger than the letter is another message.
        if not rows or rows[0]["created_at"] > written_at:
            return Stays(f"message {way.seq} of queue {way.queue}, of which the row was made, is gone: {way.replay}")
        return _Push(way.queue, rows[0]["partition"], _as_pushed(rows[0]["payload"]))

    def _started(self, popped: Sequence[Message], ways: Mapping[int, _Way]) -> dict[int, Stays]:
        """Start what goes to steps; why those stay that a step refuses, by the letter's seq."""
        steps: dict[str, dict[int, StepRecord]] = defaultdict(dict)
        for message in popped:
            way = ways[message.seq]
            if isinstance(way, ToStep):
                steps[way.step][message.seq] = StepRecord(way.did, f"{self._identity}:{message.seq}", message.raw)
        stay: dict[int, Stays] = {}
        for step, records in steps.items():
            stay |= self._start(step, records)
        return stay

    @cached_property
    def _identity(self) -> str:
        """Of the error queue: one of its name that is made again has another, and its letters have other keys."""
        return str(self._client.get(f"/api/v1/arrow/queues/{quoted(self._queues.errors)}/range")["identity"])

    def _start(self, step: str, records: Mapping[int, StepRecord]) -> dict[int, Stays]:
        try:
            self._client.start_records(self._flow, step, list(records.values()))
        except ValueError as fault:
            why = str(fault)
        except Refused as refused:
            if refused.status not in _OF_ONE_RECORD:
                raise
            why = refused.detail
        else:
            return {}
        if len(records) == 1:
            return {seq: Stays(f"step {step}: {why}: {replay_of(record.did)}") for seq, record in records.items()}
        stay: dict[int, Stays] = {}
        for seq, record in records.items():
            stay |= self._start(step, {seq: record})
        return stay


def _as_pushed(payload: bytes) -> object:
    """JSON as it stands, and anything else as bytes."""
    try:
        msgspec.json.decode(payload.decode())
    except (UnicodeDecodeError, msgspec.DecodeError, RecursionError):
        return payload
    return msgspec.Raw(payload)
