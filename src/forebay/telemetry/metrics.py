"""Every metric, declared once: its name, what it is, its labels and its help. The reference is made from this table.

Names begin with `forebay_`. Those of the way out have the suffixes that dashboards of metrics-governor know; with
`telemetry.namespace: metrics_governor` they begin with that instead.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

PREFIX = "forebay_"


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric. `suffix` is its name without the prefix; `is_governed`: the prefix can be changed."""

    suffix: str
    type: Literal["counter", "gauge", "histogram"]
    help: str
    labels: tuple[str, ...] = ()
    is_governed: bool = False
    is_common: bool = False
    """Its name is the one that every program's has, without our prefix."""

    @property
    def name(self) -> str:
        return self.suffix if self.is_common else PREFIX + self.suffix


METRICS: dict[str, tuple[Metric, ...]] = {}
"""By the part of Forebay that they are of, in the order of the reference."""


def _counter(suffix: str, text: str, *labels: str) -> Metric:
    return Metric(suffix, "counter", text, labels)


def _gauge(suffix: str, text: str, *labels: str) -> Metric:
    return Metric(suffix, "gauge", text, labels)


def _times(suffix: str, text: str, *labels: str) -> Metric:
    return Metric(suffix, "histogram", text, labels)


def _process(suffix: str, text: str) -> Metric:
    kind: Literal["counter", "gauge"] = "counter" if suffix.endswith("_total") else "gauge"
    return Metric(suffix, kind, text, is_common=True)


def _out(suffix: str, text: str, *labels: str) -> Metric:
    kind: Literal["counter", "gauge"] = "counter" if suffix.endswith(("_total", "rotations", "flushes")) else "gauge"
    return Metric(suffix, kind, text, ("destination", *labels), is_governed=True)


def _how_many(suffix: str, text: str) -> Metric:
    """How many there are now: a gauge, although metrics-governor's name of it ends like a counter's."""
    return Metric(suffix, "gauge", text, ("destination",), is_governed=True)


# the server

HTTP_REQUESTS = _counter(
    "http_requests_total", "Requests answered, by operation and status.", "method", "path", "status"
)
PUSHED = _counter("messages_pushed_total", "Messages accepted by this server.")
POPPED = _counter("messages_popped_total", "Messages delivered by this server.")
ACKNOWLEDGED = _counter("messages_acknowledged_total", "Answers of consumers, by status.", "status")
PUSH_BYTES = _counter("push_bytes_total", "Bytes of push requests, decompressed.")
WAITING_CONSUMERS = _gauge("waiting_consumers", "Long polls that wait for messages.")
REQUEST_MEMORY = _gauge("request_memory_bytes", "Memory that bodies and answers hold.")
REQUEST_MEMORY_WAITING = _gauge("request_memory_waiting", "Requests that wait for memory.")
REQUEST_MEMORY_REFUSED = _counter("request_memory_refused_total", "Requests that waited for memory in vain.")
REQUEST_MEMORY_SLOW = _counter("request_memory_slow_total", "Clients that lost their memory, being slow.")
LOST = _gauge("messages_lost", "Messages accepted and not readable any more, by queue.", "queue")
DISK_FREE = _gauge("disk_free_bytes", "Room on the disks that the server writes to.", "path")
DISK_SIZE = _gauge("disk_size_bytes", "Size of those disks.", "path")
DROPPED = _counter(
    "dropped_messages_total",
    "Messages that this server has given up and of which their queue keeps no dead letter, by reason.",
    "reason",
)
REMOVED = _counter("removed_total", "What this server removed for its age, by kind.", "kind")
CLOCK_JUMPS = _counter("clock_jumps_total", "How often the clock was seen to jump forward.")
MAINTENANCE = _gauge("maintenance", "1 while maintenance is on.", "of")
STAGES = _gauge("stages", "Stages that wait for their commit.")
STAGE_BYTES = _gauge("stage_bytes", "Bytes of the payloads in them.")
STAGES_EXPIRED = _counter("stages_expired_total", "Stages that this server removed, uncommitted in time.")

METRICS["Server"] = (
    HTTP_REQUESTS, PUSHED, POPPED, ACKNOWLEDGED, PUSH_BYTES, WAITING_CONSUMERS, REQUEST_MEMORY, REQUEST_MEMORY_WAITING,
    REQUEST_MEMORY_REFUSED, REQUEST_MEMORY_SLOW, LOST, DISK_FREE, DISK_SIZE, REMOVED, DROPPED, CLOCK_JUMPS, MAINTENANCE,
    STAGES, STAGE_BYTES, STAGES_EXPIRED,
)  # fmt: skip

# queues and groups

QUEUE_DEPTH = _gauge(
    "queue_depth", "Messages that wait for the group furthest behind, or all if there is none.", "queue"
)
QUEUE_OLDEST_MESSAGE = _gauge(
    "queue_oldest_message_seconds",
    "How long ago the oldest message was accepted that a group has not finished.",
    "queue",
)
QUEUE_MESSAGES = _gauge("queue_messages", "Messages kept.", "queue")
QUEUE_MESSAGE_BYTES = _gauge("queue_message_bytes", "Bytes of their payloads.", "queue")
QUEUE_DEAD_LETTERS = _gauge("queue_dead_letters", "Dead letters that are kept.", "queue")
QUEUE_PARTITIONS = _gauge("queue_partitions", "Partitions.", "queue")
QUEUE_ACCEPTED = _counter("queue_messages_accepted_total", "Messages stored, ever.", "queue")
GROUP_WAITING = _gauge("group_waiting_messages", "Messages that wait for the group.", "queue", "group")
GROUP_LAG = _gauge("group_lag_messages", "Messages that it has not finished, waiting or leased.", "queue", "group")
GROUP_LAG_SECONDS = _gauge("group_lag_seconds", "How long ago the oldest of those was accepted.", "queue", "group")
GROUP_LEASED = _gauge("group_leased_messages", "Messages that its consumers have.", "queue", "group")
GROUP_DEAD_LETTERS = _gauge("group_dead_letters", "Dead letters of the group that are kept.", "queue", "group")
QUEUES_IN_OTHER = _gauge("queues_in_other", "Queues without series of their own: they are summed in `other`.")
GROUPS_IN_OTHER = _gauge("groups_in_other", "Groups of those queues.")
QUEUE_FIGURES_AGE = _gauge("queue_figures_age_seconds", "How old the figures of queues and groups are.")
QUEUE_FIGURES_SECONDS = _gauge("queue_figures_seconds", "How long it took to count them.")

METRICS["Queues and groups"] = (
    QUEUE_DEPTH, QUEUE_OLDEST_MESSAGE, QUEUE_MESSAGES, QUEUE_MESSAGE_BYTES, QUEUE_DEAD_LETTERS, QUEUE_PARTITIONS,
    QUEUE_ACCEPTED, GROUP_WAITING, GROUP_LAG, GROUP_LAG_SECONDS, GROUP_LEASED, GROUP_DEAD_LETTERS, QUEUES_IN_OTHER,
    GROUPS_IN_OTHER, QUEUE_FIGURES_AGE, QUEUE_FIGURES_SECONDS,
)  # fmt: skip

# the ledger

LEDGER_ACCEPTED = _gauge("ledger_accepted", "What each stage has accepted: see `GET /api/v1/ledger`.", "stage")
LEDGER_PARTS = _gauge(
    "ledger_parts", "What became of it: the sum of a stage's parts is what it accepted.", "stage", "part"
)
LEDGER_FAULTS = _gauge("ledger_accounts_unbalanced", "What does not add up of queues, groups, flows and send queues.")

METRICS["Ledger"] = (LEDGER_ACCEPTED, LEDGER_PARTS, LEDGER_FAULTS)

# latencies

PUSH_SECONDS = _times("push_seconds", "How long it took until pushed messages were as durable as their receipts say.")
POP_SECONDS = _times("pop_seconds", "How long the store took over a pop, without waiting for messages.")
TIME_IN_QUEUE_SECONDS = _times(
    "time_in_queue_seconds", "How long ago the oldest message of a popped batch was accepted: one per batch."
)
STORE_COMMIT_SECONDS = _times("store_commit_seconds", "How long the store took over work that it commits together.")
LOG_APPEND_SECONDS = _times("log_append_seconds", "How long an append to a commit log took until it was durable.")
LOG_SYNC_SECONDS = _times("log_sync_seconds", "How long the disk took of that, to write and to confirm.")
ACTION_SECONDS = _times(
    "action_seconds", "How long workers had parcels, from a lease to its completion on this server.", "action_class"
)

METRICS["Latencies"] = (
    PUSH_SECONDS, POP_SECONDS, TIME_IN_QUEUE_SECONDS, STORE_COMMIT_SECONDS, LOG_APPEND_SECONDS, LOG_SYNC_SECONDS,
    ACTION_SECONDS,
)  # fmt: skip

# traces

SPANS_WAITING = _gauge("trace_spans_waiting", "Spans that wait to be exported.")
SPANS_SENT = _counter("trace_spans_sent_total", "Spans that the endpoint has taken.")
SPANS_DROPPED = _counter("trace_spans_dropped_total", "Spans for which there was no room, or that were refused.")

METRICS["Traces"] = (SPANS_WAITING, SPANS_SENT, SPANS_DROPPED)

# the process

PROCESS_CPU = _process("process_cpu_seconds_total", "Time of processors that the process has used.")
PROCESS_RESIDENT = _process("process_resident_memory_bytes", "Memory of the process that is in RAM.")
PROCESS_VIRTUAL = _process("process_virtual_memory_bytes", "Addresses that the process has.")
PROCESS_FILES = _process("process_open_fds", "Files, sockets and pipes that are open.")
PROCESS_FILES_MAX = _process("process_max_fds", "How many may be open.")
PROCESS_START = _process("process_start_time_seconds", "When the process started, in seconds since 1970.")
PROCESS_THREADS = _process("process_threads", "Threads of the process.")

METRICS["Process"] = (
    PROCESS_CPU, PROCESS_RESIDENT, PROCESS_VIRTUAL, PROCESS_FILES, PROCESS_FILES_MAX, PROCESS_START, PROCESS_THREADS,
)  # fmt: skip

# buffer files

DB_HEALTHY = _gauge("db_healthy", "1 while the store takes messages.")
BUFFER_BYTES = _gauge("buffer_bytes", "Bytes in buffer files.")
BUFFER_OLDEST = _gauge("buffer_oldest_seconds", "Age of the oldest buffered message.")
BUFFER_HELD = _gauge("buffer_partitions_held", "Partitions with messages in failover.")
BUFFER_FAILED = _gauge("buffer_failed_events", "Buffered messages that the store refuses.")
BUFFER_DAMAGED_FILES = _gauge("buffer_damaged_files", "Files of bytes set aside as damaged.")
FAILOVERS = _counter("failovers_total", "How often pushes began to go to the failover file.")
BUFFER_PENDING = _gauge("buffer_pending_events", "Buffered messages that wait.", "kind")
BUFFER_APPENDED = _counter("buffer_appended_total", "Messages written to buffer files.", "kind")
BUFFER_DRAINED = _counter("buffer_drained_total", "Buffered messages stored.", "kind")
BUFFER_DUPLICATES = _counter("buffer_duplicates_total", "Buffered messages that were stored already.", "kind")
BUFFER_STORE_WRITES = _counter("buffer_store_writes_total", "Writes to the store that these took.", "kind")
BUFFER_ROTATIONS = _counter("buffer_rotations_total", "Buffer files taken from the appenders.", "kind")
BUFFER_REFUSED = _counter("buffer_refused_total", "Buffered messages moved to failed files.", "kind")
BUFFER_DAMAGED = _counter("buffer_damaged_bytes_total", "Bytes that held no message.", "kind")

METRICS["Buffer files"] = (
    DB_HEALTHY, BUFFER_BYTES, BUFFER_OLDEST, BUFFER_HELD, BUFFER_FAILED, BUFFER_DAMAGED_FILES, FAILOVERS,
    BUFFER_PENDING, BUFFER_APPENDED, BUFFER_DRAINED, BUFFER_DUPLICATES, BUFFER_STORE_WRITES, BUFFER_ROTATIONS,
    BUFFER_REFUSED,
    BUFFER_DAMAGED,
)  # fmt: skip

# flows

FLOW_STATE = _gauge("flow_state", "1 for the state that the flow is in.", "flow", "state")
FLOW_ROWS = _counter("flow_rows_total", "Messages that the flow has read.", "flow")
FLOW_BAD_ROWS = _counter("flow_bad_rows_total", "Records that it has sent to its error queue.", "flow")
FLOW_SKIPPED_ROWS = _counter("flow_skipped_rows_total", "Records that it has left out.", "flow")
FLOW_BATCHES = _counter("flow_batches_total", "Batches that it has completed.", "flow")
FLOW_RESTARTS = _counter("flow_restarts_total", "How often it was started again after a failure.", "flow")
FLOW_BATCH_SECONDS = _gauge("flow_batch_seconds", "How long its last batch took.", "flow")
FLOW_LAG = _gauge("flow_lag_messages", "Messages that it has not read; missing where that is not known.", "flow")

METRICS["Flows"] = (
    FLOW_STATE, FLOW_ROWS, FLOW_BAD_ROWS, FLOW_SKIPPED_ROWS, FLOW_BATCHES, FLOW_RESTARTS, FLOW_BATCH_SECONDS, FLOW_LAG,
)  # fmt: skip

# dispatch

ACTION_QUEUE_SIZE = _gauge("action_queue_size", "Parcels that wait warm for a worker.", "action_class")
WARM_QUEUED = _gauge("warm_queued_count", "The same, by DeltaFi's other name.", "action_class")
COLD_QUEUED = _gauge("cold_queued_count", "Parcels that wait cold.", "action_class")
ACTION_QUEUE_LEASED = _gauge("action_queue_leased", "Parcels that workers have.", "action_class")
ACTION_QUEUE_OLDEST = _gauge(
    "action_queue_oldest_seconds",
    "How long the oldest parcel has waited, warm or cold; 0 if none waits.",
    "action_class",
)
ACTION_QUEUE_COLD = _gauge("action_queue_cold", "1 while new parcels of the class wait cold.", "action_class")
ACTION_QUEUE_SERVED = _gauge("action_queue_served", "1 while a worker asks for the class.", "action_class")
ACTION_QUEUE_TRANSITIONS = _counter(
    "action_queue_transitions_total", "How often the class went cold, and warm again.", "action_class", "to"
)
CLASSES_WITHOUT_WORKER = _gauge(
    "action_classes_without_worker", "Action classes whose parcels wait while no worker asks for them."
)
PARCELS = _gauge("parcels", "Unfinished parcels, and those in ERROR, by the state of their step.", "state")
PARCEL_REQUEUES = _counter("parcel_requeues_total", "How often a parcel was queued again.")
PARCEL_LEASE_EXPIRIES = _counter("parcel_lease_expiries_total", "Leases that ended without a completion.")
PARCEL_HOLD = _gauge("parcel_hold_seq", "The oldest message that retention spares for a flow.", "flow", "queue_id")
PARCEL_MESSAGES_LOST = _counter(
    "parcel_messages_lost_total",
    "Messages that a flow of dispatch did not get: gone before they were cut, or read. As far as known.",
    "flow",
)
DISPATCH_WARNINGS = _gauge("dispatch_warnings", "What ought to be looked at, by check.", "check")

METRICS["Dispatch"] = (
    ACTION_QUEUE_SIZE, WARM_QUEUED, COLD_QUEUED, ACTION_QUEUE_LEASED, ACTION_QUEUE_OLDEST, ACTION_QUEUE_COLD,
    ACTION_QUEUE_SERVED, ACTION_QUEUE_TRANSITIONS, CLASSES_WITHOUT_WORKER, PARCELS, PARCEL_REQUEUES,
    PARCEL_LEASE_EXPIRIES, PARCEL_HOLD, PARCEL_MESSAGES_LOST, DISPATCH_WARNINGS,
)  # fmt: skip

# receivers

RECEIVER_REQUESTS = _counter("receiver_requests_total", "Requests of receivers, by status.", "receiver", "status")
RECEIVER_ITEMS = _counter(
    "receiver_items_total", "Data points, spans, records and samples accepted.", "receiver", "kind"
)

METRICS["Receivers"] = (RECEIVER_REQUESTS, RECEIVER_ITEMS)

# send queues

QUEUE_SIZE = _out("queue_size", "Batches in the send queue, unconfirmed.")
QUEUE_BYTES = _out("queue_bytes", "Bytes in the send queue, unconfirmed.")
QUEUE_MAX_SIZE = _out("queue_max_size", "How many batches may be in it.")
QUEUE_MAX_BYTES = _out("queue_max_bytes", "How many bytes may be in it, as it was set.")
QUEUE_EFFECTIVE_MAX_SIZE = _out("queue_effective_max_size", "How many batches may be in it now.")
QUEUE_EFFECTIVE_MAX_BYTES = _out("queue_effective_max_bytes", "How many bytes may be in it now.")
QUEUE_UTILIZATION = _out("queue_utilization_ratio", "How full it is, 0 to 1, by the limit that is nearer.")
QUEUE_OLDEST_AGE = _out("queue_oldest_age_seconds", "How long ago the oldest unconfirmed batch was accepted.")
QUEUE_DISK_AVAILABLE = _out("queue_disk_available_bytes", "Room on the disk of the send queue.")
QUEUE_MEMORY_BYTES = _out("queue_memory_bytes", "Bytes of batches in memory.")
QUEUE_MEMORY_BATCHES = _out("queue_memory_batches", "Batches in memory.")
QUEUE_MEMORY_UTILIZATION = _out("queue_memory_utilization", "Bytes in memory by the limit, 0 to 1.")
QUEUE_SPILLOVER = _out("queue_spillover_total", "Batches that went to disk because memory was filling up.")
SPILLOVER_MODE = _out("spillover_mode", "0 all to memory, 1 every second batch to disk, 2 all to disk.")
QUEUE_PUSH = _out("queue_push_total", "Batches accepted.")
QUEUE_DROPPED = _out("queue_dropped_total", "Batches dropped or refused, by reason.", "reason")
QUEUE_DISK_FULL = _out("queue_disk_full_total", "Pushes that found the disk full.")
DATA_LOSS = _out(
    "export_data_loss_total", "Accepted batches that were lost: dropped as the oldest, or damaged on disk."
)
FASTQUEUE_INMEMORY = _out("fastqueue_inmemory_blocks", "Batches that FastQueue has in memory.")
FASTQUEUE_DISK_BYTES = _out("fastqueue_disk_bytes", "Bytes of its chunk files.")
FASTQUEUE_META_SYNC = _out("fastqueue_meta_sync_total", "How often its meta file was made durable.")
FASTQUEUE_META_SYNC_SKIP = _out("fastqueue_meta_sync_skip_total", "How often there was nothing new to make durable.")
FASTQUEUE_ROTATIONS = _out("fastqueue_chunk_rotations", "Chunk files begun because the last one was full.")
FASTQUEUE_FLUSHES = _out("fastqueue_inmemory_flushes", "How often batches left memory for the disk.")
FASTQUEUE_SYNC_FAILURES = _out("fastqueue_sync_failures_total", "How often the disk did not confirm a write.")
FAILOVER_PUSH = _out("failover_queue_push_total", "Batches that the failover queue took.")
FAILOVER_DRAIN = _out("failover_queue_drain_total", "Batches that went back to the send queue from it.")
FAILOVER_DRAIN_ERRORS = _out("failover_queue_drain_errors_total", "How often that failed.")
MEMQUEUE_SIZE = _out("memqueue_size", "Batches in the failover queue.")
MEMQUEUE_BYTES = _out("memqueue_bytes", "Bytes in it.")

METRICS["Send queues"] = (
    QUEUE_SIZE, QUEUE_BYTES, QUEUE_MAX_SIZE, QUEUE_MAX_BYTES, QUEUE_EFFECTIVE_MAX_SIZE, QUEUE_EFFECTIVE_MAX_BYTES,
    QUEUE_UTILIZATION, QUEUE_OLDEST_AGE, QUEUE_DISK_AVAILABLE, QUEUE_MEMORY_BYTES, QUEUE_MEMORY_BATCHES,
    QUEUE_MEMORY_UTILIZATION, QUEUE_SPILLOVER, SPILLOVER_MODE, QUEUE_PUSH, QUEUE_DROPPED, QUEUE_DISK_FULL, DATA_LOSS,
    FASTQUEUE_INMEMORY, FASTQUEUE_DISK_BYTES, FASTQUEUE_META_SYNC, FASTQUEUE_META_SYNC_SKIP, FASTQUEUE_ROTATIONS,
    FASTQUEUE_FLUSHES, FASTQUEUE_SYNC_FAILURES, FAILOVER_PUSH, FAILOVER_DRAIN, FAILOVER_DRAIN_ERRORS, MEMQUEUE_SIZE,
    MEMQUEUE_BYTES,
)  # fmt: skip

# exporters

WORKERS_ACTIVE = _out("queue_workers_active", "Workers that have a batch in hand.")
WORKERS_TOTAL = _how_many("queue_workers_total", "Workers.")
WORKERS_DESIRED = _out("queue_workers_desired", "Workers that adaptive scaling wants.")
SCALER_ADJUSTMENTS = _out("queue_scaler_adjustments_total", "Changes of that number.", "direction")
PREPARERS_ACTIVE = _out("queue_preparers_active", "Preparers that have a batch in hand.")
PREPARERS_TOTAL = _how_many("queue_preparers_total", "Preparers.")
SENDERS_ACTIVE = _out("queue_senders_active", "Sends that senders have under way.")
SENDERS_TOTAL = _how_many("queue_senders_total", "Senders.")
CHANNEL_LENGTH = _out("queue_prepared_channel_length", "Prepared batches that wait for a sender.")
SENDS_INFLIGHT = _out("queue_sends_inflight", "Sends under way.")
LATENCY = _out("queue_export_latency_ewma_seconds", "Moving average of how long a send takes.")
SEND_SECONDS = Metric(
    "queue_export_seconds", "histogram", "How long a send took until it was answered.", ("destination",), True
)
RETRY = _out("queue_retry_total", "Batches that have to be sent again.")
RETRY_SUCCESS = _out("queue_retry_success_total", "Batches that were taken at a later attempt.")
RETRY_FAILURE = _out("queue_retry_failure_total", "Attempts that failed, by class of error.", "error_type")
BREAKER_STATE = _out("circuit_breaker_state", "1 for the state that the breaker is in.", "state")
BREAKER_OPEN = _out("circuit_breaker_open_total", "How often it opened.")
BREAKER_REJECTED = _out("circuit_breaker_rejected_total", "Sends that it did not allow.")
BACKOFF = _out("queue_backoff_seconds", "The wait that was decided last; 0 after a success.")
CONFIRMED = _out("export_confirmed_total", "Batches that the destination took.")
CONFIRMED_ITEMS = _out("export_items_total", "Items in them.")
REJECTED_ITEMS = _out("export_rejected_items_total", "Items that the destination rejected of batches it took.")
SPLITS = _out("batch_splits_total", "Batches that were split because they were too large.")
CEILING = _out("batch_hard_ceiling_bytes", "Larger batches are split before they are sent; 0 for no such limit.")
DEAD = _out("export_dead_total", "Batches, or parts of them, that became dead letters.")
DEAD_LETTERS = _out("export_dead_letters", "Dead letters that are kept.")
PAUSED = _out("export_paused", "1 while it is paused.")
LEASES_LOST = _out("export_leases_lost_total", "Batches whose lease was over when they were confirmed: sent again.")

METRICS["Exporters"] = (
    WORKERS_ACTIVE, WORKERS_TOTAL, WORKERS_DESIRED, SCALER_ADJUSTMENTS, PREPARERS_ACTIVE, PREPARERS_TOTAL,
    SENDERS_ACTIVE, SENDERS_TOTAL, CHANNEL_LENGTH, SENDS_INFLIGHT, LATENCY, SEND_SECONDS, RETRY, RETRY_SUCCESS,
    RETRY_FAILURE, BREAKER_STATE,
    BREAKER_OPEN, BREAKER_REJECTED, BACKOFF, CONFIRMED, CONFIRMED_ITEMS, REJECTED_ITEMS, SPLITS, CEILING, DEAD,
    DEAD_LETTERS, PAUSED, LEASES_LOST,
)  # fmt: skip
