"""What keeps a source or a flow back: its rate limit, the errors that it may have, and a stop with its reason.

A bucket is one row that all servers share: `source:<flow>` bounds how fast a source is cut, `flow:<flow>` how fast its
parcels are leased. The row is locked from `bucket_now` until the transaction ends, so two servers cannot spend the
same tokens.

Bytes of a range are not counted when it is cut: a parcel's `size` is its messages times the mean size of those that its
queue holds. A limit in bytes is therefore kept on the average, not for each parcel.
"""

from __future__ import annotations

from forebay.broker.room_work import Ask, Work
from forebay.dispatch.definition import FlowDefinition, RateLimit
from forebay.dispatch.rates import Bucket, filled_to_now, full_bucket
from forebay.dispatch.tables import SQL


def source_bucket(flow: str) -> str:
    return f"source:{flow}"


def flow_bucket(flow: str) -> str:
    return f"flow:{flow}"


def bucket_now(name: str, limit: RateLimit, now_us: int) -> Work[Bucket]:
    """The bucket with what came in until now; others wait for it until the transaction ends."""
    # Tokens travel as text: work gets whole numbers and text only.
    rows = yield Ask(SQL["bucket_lock"], {"name": name})
    if not rows:
        return full_bucket(limit, now_us)
    [[tokens, updated_us]] = rows
    return filled_to_now(Bucket(float(tokens), updated_us), limit, now_us)


def keep_bucket(name: str, bucket: Bucket) -> Work[None]:
    yield Ask(SQL["bucket_keep"], {"name": name, "tokens": bucket.tokens, "updated_us": bucket.updated_us})


def stop_at_max_errors(definition: FlowDefinition, now_us: int) -> Work[str]:
    """Stop the source if as many parcels of the flow are in ERROR as its definition allows: why; empty if it is not."""
    errors_max = definition.source.max_errors
    if errors_max == 0:
        return ""
    [[errors]] = yield Ask(SQL["flow_errors"], {"flow": definition.name, "errors_max": errors_max})
    if errors < errors_max:
        return ""
    reason = f"{errors} parcels are in ERROR, and maxErrors is {errors_max}"
    yield from stop_source(definition.name, reason, now_us)
    return reason


def stop_source(flow: str, reason: str, now_us: int) -> Work[None]:
    """Let it be cut no more until a person resumes the flow."""
    yield Ask(SQL["flow_set_state"], {"flow": flow, "state": "STOPPED", "reason": reason, "now_us": now_us})
