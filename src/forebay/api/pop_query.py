"""What a pop asks for: the parameters of its query."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from forebay.api.exchange import Request
from forebay.api.parameters import Name, Switch, Text, Whole, time_us
from forebay.api.problems import not_here
from forebay.broker.messages import PopRequest
from forebay.model.queue import DEFAULT_GROUP

AUTOPILOT_BATCH = 200
"""What a pop gets whose client leaves the size to the server."""

BATCH = Whole(
    "batch",
    1,
    "Messages at the most, over all partitions together; fewer if their payloads reach 64 MiB.",
    lowest=1,
    highest=10_000,
)
WAIT = Switch("wait", False, "Wait for a message when there is none.")
TIMEOUT = Whole("timeout", 30_000, "How long to wait, in milliseconds.", highest=3_600_000)
GROUP = Name("consumerGroup", None, "The group to pop for; without it, the queue's own.")
AUTO_ACK = Switch("autoAck", False, "Acknowledge on delivery: at most once, nothing to answer.")
PARTITIONS = Whole("partitions", 1, "Claim up to this many partitions under one lease.", lowest=1, highest=10_000)
AUTOPILOT = Switch("autopilot", False, "Let the server choose what is not given of batch and partitions.")
MODE = Text(
    "subscriptionMode",
    "",
    "Where a group that is new to the queue starts. `new` or `new-only`: behind what is there now, and a queue that is "
    "not there yet is made. Anything else, such as `from_beginning`: at the beginning, or at `subscriptionFrom`.",
)
FROM = Text("subscriptionFrom", "", "`now`, or the time from which a new group starts.")
SHAPE = Text(
    "shape",
    "messages",
    "`messages`: a list of messages. `columns`: a list for each of their properties, for less work with many of them.",
    words=("messages", "columns"),
)
PACKED = Switch(
    "packed",
    False,
    "With `columns`: answer the payloads as they are, behind the JSON. The answer is `FBP1`, the length of the JSON (4 "
    "bytes, little-endian), the JSON with `ends` (where each payload ends) in place of `data`, and the payloads.",
)
CONFLATION = Switch("conflation", False, "Queen's delivery of last values alone. Not here: true is answered with 501.")
FRAMES = Switch("frames", False, "Queen's framed answer. Not here: the answer is JSON, which its clients read as well.")
NAMESPACE = Name("namespace", None, "Of the queues to pop from.")
TASK = Name("task", None, "Of the queues to pop from.")

QUERY = (BATCH, WAIT, TIMEOUT, GROUP, AUTO_ACK, PARTITIONS, AUTOPILOT, MODE, FROM, SHAPE, PACKED, CONFLATION, FRAMES)


class Question(NamedTuple):
    """What path and query say. Namespace and task are the route's to fill in."""

    wanted: PopRequest
    is_waiting: bool
    timeout_ms: int
    is_autopilot: bool
    shape: str = "messages"
    """Or `columns`, or `packed`."""


def question_of(request: Request) -> Question:
    query = request.query
    wanted = _request_of(query)
    if request.path:
        queue, *partition = request.path
        wanted = wanted._replace(queue=queue, partition=partition[0] if partition else None)
    return Question(wanted, WAIT.read(query), TIMEOUT.read(query), AUTOPILOT.read(query), _shape(query))


def _request_of(query: Mapping[str, str]) -> PopRequest:
    mode, from_us = _subscription(MODE.read(query), FROM.read(query))
    FRAMES.read(query)
    if CONFLATION.read(query):
        raise not_here("Forebay delivers every message, not the last of each partition alone", CONFLATION.name)
    batch, is_autopilot = BATCH.read(query), AUTOPILOT.read(query)
    return PopRequest(
        group=GROUP.read(query) or DEFAULT_GROUP,
        batch=AUTOPILOT_BATCH if is_autopilot and BATCH.name not in query else batch,
        partitions=PARTITIONS.read(query),
        auto_ack=AUTO_ACK.read(query),
        subscription_mode=mode,
        subscription_from_us=from_us,
    )


def _shape(query: Mapping[str, str]) -> str:
    shape = SHAPE.read(query)
    return "packed" if PACKED.read(query) and shape == "columns" else shape


def _subscription(mode: str, start: str) -> tuple[str, int]:
    if start == "now" or (mode in ("new", "new-only") and not start):
        return "new", 0
    if start:
        return "from", time_us(start, FROM.name)
    return "all", 0
