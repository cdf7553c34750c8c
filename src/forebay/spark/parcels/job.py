"""The work on one lease: its parcels as one Spark job, and what follows where that fails.

    run all parcels ──ok──▶ outcomes, stages
         │
         ├─ a record may be to blame ──▶ search ──▶ run all again without what was found, which is set aside
         ├─ something did not answer ──▶ ERROR for all, to be tried again whatever their attempts
         └─ anything else ──▶ each parcel alone: those that fail alone are in ERROR, the others are done

Everything here happens under the lease. `cancel`, from another thread, ends it: the lease is lost, or the worker stops.
"""

from __future__ import annotations

import threading
import uuid
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from itertools import groupby
from operator import attrgetter

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.types import StructType

from forebay.errors import ForebayError, Transient
from forebay.flows.chains import Chain
from forebay.flows.definition import Source
from forebay.flows.flow_directory import SetAside
from forebay.flows.narrowing import TooManyFail
from forebay.flows.worker import FlowFailed
from forebay.spark import job_tags
from forebay.spark.flow_causes import cause_of, traceback_of
from forebay.spark.flow_plan import DoesNotCompile
from forebay.spark.message_marks import MARKED, BadRows
from forebay.spark.options import Connection
from forebay.spark.outgoing import letters
from forebay.spark.parcels.chain_plan import ChainPlan
from forebay.spark.parcels.lease import Completion, Lease, Missing, Outcome, Parcel
from forebay.spark.parcels.losses import missing_of
from forebay.spark.parcels.messages import parcel_messages
from forebay.spark.parcels.outcomes import JobDone, failed, outcomes_of
from forebay.spark.parcels.staged_columns import as_staged
from forebay.spark.parcels.staging import REPORT, Staged, stage, staging
from forebay.spark.parcels.tables import write_table
from forebay.spark.record_faults import Blame, blame, is_away
from forebay.spark.record_search import Interrupted, RecordSearch
from forebay.spark.record_sides import DID

_queue_of = attrgetter("queue")
SEARCHES_MAX = 5
"""How often records that fail are looked for in one lease: behind an action that fails, another may."""


class Cancelled(Exception):
    """The lease is lost, or the worker stops: nothing is to be said of the lease."""


class JobFailed(ForebayError):
    """A job failed for good. `away`: something that it called did not answer."""

    def __init__(self, message: str, *, away: bool = False) -> None:
        super().__init__(message)
        self.away = away


class LeaseJob:
    """The work on one lease."""

    def __init__(
        self, spark: SparkSession, lease: Lease, chain: Chain, row_schema: StructType | None, connection: Connection
    ) -> None:
        self._spark = spark
        self._lease = lease
        self._chain = chain
        self._row_schema = row_schema
        self._connection = connection
        self._tag = f"forebay-{lease.lease_id}"
        self._is_cancelled = threading.Event()
        self._is_late = threading.Event()

    def cancel(self) -> None:
        """End it, from another thread."""
        self._is_cancelled.set()
        job_tags.cancel(self._spark, self._tag)

    def run(self, pool: str = "default") -> Completion:
        """Do it all. Raises Cancelled."""
        text = f"{self._chain.flow.name} / {self._chain.name} / lease {self._lease.lease_id}"
        # In the order of their ids, in which their rows are handed on too.
        parcels = sorted(self._lease.parcels, key=lambda parcel: parcel.did)
        with job_tags.tagged(self._spark, self._tag), job_tags.described(self._spark, text, pool):
            completion = Completion([], [])
            for _, own in groupby(sorted(parcels, key=_queue_of), _queue_of):
                # A record is known by its seq, and so in its queue only: errors of several flows are of several queues.
                outcomes, stages = self._run(list(own))
                completion = Completion([*completion.outcomes, *outcomes], [*completion.stages, *stages])
        return completion

    def _run(self, parcels: Sequence[Parcel]) -> tuple[list[Outcome], list[str]]:
        started_at = _now()
        try:
            done = self._attempt(parcels, started_at)
        except JobFailed as fault:
            if len(parcels) == 1 or fault.away:
                return [self._failed(parcel, fault, started_at) for parcel in parcels], []
        else:
            return outcomes_of(done), done.staged.stages
        outcomes: list[Outcome] = []
        stages: list[str] = []
        for parcel in parcels:
            of_one, staged = self._run([parcel])
            outcomes += of_one
            stages += staged
        return outcomes, stages

    def _failed(self, parcel: Parcel, fault: JobFailed, started_at: str) -> Outcome:
        return failed(self._chain, parcel, str(fault), started_at, _now(), away=fault.away)

    def _attempt(self, parcels: Sequence[Parcel], started_at: str) -> JobDone:
        """One job over these parcels, repeated without the records that fail. Raises JobFailed."""
        messages = parcel_messages(self._spark, parcels, self._connection, self._source())
        asides: dict[int, SetAside] = {}
        kept: DataFrame | None = None
        try:
            for _ in range(SEARCHES_MAX):
                try:
                    return self._job(parcels, messages, asides, started_at)
                except DoesNotCompile as fault:
                    raise JobFailed(str(fault)) from fault
                except (PySparkException, Py4JError) as fault:
                    failure = self._failure(fault)
                if kept is None:
                    kept = messages = messages.persist()
                asides |= {one.seq: one for one in self._searched(messages, failure, frozenset(asides))}
            raise JobFailed(f"{cause_of(Exception(failure))}\nrecords go on failing after {SEARCHES_MAX} searches")
        finally:
            if kept is not None:
                kept.unpersist()

    def _failure(self, fault: Exception) -> str:
        """What Spark says, if a record may be to blame. Raises Cancelled or JobFailed otherwise."""
        self._check_cancelled(fault)
        if self._is_late.is_set():
            self._is_late.clear()
            raise JobFailed(
                f"the job took longer than {self._chain.time_limit_seconds:g} s, which is the time_limit of its actions"
            ) from fault
        text = str(fault)
        if blame(text) is Blame.WORLD or not self._chain.flow.may_set_aside:
            raise JobFailed(_whole(text), away=is_away(text)) from fault
        return text

    def _searched(self, messages: DataFrame, failure: str, known: frozenset[int]) -> list[SetAside]:
        is_sink_tried = blame(failure) is Blame.SINK

        @contextmanager
        def part(wanted: DataFrame, actions: int | None) -> Iterator[DataFrame]:
            with self._plan(wanted, actions=actions) as plan:
                if actions is not None or plan.staged is None:
                    yield plan.output
                elif is_sink_tried:
                    # Under a name of its own: nothing of it is ever committed.
                    trial = staging(plan.targets, f"trial-{uuid.uuid4().hex}", self._connection)
                    yield plan.staged.mapInArrow(trial, REPORT)
                else:
                    yield plan.staged

        wanted = messages.where(~f.col("seq").isin(list(known))) if known else messages
        search = RecordSearch(
            self._chain.flow, self._chain.actions, wanted, part, is_stopping=self._is_cancelled.is_set
        )
        try:
            found = search.find(failure, known)
        except Interrupted as stopped:
            raise Cancelled from stopped
        except (FlowFailed, TooManyFail) as fault:
            raise JobFailed(f"{fault}\n\n{traceback_of(failure)}".rstrip(), away=is_away(str(fault))) from fault
        except (PySparkException, Py4JError) as fault:
            self._check_cancelled(fault)
            raise JobFailed(_whole(str(fault)), away=is_away(str(fault))) from fault
        if not (found or search.has_healed):
            raise JobFailed(f"{_whole(failure)}\nno record of these parcels fails alone")
        return found

    # --- one job ---

    def _job(
        self, parcels: Sequence[Parcel], messages: DataFrame, asides: Mapping[int, SetAside], started_at: str
    ) -> JobDone:
        good = messages.where(~f.col("seq").isin(list(asides))) if asides else messages
        with self._plan(good, parcels) as plan, self._limited():
            for sink, frame in plan.tables:
                write_table(frame, sink.table, self._lease.lease_id)
            staged = Staged()
            if plan.staged is not None:
                staged = stage(plan.staged, plan.targets, self._lease.lease_id, self._connection)
            counts = {number: _counted(observation) for number, observation in plan.observations.items()}
            if asides:
                staged.plus(self._letters(plan, messages, asides, parcels[0].queue))
                staged.skipped += self._skipped(messages, asides)
        self._check_cancelled(None)
        missing = self._missing(parcels)
        return JobDone(self._chain, parcels, plan.targets, staged, counts, started_at, _now(), missing)

    def _missing(self, parcels: Sequence[Parcel]) -> Mapping[str, Sequence[Missing]]:
        try:
            return missing_of(parcels, self._connection, self._source())
        except ForebayError as fault:
            raise JobFailed(str(fault), away=isinstance(fault, Transient)) from fault

    def _letters(self, plan: ChainPlan, messages: DataFrame, asides: Mapping[int, SetAside], origin: str) -> Staged:
        """The records that were set aside, for the error queue."""
        queued = [one for one in asides.values() if one.is_queued]
        target = plan.error_target
        if not queued:
            return Staged()
        causes = self._spark.createDataFrame(
            [(one.seq, one.cause, one.action, one.traceback) for one in queued],
            "seq BIGINT, cause STRING, action STRING, traceback STRING",
        )
        rows = messages.join(f.broadcast(causes), "seq")
        bad, more = BadRows(rows, MARKED), (DID, "action", "traceback")
        rejected = letters(bad, self._chain.flow, *more, kept=[DID], queue=origin, step=self._chain.name)
        return stage(as_staged(rejected, target, False), plan.targets, self._lease.lease_id, self._connection)

    def _skipped(self, messages: DataFrame, asides: Mapping[int, SetAside]) -> Counter[str]:
        seqs = [one.seq for one in asides.values() if not one.is_queued]
        found = messages.where(f.col("seq").isin(seqs)).groupBy(DID).count().collect() if seqs else []
        return Counter(dict(found))

    def _plan(self, messages: DataFrame, parcels: Sequence[Parcel] = (), *, actions: int | None = None) -> ChainPlan:
        attempts = {parcel.did: parcel.attempt for parcel in parcels}
        return ChainPlan(
            self._spark,
            self._chain,
            messages,
            row_schema=self._row_schema,
            attempts=attempts,
            origin=parcels[0].queue if parcels else "",
            actions=actions,
        )

    def _source(self) -> Source:
        """How messages are read: those that another chain has handed on are read whole."""
        source = self._chain.flow.source
        if self._chain.number == 0:
            return source
        return Source(queue=self._chain.input_queue, fail_on_data_loss=source.fail_on_data_loss)

    @contextmanager
    def _limited(self) -> Iterator[None]:
        """End the job when its time is up."""

        def end() -> None:
            self._is_late.set()
            job_tags.cancel(self._spark, self._tag)

        timer = threading.Timer(self._chain.time_limit_seconds, end)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def _check_cancelled(self, fault: Exception | None) -> None:
        if self._is_cancelled.is_set():
            raise Cancelled from fault


def _counted(observation: object) -> dict[str, int]:
    """What was counted; nothing where Spark left the step out, because it saw that no row would come."""
    try:
        found: dict[str, int] = observation.get  # type: ignore[attr-defined]
    except Exception:  # noqa: BLE001 - counts are reported, and decide nothing
        return {}
    return found


def _whole(failure: str) -> str:
    """The cause, and the traceback behind it."""
    return f"{cause_of(Exception(failure))}\n\n{traceback_of(failure)}".rstrip()


def _now() -> str:
    return datetime.now(UTC).isoformat()
