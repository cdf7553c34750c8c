"""How fast parcels of a flow may be leased: token buckets that all servers on a store share.

The bucket of a flow is one row, locked from when it is read until what was taken is written. The first use makes the
row before it is read, so that two servers which lease parcels of two classes at that moment wait for each other as
well. A limit in bytes counts what is known of a parcel's size.
"""

from __future__ import annotations

from collections.abc import Mapping

from forebay.broker.room_work import Ask, Work
from forebay.dispatch.definition import FlowDefinition, RateLimit
from forebay.dispatch.flow_control import flow_bucket
from forebay.dispatch.rates import Bucket, filled_to_now, full_bucket, is_open, spend, us_until_open
from forebay.dispatch.tables import SQL


class FlowLimits:
    """The buckets of flows during one transaction."""

    def __init__(self, limits: Mapping[str, RateLimit], buckets: dict[str, Bucket], now_us: int) -> None:
        self._limits = limits
        self._buckets = buckets
        self._now_us = now_us
        self._spent: set[str] = set()

    def open_us(self, flow: str) -> int:
        """When the flow may go on; not later than now: it may."""
        bucket = self._buckets.get(flow)
        if bucket is None or is_open(bucket):
            return self._now_us
        return self._now_us + us_until_open(bucket, self._limits[flow])

    def spend(self, flow: str, messages: int, size: int) -> None:
        """A parcel of the flow is leased."""
        limit = self._limits.get(flow)
        if limit is not None:
            amount = messages if limit.unit == "messages" else size
            self._buckets[flow] = spend(self._buckets[flow], amount)
            self._spent.add(flow)

    def save(self) -> Work[None]:
        """Write down what is left."""
        rows = [[flow_bucket(flow), self._buckets[flow].tokens, self._now_us] for flow in sorted(self._spent)]
        if rows:
            yield Ask(SQL["buckets_set"], {"buckets": rows})


def flow_limits(flows: Mapping[str, FlowDefinition], now_us: int) -> Work[FlowLimits]:
    """The buckets of those of the flows that have a limit, filled up to now."""
    limits = {flow: definition.rate_limit for flow, definition in flows.items() if definition.rate_limit is not None}
    buckets: dict[str, Bucket] = {}
    if limits:
        names = [[flow_bucket(flow)] for flow in sorted(limits)]
        rows = yield Ask(SQL["buckets_lock"], {"names": names})
        if len(rows) < len(names):
            full = [[flow_bucket(flow), *full_bucket(limits[flow], now_us)] for flow in sorted(limits)]
            yield Ask(SQL["buckets_make"], {"buckets": full})
            rows = yield Ask(SQL["buckets_lock"], {"names": names})
        kept = {name: Bucket(float(tokens), updated_us) for name, tokens, updated_us in rows}
        buckets = {flow: filled_to_now(kept[flow_bucket(flow)], limit, now_us) for flow, limit in limits.items()}
    return FlowLimits(limits, buckets, now_us)
