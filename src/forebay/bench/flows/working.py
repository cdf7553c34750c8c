"""Lanes of a worker in this process: flows are defined, and are done when their results are in their queues."""

from __future__ import annotations

import contextlib
import time
import uuid
from collections.abc import Iterator, Sequence

from pyspark.sql import SparkSession

from forebay.bench.broker.systems.forebay_client import delete_queue
from forebay.client import Client, Refused
from forebay.errors import Transient
from forebay.flows.chains import dispatch_definition
from forebay.flows.definition import Flow
from forebay.spark.options import Connection
from forebay.spark.parcels.lanes import LaneOptions, Lanes
from forebay.spark.parcels.lease import DispatchCalls

SECONDS_MAX = 900.0
LOOK_SECONDS = 0.02
_NOT_FOUND = 404


class Working:
    """Use it as `with working(spark, url) as …`."""

    def __init__(self, url: str, lanes: Lanes, client: Client) -> None:
        self._url = url
        self._lanes = lanes
        self._client = client
        self._calls = DispatchCalls(Connection((url,)))

    def seconds_for(self, flows: Sequence[Flow], results: int) -> float:
        """From the definition of the flows until all their results are there; nothing of them is left then."""
        began = time.perf_counter()
        for flow in flows:
            self._calls.define(flow.name, dispatch_definition(flow))
        queues = [queue for flow in flows for queue in flow.output_queues]
        self._wait(queues, results)
        took = time.perf_counter() - began
        for flow in flows:
            self._forget(flow)
        return took

    def _wait(self, queues: Sequence[str], results: int) -> None:
        """The queues get the same number each. One is looked at after the other: looking at fifty of them all the time
        took half a core from the work that is measured."""
        deadline, each = time.monotonic() + SECONDS_MAX, results // len(queues)
        for queue in queues:
            while (found := self._held(queue)) < each:
                if self._lanes.failure is not None:
                    raise self._lanes.failure
                if time.monotonic() > deadline:
                    raise Transient(f"{queue}: {found:,} of {each:,} results came within {SECONDS_MAX:g} s")
                time.sleep(LOOK_SECONDS)

    def _held(self, queue: str) -> int:
        try:
            bounds = self._client.get(f"/api/v1/arrow/queues/{queue}/range")
        except Refused as refused:
            if refused.status != _NOT_FOUND:
                raise
            return 0
        return int(bounds["nextSeq"]) - 1

    def _forget(self, flow: Flow) -> None:
        self._client.stop_flow(flow.name)
        deadline = time.monotonic() + SECONDS_MAX
        # The last results are there a moment before dispatch has noted that their parcels are finished.
        while self._client.parcels(flow=flow.name, state="IN_FLIGHT", limit=1) and time.monotonic() < deadline:
            time.sleep(LOOK_SECONDS)
        self._client.forget_flow(flow.name)
        for queue in flow.output_queues:
            delete_queue(self._url, queue)


@contextlib.contextmanager
def working(spark: SparkSession, url: str) -> Iterator[Working]:
    """Lanes that take parcels of every class, with a worker's defaults."""
    options = LaneOptions(f"bench-{uuid.uuid4().hex}", ["*"])
    lanes = Lanes(spark, Connection((url,)), options)
    lanes.start()
    try:
        with Client(url) as client:
            yield Working(url, lanes, client)
    finally:
        lanes.stop()
