"""What source and sink ask of a server: bounds of a queue, rows of a range, stages, their commit, a group's cursor.

Rows come as an Arrow IPC stream. Its end marker is how a whole answer is distinguished from one whose server died: an
answer without it counts as broken, and reading goes on behind the last row that came. So each row comes once.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Sequence
from typing import Any
from urllib.parse import quote, urlencode

import pyarrow as pa

from forebay.errors import Permanent
from forebay.model.body_formats import ARROW_STREAM, END_OF_STREAM
from forebay.spark.positions import Bounds, Position, SeqRange
from forebay.spark.server_calls import Exchange, ServerCalls, ServerRefused

REMOVED_UP_TO = "removedUpTo"
NEW_CHECKPOINT = "Start with a new checkpoint, or set failOnDataLoss=false to read it from its first message"
_log = logging.getLogger(__name__)


REMEDY = (
    "Set failOnDataLoss=false to go on without them. Or leave them behind: a stream by a new checkpoint, a flow on "
    "parcels by cancelling the parcel"
)


class MessagesGone(Permanent):
    """Messages that the query was to read are no longer kept. `gone` says where they were."""

    def __init__(self, queue: str, gone: SeqRange) -> None:
        super().__init__(
            f"messages {gone.start}-{gone.end - 1} of queue {queue!r} are gone: retention removed them before they "
            f"were read; the oldest that may be kept is {gone.end}",
            remedy=REMEDY,
        )
        self.gone = gone


class MessagesMissing(Permanent):
    """Some of the messages between two seqs are gone, others may be there: removed by retention, or lost."""

    def __init__(self, queue: str, gone: SeqRange) -> None:
        super().__init__(
            f"messages of queue {queue!r} between seq {gone.start} and {gone.end - 1} are gone: before the query read "
            "them, retention removed them or they were lost",
            remedy=REMEDY,
        )
        self.gone = gone


class QueueIsAnother(Permanent):
    """The queue of that name is not the one that the query has read: it was deleted and made again, or renamed."""


class _CutShort(OSError):
    """The answer ended before its end marker."""


class Queue:
    """One queue at the servers."""

    def __init__(self, calls: ServerCalls, name: str) -> None:
        self._calls = calls
        self.name = name
        self._path = f"/api/v1/arrow/queues/{quote(name, safe='')}"

    def bounds(self, position: Position | None = None, partitions: Sequence[str] = ()) -> Bounds:
        """What the queue holds, where the position's time is in it, and what is gone of the partitions."""
        parameters = [("time", position.time)] if position and position.time else []
        words = urlencode([*parameters, *(("partition", name) for name in partitions)])
        query = f"?{words}" if words else ""
        try:
            response = self._calls.request("GET", f"{self._path}/range{query}")
        except ServerRefused as refused:
            if refused.code != "unknown_queue":
                raise
            raise Permanent(
                f"no queue {self.name!r}", remedy="A queue is made by its first push, or by configure"
            ) from refused
        return Bounds(
            response["firstSeq"],
            response["nextSeq"],
            response.get("seqAtTime"),
            response.get("bytes"),
            response.get("identity"),
            response.get("removedSeq", 0),
            tuple(SeqRange(span["firstSeq"], span["lastSeq"] + 1) for span in response.get("lost", ())),
        )

    def hold(self, reader: str, seq: int, seconds: float) -> bool:
        """Keep retention from removing what is finished and not read yet; whether it was kept from it until now."""
        body = json.dumps({"seq": seq, "seconds": seconds}).encode()
        response = self._calls.request("POST", f"{self._path}/readers/{quote(reader, safe='')}", body)
        return bool(response["wasHeld"])

    def batches(
        self, span: SeqRange, query: Sequence[tuple[str, str]] = (), *, is_loss_fatal: bool = True
    ) -> Iterator[pa.RecordBatch]:
        """The rows of the range in seq order. Goes on where it stopped when a server breaks in the middle."""
        patience = self._calls.patience()
        next_seq = span.start
        query = list(query)
        while next_seq < span.end:
            try:
                with self._calls.open("GET", self._range_path(next_seq, span.end, query)) as exchange:
                    for batch in _received(exchange):
                        if batch.num_rows:
                            next_seq = batch.column("seq")[-1].as_py() + 1
                            yield batch
                        # After the yield: the time that Spark takes over a batch is not the server's fault.
                        patience.progress()
                next_seq = span.end
            except ServerRefused as refused:
                if refused.code == "range_incomplete":
                    self._tell_missing(refused, is_loss_fatal)
                    query = [(name, value) for name, value in query if name != REMOVED_UP_TO]
                    continue
                next_seq = self._after_what_is_gone(refused, next_seq, span.end, is_loss_fatal)
            except Exception as fault:
                if not self._calls.is_retried(fault):
                    raise
                self._calls.give_up_on_this_server()
                patience.wait(f"reading {self.name!r} from seq {next_seq}", fault)

    def _range_path(self, start: int, end: int, query: Sequence[tuple[str, str]]) -> str:
        return f"{self._path}?{urlencode([('from', str(start)), ('to', str(end - 1)), *query])}"

    def _tell_missing(self, refused: ServerRefused, is_loss_fatal: bool) -> None:
        gone = SeqRange(refused.problem["missingFrom"], refused.problem["missingTo"] + 1)
        if is_loss_fatal:
            raise MessagesMissing(self.name, gone) from refused
        _log.warning(
            "queue %r: messages between %d and %d are gone: %s",
            self.name,
            gone.start,
            gone.end - 1,
            refused,
            extra={"action": "range_gone"},
        )

    def _after_what_is_gone(self, refused: ServerRefused, start: int, end: int, is_loss_fatal: bool) -> int:
        if refused.code == "queue_replaced" or (refused.code == "unknown_queue" and not is_loss_fatal):
            response = f"messages {start}-{end - 1} of queue {self.name!r} are gone: {refused.detail}"
            if is_loss_fatal:
                raise QueueIsAnother(response, remedy=NEW_CHECKPOINT) from refused
            _log.warning("%s: they were skipped", response, extra={"action": "range_skipped"})
            return end
        if refused.status != 410 or not isinstance(refused.problem.get("firstSeq"), int):
            raise refused
        first_kept = refused.problem["firstSeq"]
        if first_kept <= start:
            raise refused
        gone = SeqRange(start, min(first_kept, end))
        if is_loss_fatal:
            raise MessagesGone(self.name, gone) from refused
        _log.warning(
            "queue %r: messages %d-%d are gone and were skipped",
            self.name,
            gone.start,
            gone.end - 1,
            extra={"action": "range_skipped"},
        )
        return gone.end

    # --- the way in ---

    def stage(self, body: pa.Buffer, producer: str, epoch: str, part: str, write: str = "") -> str:
        """Send rows; they are durable but not visible. The stage's id is what `commit` wants."""
        query = urlencode({"producer": producer, "epoch": epoch, "part": part, "write": write})
        response = self._calls.request("POST", f"{self._path}?{query}", memoryview(body), ARROW_STREAM)
        return str(response["stage"])

    def commit(self, producer: str, epoch: str, stages: Sequence[str], write: str = "") -> dict[str, Any]:
        """Make the stages messages of this queue, all at once, and only once for the names."""
        names = {"producer": producer, "epoch": epoch, "write": write, "queue": self.name}
        body = json.dumps({**names, "stages": list(stages)})
        return self._calls.request("POST", "/api/v1/arrow/commit", body.encode())  # type: ignore[no-any-return]

    def abort(self, producer: str, epoch: str, write: str = "") -> None:
        query = urlencode({"producer": producer, "epoch": epoch, "write": write, "queue": self.name})
        self._calls.request("DELETE", f"/api/v1/arrow/stages?{query}")

    # --- groups ---

    def seek(self, group: str, seq: int, partitions: Sequence[str] = ()) -> None:
        """Let the group's cursor stand before `seq`, as a reader does that says with every batch how far it is."""
        path = f"/api/v1/consumer-groups/{quote(group, safe='')}/queues/{quote(self.name, safe='')}"
        places = [f"{path}/partitions/{quote(name, safe='')}" for name in partitions] or [path]
        for place in places:
            self._calls.request("POST", f"{place}/seek", json.dumps({"seq": seq, "follow": True}).encode())


def _received(exchange: Exchange) -> Iterator[pa.RecordBatch]:
    """The batches of an answer; raises `_CutShort` if it ends without the end marker."""
    body = _Body(exchange)
    try:
        with pa.ipc.open_stream(pa.PythonFile(body, mode="r")) as reader:
            yield from reader
    except pa.ArrowInvalid as fault:
        # What Arrow says about half a message is no news: the server went away in the middle of it.
        if body.is_at_end and not body.is_whole:
            raise _CutShort("the answer was cut short") from fault
        raise
    if not body.is_whole:
        raise _CutShort("the answer was cut short")


class _Body:
    """The answer as a file for Arrow that remembers its last bytes."""

    closed = False

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange
        self._tail = b""
        self.is_at_end = False

    @property
    def is_whole(self) -> bool:
        return self._tail == END_OF_STREAM

    def read(self, size: int = -1) -> bytes:
        found = self._exchange.read(size)
        self.is_at_end = self.is_at_end or (size != 0 and not found) or len(found) < size
        self._tail = (self._tail + found[-8:])[-8:]
        return found

    def readable(self) -> bool:
        return True

    def close(self) -> None:
        self.closed = True
