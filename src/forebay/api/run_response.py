"""The answer to a push of a run (`push_run`) of which all was new, put together from text.

It is what the structs of `answers` say (`PushedItem`), each field of each message. But such a run has nearly everything
in common: of an id only the last two digits differ from its neighbour's. So nothing is made for a single message; their
pieces are put side by side, column by column, and joined once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache

from forebay.api.responses import message_ids
from forebay.broker.messages import QUEUED, Pushed
from forebay.model.ids import CountedIds
from forebay.model.push_run import PushRun

_PAIRS = [f"{number:02d}" for number in range(100)]
_PLAIN = bytes(character for character in range(0x20, 0x7F) if character not in b'"\\')
"""What stands in JSON for itself."""
_KEPT_MESSAGES_MAX = 1000
_Parts = Iterable[tuple[str, Sequence[str]]]
"""What neighbours have in common at their start, and how each of them goes on."""


def run_answer(run: PushRun, pushed: Pushed) -> bytes | None:
    """None where ids cannot be put into JSON as they are."""
    count, partition_id = pushed.count, pushed.partition_id
    seqs = range(pushed.seq, pushed.seq + count)
    ids = _parts(run.transaction_ids)
    if type(run.transaction_ids) is not CountedIds and run.id_block().data.translate(None, _PLAIN):
        return None
    own_ids = _parts(message_ids(run.queue, seqs))
    common = f'","partitionId":"{partition_id}","partition_id":"{partition_id}","seq":'
    endings, starts, more_starts = _columns(ids, "", '","transaction_id":"')
    own_endings, own_starts, more_own_starts = _columns(own_ids, '","messageId":"', '","message_id":"')
    seq_endings, seq_starts = _columns(_decimal_parts(seqs), common)
    columns: list[Sequence[str]] = [
        _beginnings(count) if count <= _KEPT_MESSAGES_MAX else _beginnings.__wrapped__(count),
        *(starts, endings, more_starts, endings),
        *(own_starts, own_endings, more_own_starts, own_endings),
        *(seq_starts, seq_endings),
        [f',"receipt":"{pushed.receipt}","traceId":null,"trace_id":null}}'] * count,
    ]
    pieces = [""] * (len(columns) * count)
    for place, column in enumerate(columns):
        pieces[place :: len(columns)] = column
    return f"[{''.join(pieces)}]".encode()


@lru_cache(maxsize=64)
def _beginnings(count: int) -> list[str]:
    """Of each message's object, up to its first id."""
    return [f'{"," if index else ""}{{"index":{index},"status":"{QUEUED}","transactionId":"' for index in range(count)]


def _parts(ids: Sequence[str]) -> _Parts:
    return ids.parts() if type(ids) is CountedIds else [("", ids)]


def _decimal_parts(numbers: range) -> _Parts:
    parts: list[tuple[str, Sequence[str]]] = []
    first = numbers.start
    while first < numbers.stop:
        high, low = divmod(first, len(_PAIRS))
        endings = _PAIRS[low : low + numbers.stop - first]
        parts.append((str(high), endings) if high else ("", [str(int(ending)) for ending in endings]))
        first += len(endings)
    return parts


def _columns(parts: _Parts, *before: str) -> list[list[str]]:
    """How each of them ends; and how they begin, behind each of the texts that stand before them."""
    columns: list[list[str]] = [[] for _ in range(1 + len(before))]
    for start, endings in parts:
        columns[0] += endings
        for column, text in zip(columns[1:], before, strict=True):
            column += [text + start] * len(endings)
    return columns
