"""Starting records at a step: rows are staged first, then committed together with the parcels that read them.

What is staged and not committed, because the server was killed or the request refused in between, is never named and
expires. A sender that gets no answer sends the same records again: those that started are known.
"""

from __future__ import annotations

from functools import partial

from forebay.broker.arrow.staged_rows import json_rows, new_stage_id
from forebay.broker.bulk import StageName, StagesOf
from forebay.broker.store import Store
from forebay.dispatch.ledger.enqueue import NOTHING_ENQUEUED
from forebay.dispatch.ledger.records import RecordsDone, plan_records, start_records
from forebay.dispatch.values import RecordsStarted, StartRecords
from forebay.model.internal_queues import PRODUCER, step_queue

PART = "records"


async def start_step_records(store: Store, request: StartRecords, capacity: int) -> RecordsDone:
    """Start what is new of the request: all of it, or nothing. `UnknownFlow`, or `RecordsRefused` with the field."""
    queue = step_queue(request.flow, request.step)
    while True:
        plan = await store.look(partial(plan_records, request))
        if not plan.new:
            return RecordsDone(RecordsStarted((), 0, plan.repeated), NOTHING_ENQUEUED)
        stage_id = new_stage_id()
        rows = json_rows(stage_id, [record.payload for record in plan.records])
        await store.stage(queue, stage_id, StageName(PRODUCER, stage_id, PART), [rows])
        wanted = StagesOf(PRODUCER, stage_id, queue=queue)
        work = partial(start_records, request, plan, wanted, [stage_id], capacity)
        done = await store.together(work, has_stages=True)
        # None: another sender of the same records was faster since they were looked for.
        if done is not None:
            return done
