"""Queues and what can be set on them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

NAME_CHARACTERS_MAX = 255
"""Of a queue, a partition, a group, a namespace or a task; and of a transaction id."""

DEFAULT_PARTITION = "Default"
DEFAULT_GROUP = "__QUEUE_MODE__"


class OptionsRefused(ValueError):
    """Options that no queue can have; `faults` says for each one what is wrong with it."""

    def __init__(self, faults: list[str]) -> None:
        super().__init__("; ".join(faults))
        self.faults = faults


@dataclass(frozen=True, slots=True)
class QueueOptions:
    """What `configure` sets. The names on the wire are Queen's; every one of them is enforced."""

    lease_seconds: int = 300
    retry_limit: int = 3
    """How often a message is delivered again; it is delivered `retry_limit + 1` times at the most."""
    retry_delay_ms: int = 1000
    priority: int = 0
    """Of queues that one pop covers, the higher goes first."""
    delayed_processing_seconds: int = 0
    """A message is delivered only when it is this old."""
    window_buffer_seconds: int = 0
    """A partition is delivered only when its newest message is this old."""
    max_size: int = 0
    """Messages that may wait in the queue, 0 for any number. A push beyond it is refused."""
    retention_seconds: int = 0
    """Messages older than this are removed, 0 for never."""
    completed_retention_seconds: int = 0
    """Messages that every group has finished and that are older than this are removed, 0 for never."""
    retention_enabled: bool = True
    dlq_after_max_retries: bool = True
    """False: a message that used up its attempts is dropped, and counted as such."""
    max_wait_seconds: int = 0
    """A message that waited longer than this becomes a dead letter instead of being delivered, 0 for never."""
    encryption_enabled: bool = False
    dead_letter_queue: bool = True
    """False: the queue keeps no dead letters at all; what would become one is dropped, and counted as such."""
    ttl_seconds: int = 0
    """A message that is older than this is delivered no more, and removed by the next retention; 0 for never."""

    @property
    def kept_seconds(self) -> int:
        """How old a message may become before it is removed, whoever has finished it or not; 0 for any age."""
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
class _Option:
    field: str
    kind: type
    highest: int


_DAYS_100_YEARS = 36_525
_SECONDS_MAX = _DAYS_100_YEARS * 86_400
_OPTIONS = {
    "leaseTime": _Option("lease_seconds", int, _SECONDS_MAX),
    "retryLimit": _Option("retry_limit", int, 1_000_000),
    "retryDelay": _Option("retry_delay_ms", int, _SECONDS_MAX * 1000),
    "priority": _Option("priority", int, 1_000_000),
    "delayedProcessing": _Option("delayed_processing_seconds", int, _SECONDS_MAX),
    "windowBuffer": _Option("window_buffer_seconds", int, _SECONDS_MAX),
    "maxSize": _Option("max_size", int, 1 << 53),
    "retentionSeconds": _Option("retention_seconds", int, _SECONDS_MAX),
    "completedRetentionSeconds": _Option("completed_retention_seconds", int, _SECONDS_MAX),
    "retentionEnabled": _Option("retention_enabled", bool, 1),
    "dlqAfterMaxRetries": _Option("dlq_after_max_retries", bool, 1),
    "maxWaitTimeSeconds": _Option("max_wait_seconds", int, _SECONDS_MAX),
    "encryptionEnabled": _Option("encryption_enabled", bool, 1),
    "deadLetterQueue": _Option("dead_letter_queue", bool, 1),
    "ttl": _Option("ttl_seconds", int, _SECONDS_MAX),
}


def options_from_wire(given: Mapping[str, object]) -> QueueOptions:
    """Read options by their names on the wire. Those absent have their defaults; all faults are told at once."""
    values: dict[str, object] = {}
    faults: list[str] = []
    for name, value in given.items():
        option = _OPTIONS.get(name)
        if option is None:
            faults.append(f"options.{name}: unknown; known are {', '.join(_OPTIONS)}")
        elif option.kind is bool and not isinstance(value, bool):
            faults.append(f"options.{name}: {value!r} is not true or false")
        elif option.kind is int and not _is_whole(value, option.highest):
            faults.append(f"options.{name}: {value!r} is not a whole number from 0 to {option.highest}")
        else:
            values[option.field] = option.kind(value)  # 30.0 becomes 30
    if "lease_seconds" in values and values["lease_seconds"] == 0:
        faults.append("options.leaseTime: 0 is too short, a lease lasts at least 1 second")
    if faults:
        raise OptionsRefused(faults)
    return QueueOptions(**values)  # type: ignore[arg-type]  # each value was checked against its option's kind


def options_to_wire(options: QueueOptions) -> dict[str, int | bool]:
    return {name: getattr(options, option.field) for name, option in _OPTIONS.items()}


def _is_whole(value: object, highest: int) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return value == value // 1 and 0 <= value <= highest


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
