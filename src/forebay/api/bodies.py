"""What requests carry: one struct per body, decoded in one step, and the checks that a type cannot express.

Null counts as absent, because Queen's clients send it for what their user left out. Members that are not known are
ignored, except where ignoring one would break a promise (`TransactionBody`).
"""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Sequence
from functools import lru_cache
from operator import attrgetter
from typing import Annotated, Any, Literal, TypeVar, cast

import msgspec
from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from forebay.api.parameters import checked_name
from forebay.api.problems import Problem, not_here, wrong
from forebay.broker.delivery import COMPLETED, DEAD, FAILED, RETRY
from forebay.model.ids import minted_id, minted_ids
from forebay.model.push_run import PushRun, neighbours
from forebay.model.queue import DEFAULT_PARTITION, NAME_CHARACTERS_MAX
from forebay.model.text_block import TextBlock

ITEMS_MAX = 10_000
PAYLOAD_BYTES_MAX = 10 * 1024 * 1024 + 64 * 1024
"""10 MiB, and a margin for what the producer's library puts around a body of 10 MiB."""
SECONDS_MAX = 366 * 86_400

_Name = Annotated[str, Meta(min_length=1, max_length=NAME_CHARACTERS_MAX)]
_Maybe = _Name | None
_Text = Annotated[str, Meta(max_length=NAME_CHARACTERS_MAX)] | None

AckStatus = Literal["completed", "success", "failed", "retry", "dlq"]
ANSWER_OF = {"completed": COMPLETED, "success": COMPLETED, "failed": FAILED, "retry": RETRY, "dlq": DEAD}


class PushedMessage(Struct, rename="camel", gc=False):
    queue: _Name
    payload: Raw
    partition: _Maybe = None
    transaction_id: _Maybe = None
    trace_id: _Text = None
    namespace: _Text = None
    task: _Text = None
    encoding: Literal["json", "base64"] | None = None
    """`base64`: the payload is a string that stands for bytes, and is stored as those."""


class PushBody(Struct, rename="camel"):
    items: Annotated[list[PushedMessage], Meta(max_length=ITEMS_MAX)]
    buffer_ms: Annotated[int, Meta(ge=0, le=3_600_000)] | None = None
    buffer_max: Annotated[int, Meta(ge=1, le=1_000_000)] | None = None


class AckBody(Struct, rename="camel", gc=False):
    transaction_id: _Name
    partition_id: _Name
    status: AckStatus = "completed"
    error: str | None = None
    lease_id: _Text = None
    consumer_group: _Maybe = None


class AckBatchBody(Struct, rename="camel"):
    acknowledgments: Annotated[list[AckBody], Meta(max_length=ITEMS_MAX)]
    consumer_group: _Maybe = None


class AckOperation(AckBody, rename="camel", tag_field="type", tag="ack"):
    pass


class PushOperation(Struct, rename="camel", tag_field="type", tag="push"):
    items: Annotated[list[PushedMessage], Meta(max_length=ITEMS_MAX)]


class TransactionBody(Struct, rename="camel"):
    operations: Annotated[list[AckOperation | PushOperation], Meta(min_length=1, max_length=ITEMS_MAX)]
    required_leases: Annotated[list[_Name], Meta(max_length=ITEMS_MAX)] | None = None
    kv: Raw | UnsetType = UNSET
    timers: Raw | UnsetType = UNSET


class CompleteBody(Struct, rename="camel"):
    lease_ids: Annotated[list[_Name], Meta(max_length=ITEMS_MAX)]


class ExtendBody(Struct):
    seconds: Annotated[int, Meta(ge=1, le=SECONDS_MAX)] = 60


class ConfigureBody(Struct):
    queue: _Name
    namespace: _Text = None
    task: _Text = None
    options: dict[str, Any] | None = None


class SubscriptionBody(Struct, rename="camel"):
    subscription_timestamp: Annotated[str, Meta(max_length=64)]


class SeekBody(Struct, rename="camel"):
    to_end: bool | None = None
    timestamp: Annotated[str, Meta(max_length=64)] | None = None
    seq: Annotated[int, Meta(ge=0, le=1 << 53)] | None = None
    follow: bool = False
    """A reader that is no consumer says with it, batch by batch, how far it is: see `audit_trail`."""


class BuryBody(Struct):
    error: str | None = None


class DeadLetterBody(Struct, rename="camel"):
    """Which dead letters. At least a queue, or `all`."""

    queue: _Maybe = None
    consumer_group: _Maybe = None
    partition: _Maybe = None
    transaction_id: _Maybe = None
    from_: Annotated[str, Meta(max_length=64)] | None = msgspec.field(default=None, name="from")
    to: Annotated[str, Meta(max_length=64)] | None = None
    all: bool = False


class ReplayBody(DeadLetterBody, rename="camel"):
    """Which dead letters, and for whom: each for the group in which it died, or for every group."""

    to_all_groups: bool = False


class TraceBody(Struct, rename="camel"):
    transaction_id: _Name
    partition_id: _Name
    data: Raw
    consumer_group: _Maybe = None
    event_type: _Text = None
    trace_names: Annotated[list[_Name], Meta(max_length=100)] | _Name | None = None


class MaintenanceBody(Struct):
    enabled: bool


_BINARY_BODIES = (b"QPB1", b"QTB1")
"""How Queen's binary pushes and transactions begin."""
_WITH_BINARY_FORM = (PushBody, TransactionBody)
"""Everywhere else such a body is no more than a body that is not JSON."""

Body = TypeVar("Body", bound=Struct)


@lru_cache(maxsize=64)
def _decoder(kind: type[Body]) -> msgspec.json.Decoder[Body]:
    return msgspec.json.Decoder(kind)


def decoded(kind: type[Body], text: bytes | memoryview, *, is_optional: bool = False) -> Body:
    """Read a body, or raise the 400 that names the field."""
    if is_optional and not text:
        text = b"{}"
    # What a view is of may be more than the body: what is not found in all of it is not in the body either.
    around: bytes = text.obj if isinstance(text, memoryview) else text  # type: ignore[assignment]  # views are of bytes
    # A payload is passed over and not decoded, so no other check would notice bytes that are no UTF-8 in it.
    try:
        if not around.isascii():
            bytes(text).decode()
        found: Body = _decoder(kind).decode(text)
        # One character is found thirty times as fast as six.
        if b"\\" in around and b"\\u0000" in around:
            refuse_nul(found, "")
    except UnicodeDecodeError as error:
        raise wrong(None, f"the body is not UTF-8 at byte {error.start}") from error
    except RecursionError as error:
        raise wrong(None, "the JSON is nested too deeply") from error
    except msgspec.ValidationError as error:
        raise misread(error) from error
    except msgspec.DecodeError as error:
        if kind in _WITH_BINARY_FORM:
            refuse_binary(text)
        raise wrong(None, f"the body is not JSON: {error}" if text else "the body is empty") from error
    return found


def refuse_binary(text: bytes | memoryview) -> None:
    """Say of a body in Queen's own form that it is known, and not known here."""
    if bytes(text[:4]) in _BINARY_BODIES:
        raise not_here("Queen's binary bodies are not known here; make the client without binary_push")


def refuse_nul(value: object, place: str) -> None:
    """No name, id or text may hold a NUL: PostgreSQL has none. Payloads are `Raw` and may."""
    if isinstance(value, str):
        if "\0" in value:
            raise wrong(place, "holds a NUL character")
    elif isinstance(value, Struct):
        for name, wire_name in _fields(type(value)):
            refuse_nul(getattr(value, name), f"{place}.{wire_name}" if place else wire_name)
    elif isinstance(value, list | tuple):
        _refuse_nul_in_list(list(value), place)
    elif isinstance(value, dict):
        for key, each in value.items():
            refuse_nul(key, place)
            refuse_nul(each, f"{place}.{key}")


def _refuse_nul_in_list(values: list[Any], place: str) -> None:
    """There may be ten thousand, and nearly always none of them holds one: each field is looked at in all at once."""
    if not values:
        return
    kind = type(values[0])
    if issubclass(kind, Struct) and all(type(value) is kind for value in values):
        columns = [list(map(attrgetter(name), values)) for name, _ in _fields(kind)]
    else:
        columns = [values]
    if all(_is_free_of_nul(column) for column in columns):
        return
    for index, each in enumerate(values):
        refuse_nul(each, f"{place}[{index}]")


def _is_free_of_nul(values: list[Any]) -> bool:
    """Only if there is nothing but texts, payloads, numbers and gaps among them."""
    kinds = set(map(type, values))
    if not kinds <= _FLAT_KINDS:
        return False
    return str not in kinds or "\0" not in "".join([value for value in values if type(value) is str])


_FLAT_KINDS = {str, Raw, type(None), int, float, bool, UnsetType}


@lru_cache(maxsize=64)
def _fields(kind: type[Struct]) -> list[tuple[str, str]]:
    return [(field.name, field.encode_name) for field in msgspec.structs.fields(kind)]


_PLACE = re.compile(r"(?P<what>.*?)(?: - at `(?:key in )?\$\.?(?P<where>.*)`)?", re.DOTALL)
_MISSING = re.compile(r"Object missing required field `(?P<name>.*)`")
_UNKNOWN = re.compile(r"Object contains unknown field `(?P<name>.*)`")


def misread(error: msgspec.ValidationError, place: str = "") -> Problem:
    """Turn `Expected `str`, got `int` - at `$.items[3].queue`` into a problem with the field `items[3].queue`.

    `place` is where in the body the value stands that was read.
    """
    message = str(error)
    found = _PLACE.fullmatch(message)
    what, where = (found["what"], found["where"] or "") if found else (message, "")
    where = f"{place}.{where}" if place and where else place or where
    for found_in, detail in ((_MISSING, "is missing"), (_UNKNOWN, "is not known")):
        if named := found_in.fullmatch(what):
            return wrong(f"{where}.{named['name']}" if where else named["name"], detail)
    return wrong(where or None, what[0].lower() + what[1:])


def push_runs(
    messages: Sequence[PushedMessage], place: str = "items", *, body_bytes: int = PAYLOAD_BYTES_MAX + 1
) -> list[PushRun]:
    """Messages as the store takes them. `body_bytes`: no payload is larger than that."""
    if not messages:
        return []
    if len(messages) == 1:
        return [_lone_run(messages[0], place, body_bytes)]
    partitions = _check_names(messages, place)
    given = [message.transaction_id for message in messages]
    payloads = [message.payload for message in messages]
    if body_bytes > PAYLOAD_BYTES_MAX:
        _check_sizes(payloads, place)
    missing = given.count(None)
    minted = minted_ids(missing)
    if missing in (0, len(messages)) and not _has_more(messages):
        ids = minted or cast(list[str], given)
        return [PushRun(messages[0].queue, partitions, TextBlock.of(payloads), ids, missing > 0)]
    next_id = iter(minted)
    stored = _stored(messages, place)
    own_ids = [transaction_id or next(next_id) for transaction_id in given]
    traces = [message.trace_id or "" for message in messages]
    keys = zip(map(_SHARED, messages), [transaction_id is None for transaction_id in given], strict=True)
    return [
        PushRun(
            queue,
            partitions[places],
            TextBlock.of(stored[places]),
            own_ids[places],
            is_minted,
            encoding == "base64",
            traces[places],
            namespace=namespace or "",
            task=task or "",
        )
        for ((queue, encoding, namespace, task), is_minted), places in neighbours(keys)
    ]


_SHARED = attrgetter("queue", "encoding", "namespace", "task")
"""What the messages of a run have in common."""


def _lone_run(message: PushedMessage, place: str, body_bytes: int) -> PushRun:
    """A message that comes alone, as most do: without the lists that many messages are looked at by."""
    queue, partition = message.queue, message.partition or DEFAULT_PARTITION
    checked_name(queue, f"{place}[0].queue")
    if partition is not DEFAULT_PARTITION:
        checked_name(partition, f"{place}[0].partition")
    if body_bytes > PAYLOAD_BYTES_MAX:
        _check_sizes([message.payload], place)
    given = message.transaction_id
    payload = bytes(message.payload) if message.encoding is None else _stored([message], place)[0]
    return PushRun(
        queue,
        (partition,),
        TextBlock(payload, (len(payload),)),
        (given or minted_id(),),
        given is None,
        message.encoding == "base64",
        (message.trace_id,) if message.trace_id else (),
        (),
        message.namespace or "",
        message.task or "",
    )


def _has_more(messages: Sequence[PushedMessage]) -> bool:
    """Whether not all of them are for one queue, or a message has something that most have not."""
    queue = messages[0].queue
    # A list, because to stop early takes longer.
    return any([m.queue != queue or m.trace_id or m.namespace or m.task or m.encoding for m in messages])  # noqa: C419


def _stored(messages: Sequence[PushedMessage], place: str) -> list[bytes]:
    """Payloads as they are kept: those that are encoded as base64 are bytes again."""
    return [
        bytes(message.payload)
        if message.encoding != "base64"
        else _bytes_of(message.payload, f"{place}[{index}].payload")
        for index, message in enumerate(messages)
    ]


def _bytes_of(payload: Raw, field: str) -> bytes:
    try:
        return b64decode(msgspec.json.decode(payload, type=str), validate=True)
    except (msgspec.DecodeError, ValueError) as error:
        raise wrong(field, f"is no base64: {error}") from error


def _check_sizes(payloads: Sequence[Raw], place: str) -> None:
    if max(map(len, payloads)) > PAYLOAD_BYTES_MAX:
        sizes = [len(payload) for payload in payloads]
        index = next(index for index, size in enumerate(sizes) if size > PAYLOAD_BYTES_MAX)
        detail = f"has {sizes[index]} bytes, allowed are {PAYLOAD_BYTES_MAX}"
        raise Problem(413, detail, code="too_large", field=f"{place}[{index}].payload")


def _check_names(messages: Sequence[PushedMessage], place: str) -> list[str]:
    """Many messages, few names: each name is looked at once, where it first stands. Returns the partitions."""
    seen: set[str] = set()
    queues, partitions = [message.queue for message in messages], [message.partition for message in messages]
    is_one_place = queues.count(queues[0]) == len(queues) and partitions.count(partitions[0]) == len(queues)
    for index, message in enumerate(messages[:1] if is_one_place else messages):
        for field, name in (("queue", message.queue), ("partition", message.partition)):
            if name is not None and name not in seen:
                seen.add(checked_name(name, f"{place}[{index}].{field}"))
    if is_one_place:
        # One object and not many that are alike: what compares them is done at once.
        return [partitions[0] or DEFAULT_PARTITION] * len(partitions)
    return [partition or DEFAULT_PARTITION for partition in partitions]
