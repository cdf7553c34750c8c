"""Queues and what can be set on them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

NAME_CHARACTERS_MAX = 255
"""Of a queue, a partition, a group, a namespace or a task; and of a transaction id."""
ERROR_CHARACTERS_MAX = 10_000
"""What is kept of a consumer's error. A longer one is cut, because the outcome matters more than its text."""

DEFAULT_PARTITION = "Default"
DEFAULT_GROUP = "__QUEUE_MODE__"


class OptionsRefused(ValueError):
    """Options that no queue can have; `faults` says for each one what is wrong with it."""

    def __init__(self, faults: list[str]) -> None:
        super().__init__("; ".join(faults))
        self.faults = faults


@dataclass(frozen=True, slots=True)
class QueueOptions:
    """What `configure` sets; `OPTIONS` says what each does. The names on the wire are Queen's; each is enforced."""

    lease_seconds: int = 300
    retry_limit: int = 3
    retry_delay_ms: int = 1000
    priority: int = 0
    delayed_processing_seconds: int = 0
    window_buffer_seconds: int = 0
    max_size: int = 0
    retention_seconds: int = 0
    completed_retention_seconds: int = 0
    retention_enabled: bool = True
    dlq_after_max_retries: bool = True
    max_wait_seconds: int = 0
    encryption_enabled: bool = False
    dead_letter_queue: bool = True
    ttl_seconds: int = 0

    @property
    def kept_seconds(self) -> int:
        """How old a message may become before it is removed, finished or not; 0 for any age."""
        limits = (self.ttl_seconds, self.retention_seconds if self.retention_enabled else 0)
        return min(filter(None, limits), default=0)

    @property
    def completed_kept_seconds(self) -> int:
        """How old a message may become that every group has finished; 0 for any age."""
        return self.completed_retention_seconds if self.retention_enabled else 0

    @property
    def is_age_limited(self) -> bool:
        """Whether its age decides if a message is delivered."""
        return bool(self.max_wait_seconds or self.ttl_seconds)

    @property
    def attempts_max(self) -> int:
        return self.retry_limit + 1


@dataclass(frozen=True, slots=True)
class QueueOption:
    """An option by its name on the wire: the field of `QueueOptions`, its bounds, and what its reference says."""

    field: str
    kind: type
    highest: int
    unit: str
    about: str
    lowest: int = 0


_DAYS_100_YEARS = 36_525
_SECONDS_MAX = _DAYS_100_YEARS * 86_400
OPTIONS = {
    "leaseTime": QueueOption(
        "lease_seconds",
        int,
        _SECONDS_MAX,
        "seconds",
        "How long a popped message is its consumer's, unless the consumer answers or extends the lease.",
        lowest=1,
    ),
    "retryLimit": QueueOption(
        "retry_limit",
        int,
        1_000_000,
        "",
        "How often a message is delivered again; after `retryLimit + 1` attempts it is a dead letter.",
    ),
    "retryDelay": QueueOption(
        "retry_delay_ms",
        int,
        _SECONDS_MAX * 1000,
        "milliseconds",
        "How long a failed message waits before it is delivered again.",
    ),
    "priority": QueueOption("priority", int, 1_000_000, "", "Of queues that one pop covers, the higher goes first."),
    "delayedProcessing": QueueOption(
        "delayed_processing_seconds", int, _SECONDS_MAX, "seconds", "A message is delivered only when it is this old."
    ),
    "windowBuffer": QueueOption(
        "window_buffer_seconds",
        int,
        _SECONDS_MAX,
        "seconds",
        "A partition is delivered only when its newest message is this old.",
    ),
    "maxSize": QueueOption(
        "max_size", int, 1 << 53, "messages", "How many may wait; a push beyond it is refused with 429. 0: any number."
    ),
    "retentionSeconds": QueueOption(
        "retention_seconds",
        int,
        _SECONDS_MAX,
        "seconds",
        "Messages older than this are removed, finished or not. 0: never.",
    ),
    "completedRetentionSeconds": QueueOption(
        "completed_retention_seconds",
        int,
        _SECONDS_MAX,
        "seconds",
        "Messages older than this are removed once every group has finished them. 0: never.",
    ),
    "retentionEnabled": QueueOption("retention_enabled", bool, 1, "", "False: the two above remove nothing."),
    "dlqAfterMaxRetries": QueueOption(
        "dlq_after_max_retries",
        bool,
        1,
        "",
        "False: messages that used up their attempts are dropped, and counted as such; those that a consumer declares "
        "dead (`status: dlq`) are kept.",
    ),
    "maxWaitTimeSeconds": QueueOption(
        "max_wait_seconds",
        int,
        _SECONDS_MAX,
        "seconds",
        "A message that waited longer before its first delivery becomes a dead letter. 0: never.",
    ),
    "encryptionEnabled": QueueOption(
        "encryption_enabled",
        bool,
        1,
        "",
        "Payloads are sealed with the server's key: see [Encryption](../guides/encryption.md).",
    ),
    "deadLetterQueue": QueueOption(
        "dead_letter_queue",
        bool,
        1,
        "",
        "False: the queue keeps no dead letters at all; what would become one is dropped, and counted as such.",
    ),
    "ttl": QueueOption(
        "ttl_seconds",
        int,
        _SECONDS_MAX,
        "seconds",
        "Time to live: an older message is delivered no more, to no group and however often it was before, and removed "
        "with the next retention; no dead letter is kept of it. `retentionEnabled` does not switch it off. 0: never.",
    ),
}


def options_from_wire(given: Mapping[str, object]) -> QueueOptions:
    """Read options by their names on the wire. Those absent have their defaults; all faults are raised at once."""
    values: dict[str, object] = {}
    faults: list[str] = []
    for name, value in given.items():
        option = OPTIONS.get(name)
        if option is None:
            faults.append(f"options.{name}: unknown; known are {', '.join(OPTIONS)}")
        elif option.kind is bool and not isinstance(value, bool):
            faults.append(f"options.{name}: {value!r} is not true or false")
        elif option.kind is int and not _is_whole(value, option.lowest, option.highest):
            faults.append(f"options.{name}: {value!r} is not a whole number from {option.lowest} to {option.highest}")
        else:
            values[option.field] = option.kind(value)  # 30.0 becomes 30
    if faults:
        raise OptionsRefused(faults)
    return QueueOptions(**values)  # type: ignore[arg-type]  # each value was checked against its option's kind


def options_to_wire(options: QueueOptions) -> dict[str, int | bool]:
    return {name: getattr(options, option.field) for name, option in OPTIONS.items()}


def _is_whole(value: object, lowest: int, highest: int) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return value == value // 1 and lowest <= value <= highest


@dataclass(frozen=True, slots=True)
class Queue:
    """A queue as it stands."""

    name: str
    namespace: str = ""
    task: str = ""
    options: QueueOptions = QueueOptions()
    created_us: int = 0


def namespace_and_task_of(queue: str) -> tuple[str, str]:
    """What a queue that is made by its first push belongs to: its name up to the first dot, and the rest."""
    namespace, _, task = queue.partition(".")
    return (namespace, task) if task else ("", "")
