"""Many messages at once, as Arrow IPC: ranges out; rows in, staged and committed once."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Annotated, Any

from msgspec import Meta, Struct

from forebay.api.bodies import PAYLOAD_BYTES_MAX
from forebay.api.exchange import Request, Response, StreamedResponse
from forebay.api.large_bodies import read_body
from forebay.api.parameters import Moment, Name, Text, Whole, checked_name
from forebay.api.problems import Problem, problem_of, unavailable, wrong
from forebay.api.reach import check_stages
from forebay.api.responses import answered
from forebay.api.routing import Content, Queues, Route, Scope
from forebay.api.service import Service
from forebay.broker.arrow import WIRE_SCHEMA, incoming
from forebay.broker.arrow.incoming import ArrowRefused
from forebay.broker.arrow.staged_rows import new_stage_id
from forebay.broker.bulk import RangeRequest, StageName, StagesOf
from forebay.errors import RangeGone
from forebay.model.body_formats import ARROW_STREAM, END_OF_STREAM
from forebay.model.message import SEQ_MAX
from forebay.model.queue import NAME_CHARACTERS_MAX

STAGES_MAX = 100_000
HOLD_SECONDS_MAX = 30 * 86_400
DECODED_BODIES_MAX = 4
"""Staged rows may be as large as so many of the largest bodies once they are decoded: each row gets an id, too."""
JOINED_BYTES_MAX = 64 * 1024
"""A first batch up to this size is sent in one piece with the schema; copying a larger one costs more than it saves."""

FROM = Whole("from", 0, "The first seq; the oldest kept if absent.", highest=SEQ_MAX)
TO = Whole("to", SEQ_MAX, "The last seq, included; the newest if absent.", highest=SEQ_MAX)
PARTITION = Name("partition", None, "Only of this partition. May be given several times.")
CREATED_FROM = Moment("createdFrom", None, "Only messages made at this time or later.")
CREATED_TO = Moment("createdTo", None, "Only messages made before this time.")
LIMIT_BYTES = Whole("limitBytes", 0, "End behind so many bytes of payloads, but not before one message; 0: no limit.")
IDENTITY = Text("identity", "", "Refuse to read a queue of another identity than this one, which `range` returned.")
REMOVED_UP_TO = Whole(
    "removedUpTo",
    0,
    "Refuse a range that misses messages that were removed behind this seq, or lost.",
    highest=SEQ_MAX,
)
TIME = Moment("time", None, "Also answer with the first seq made at this time or later.")
PRODUCER = Text("producer", "", "The writer's name. Required.")
EPOCH = Text("epoch", "", "What is committed once for the producer and the queue, such as a batch's number. Required.")
WRITE = Text("write", "", "Tells several writes of one epoch to one queue apart.")
OF_QUEUE = Name("queue", None, "Only what was staged for this queue.")
PART = Text("part", "", "Which part of the epoch this is, such as a task's number; for people.")


class LostRange(Struct, rename="camel"):
    first_seq: int
    last_seq: int
    messages: int


class RangeResponse(Struct, rename="camel", omit_defaults=True):
    queue: str
    identity: str
    first_seq: int
    next_seq: int
    bytes: int
    seq_at_time: int | None = None
    removed_seq: int = 0
    lost: list[LostRange] = []


class HoldBody(Struct, rename="camel"):
    seq: Annotated[int, Meta(ge=1, le=SEQ_MAX)]
    seconds: Annotated[float, Meta(ge=0, le=HOLD_SECONDS_MAX)]


class HoldResponse(Struct, rename="camel"):
    was_held: bool


class StageResponse(Struct, rename="camel"):
    stage: str
    messages: int
    bytes: int


_Label = Annotated[str, Meta(min_length=1, max_length=NAME_CHARACTERS_MAX)]


class CommitBody(Struct, rename="camel"):
    producer: _Label
    epoch: _Label | int
    stages: Annotated[list[_Label], Meta(max_length=STAGES_MAX)]
    write: Annotated[str, Meta(max_length=NAME_CHARACTERS_MAX)] = ""
    queue: _Label | None = None


class SeqsOfQueue(Struct, rename="camel"):
    first_seq: int
    last_seq: int


class CommitResponse(Struct, rename="camel"):
    committed: bool
    already: bool
    messages: int
    duplicates: int
    queues: dict[str, SeqsOfQueue]


class AbortResponse(Struct):
    removed: int


async def show_range(service: Service, request: Request) -> Response:
    """Everything below `nextSeq` can be read now and never changes. `firstSeq` is `nextSeq` when nothing is kept.

    `identity` is that of this queue: one that is deleted and made again has another. `removedSeq` is the last message
    that retention removed, of the requested partitions, and `lost` is what a damage has taken: a reader that stands
    before them has missed some.
    """
    (queue,) = request.path
    names = [checked_name(name, PARTITION.name) for name in request.values(PARTITION.name)]
    bounds = await service.store.bounds(queue, TIME.read(request.query), names)
    return answered(
        RangeResponse(
            queue,
            bounds.identity,
            bounds.first_seq,
            bounds.next_seq,
            bounds.size_bytes,
            bounds.seq_at_time,
            bounds.removed_seq,
            [LostRange(*span) for span in bounds.lost],
        )
    )


async def hold(service: Service, request: Request) -> Response:
    """Messages from `seq` on stay, although all groups have finished them, for as long as `completedRetentionSeconds`
    alone would remove them; for so many seconds, or until this is requested again. 0 seconds end it.
    """
    queue, reader = request.path
    body = await read_body(HoldBody, request)
    return answered(
        HoldResponse(await service.store.hold(queue, checked_name(reader, "reader"), body.seq, body.seconds))
    )


async def read_range(service: Service, request: Request) -> Response | StreamedResponse:
    """An Arrow IPC stream, in seq order: seq, partition, transaction_id, trace_id, headers, created_at, payload.

    Deleted messages are absent. A range of which retention has removed the front is 410. What it removed further behind
    is absent, too, unless `removedUpTo` is given: then a range that misses messages behind that seq, removed or lost,
    is 410, and a front that was removed up to there is passed. A queue of another `identity` than the one given is 409.
    Ranges of a parcel's lease have both. An answer without Arrow's
    end-of-stream marker was cut off: ask again behind the last seq that came.
    """
    (queue,) = request.path
    query = request.query
    wanted = RangeRequest(
        queue,
        FROM.read(query) if FROM.name in query else None,
        TO.read(query) if TO.name in query else None,
        tuple([checked_name(name, PARTITION.name) for name in request.values(PARTITION.name)]),
        CREATED_FROM.read(query),
        CREATED_TO.read(query),
        LIMIT_BYTES.read(query) or None,
        IDENTITY.read(query) or None,
        REMOVED_UP_TO.read(query) if REMOVED_UP_TO.name in query else None,
    )
    try:
        batches = _ahead(await service.store.read_batches(wanted))
        # Whatever is wrong with the first batch can still be answered properly.
        first = await anext(batches, None)
    except RangeGone as gone:
        problem = problem_of(gone)
        described = f"{query.get(FROM.name, 'the oldest')} to {query.get(TO.name, 'the newest')}"
        raise Problem(
            problem.status, f"asked for seq {described}: {gone}", code=problem.code, members=problem.members
        ) from gone
    return StreamedResponse(200, _chunks(first, batches), ARROW_STREAM.encode())


async def _chunks(first: Any, following: AsyncGenerator[Any, None]) -> AsyncIterator[memoryview | bytes]:
    """The schema, the batches, the end marker."""
    head: bytes = WIRE_SCHEMA.serialize().to_pybytes()
    try:
        if first is not None:
            message = memoryview(first.serialize())
            if len(message) <= JOINED_BYTES_MAX:
                yield head + message
            else:
                yield head
                yield message
            head = b""
        async for batch in following:
            yield memoryview(batch.serialize())
        yield head + END_OF_STREAM
    finally:
        await following.aclose()


async def _ahead(batches: AsyncIterator[Any]) -> AsyncGenerator[Any, None]:
    """The same batches, each read while the one before it is sent."""
    upcoming = asyncio.ensure_future(anext(batches, None))
    try:
        while (batch := await upcoming) is not None:
            upcoming = asyncio.ensure_future(anext(batches, None))
            yield batch
    finally:
        # A reader that stops early must not close what a thread still reads from.
        with contextlib.suppress(Exception):
            await upcoming
        if isinstance(batches, AsyncGenerator):
            await batches.aclose()


async def stage_rows(service: Service, request: Request) -> Response:
    """The body is an Arrow IPC stream: `payload` (binary or string), and as you like `partition`, `transaction_id`,
    `trace_id`, `headers`. What is answered is durable, and no message until a commit names it.
    """
    (queue,) = request.path
    write = _without_nul(WRITE, WRITE.read(request.query))
    name = StageName(_label(PRODUCER, request), _label(EPOCH, request), PART.read(request.query), write)
    body = await request.body()
    _check_not_paused(service)
    stage_id = new_stage_id()
    bytes_max = DECODED_BODIES_MAX * service.limits.body_bytes_max
    try:
        await request.take_more(await asyncio.to_thread(incoming.memory_bytes, body, bytes_max))
        batches = await asyncio.to_thread(
            incoming.accepted, body, stage_id, payload_bytes_max=PAYLOAD_BYTES_MAX, bytes_max=bytes_max
        )
    except ArrowRefused as refused:
        if refused.is_too_large:
            raise Problem(413, str(refused), code="too_large", field=refused.column) from refused
        raise wrong(refused.column, str(refused)) from refused
    staged = await service.store.stage(queue, stage_id, name, batches)
    service.counts.bytes_in += len(body)
    return answered(StageResponse(staged.stage_id, staged.content.messages, staged.content.size_bytes), 201)


def _label(parameter: Text, request: Request) -> str:
    found = parameter.read(request.query)
    if not found:
        raise wrong(parameter.name, "is missing")
    return _without_nul(parameter, found)


def _without_nul(parameter: Text, found: str) -> str:
    if "\0" in found:
        raise wrong(parameter.name, "holds a NUL character")
    return found


def _check_not_paused(service: Service) -> None:
    if service.is_push_paused:
        raise unavailable("push maintenance is on; nothing is accepted", "maintenance")


async def commit_stages(service: Service, request: Request) -> Response:
    """All stages become messages at one moment, with the seqs that come next, in the order of the list. Once for a
    producer's epoch and queue: a second commit of the same rows, in whatever order and stages, changes nothing and
    answers `already`, with what the first one did; one of other rows is refused (409). `write` tells several writes of
    an epoch to one queue apart. `queue` names the queue of a commit that may have no stages.
    """
    body = await read_body(CommitBody, request)
    _check_named(request, body.queue)
    await check_stages(service, request, body.stages)
    _check_not_paused(service)
    await service.wait_until_all_free()
    wanted = StagesOf(body.producer, str(body.epoch), body.write, body.queue)
    outcome = await service.store.commit_stages(wanted, body.stages)
    if not outcome.is_repeated:
        service.counts.pushed += outcome.messages
        service.counts.duplicates += outcome.duplicates
    allows = request.caller.allows
    queues = {queue: SeqsOfQueue(*seqs) for queue, seqs in outcome.queues.items() if allows(queue)}
    return answered(CommitResponse(True, outcome.is_repeated, outcome.messages, outcome.duplicates, queues))


def _check_named(request: Request, queue: str | None) -> None:
    """A key for some queues has to name the one: a producer's epoch may have rows for several."""
    if queue is None:
        request.caller.check_unrestricted("name the queue")
    else:
        request.caller.check_queue(queue, "queue")


async def abort_stages(service: Service, request: Request) -> Response:
    """What was staged for the producer's epoch, and not committed, is forgotten: all of it, or one write's, or one
    queue's.
    """
    write, queue = WRITE.read(request.query), OF_QUEUE.read(request.query)
    _check_named(request, queue)
    wanted = StagesOf(_label(PRODUCER, request), _label(EPOCH, request), write, queue)
    removed = await service.store.abort_stages(wanted, all_writes=WRITE.name not in request.query)
    return answered(AbortResponse(removed))


_BASE = "/api/v1/arrow"
_STAGING = (PRODUCER, EPOCH, PART, WRITE)

ROUTES = (
    Route(
        "GET",
        f"{_BASE}/queues/{{queue}}/range",
        show_range,
        "Which seqs of a queue can be read.",
        Scope.READ,
        answers={200: RangeResponse},
        query=(TIME, PARTITION),
        problems=(404, 503),
        queues=Queues.NAMED,
    ),
    Route(
        "GET",
        f"{_BASE}/queues/{{queue}}",
        read_range,
        "Read a range of a queue as an Arrow IPC stream.",
        Scope.READ,
        answers={200: Content(ARROW_STREAM)},
        query=(FROM, TO, PARTITION, CREATED_FROM, CREATED_TO, LIMIT_BYTES, IDENTITY, REMOVED_UP_TO),
        problems=(404, 409, 410, 503),
        queues=Queues.NAMED,
    ),
    Route(
        "POST",
        f"{_BASE}/queues/{{queue}}/readers/{{reader}}",
        hold,
        "Keep finished messages that a reader has not read.",
        Scope.READ,
        answers={200: HoldResponse},
        body=HoldBody,
        problems=(404, 413, 415, 503),
        queues=Queues.NAMED,
    ),
    Route(
        "POST",
        f"{_BASE}/queues/{{queue}}",
        stage_rows,
        "Stage rows for a queue.",
        Scope.WRITE,
        answers={201: StageResponse},
        body=bytes,
        body_type=ARROW_STREAM,
        query=_STAGING,
        problems=(413, 415, 503, 507),
        queues=Queues.NAMED,
    ),
    Route(
        "POST",
        f"{_BASE}/commit",
        commit_stages,
        "Make staged rows messages, once for a producer's epoch and queue.",
        Scope.WRITE,
        answers={200: CommitResponse},
        body=CommitBody,
        problems=(409, 413, 415, 429, 503, 507),
        queues=Queues.NAMED,
    ),
    Route(
        "DELETE",
        f"{_BASE}/stages",
        abort_stages,
        "Forget what was staged for a producer's epoch.",
        Scope.WRITE,
        answers={200: AbortResponse},
        query=(PRODUCER, EPOCH, WRITE, OF_QUEUE),
        problems=(503,),
        queues=Queues.NAMED,
    ),
)
