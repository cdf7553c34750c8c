"""What `Client` can do with dispatch: as `AsyncDispatch`, without `async`.

Arguments and errors of each method are those of the asynchronous one of the same name.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Coroutine, Iterator, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar

from forebay.client.parcels import Completed, MissingMessages, Parcel, ParcelLease, ParcelOutcome
from forebay.client.step_records import RecordsStarted, StepRecord

if TYPE_CHECKING:
    from forebay.client.async_client import AsyncClient

T = TypeVar("T")


class SyncDispatch:
    _client: AsyncClient

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        raise NotImplementedError

    def _each(self, found: AsyncIterator[T]) -> Iterator[T]:
        raise NotImplementedError

    # --- work ---

    def lease(
        self,
        worker: str,
        classes: Sequence[str],
        *,
        parcels: int = 100,
        messages: int = 0,
        wait: float = 0.0,
        plugin: str = "",
        same_step: bool = False,
    ) -> ParcelLease | None:
        """Lease up to `parcels` of the action classes that the patterns in `classes` fit; see `AsyncClient.lease`.

        Example: `lease = client.lease("host-1:77", ["geo.*"], parcels=10, wait=30)`
        """
        return self._run(
            self._client.lease(
                worker,
                classes,
                parcels=parcels,
                messages=messages,
                wait=wait,
                plugin=plugin,
                same_step=same_step,
            )
        )

    def heartbeat(self, lease: ParcelLease | str) -> bool:
        """Prolong a lease by the time that it was given for; False when it is lost; see `AsyncClient.heartbeat`.

        Example: `client.heartbeat(lease)`
        """
        return self._run(self._client.heartbeat(lease))

    def complete(
        self,
        lease: ParcelLease | str,
        outcomes: Sequence[ParcelOutcome],
        *,
        stages: Sequence[str] = (),
        producer: str | None = None,
        epoch: str | int | None = None,
    ) -> Completed:
        """Say what became of the parcels of a lease, all or nothing; see `AsyncClient.complete`.

        Example: `client.complete(lease, [ParcelOutcome(did=p.did, state="COMPLETE") for p in lease.parcels])`
        """
        return self._run(self._client.complete(lease, outcomes, stages=stages, producer=producer, epoch=epoch))

    def release(self, lease: ParcelLease | str) -> int:
        """Give the parcels of a lease back, unworked: their attempts do not count; see `AsyncClient.release`.

        Example: `client.release(lease)`
        """
        return self._run(self._client.release(lease))

    def read_parcel(self, parcel: Parcel, *, missing: list[MissingMessages] | None = None) -> Iterator[dict[str, Any]]:
        """The messages of a parcel, in order, as `read` gives them; see `AsyncClient.read_parcel`.

        Example: `for message in client.read_parcel(parcel): print(message["data"])`
        """
        yield from self._each(self._client.read_parcel(parcel, missing=missing))

    # --- flows ---

    def define_flow(self, name: str, definition: Mapping[str, object]) -> dict[str, Any]:
        """Define a flow: its `source` and its `steps`; see `AsyncClient.define_flow`.

        Example: `client.define_flow("orders", {"source": {"queue": "orders-in"},
        "steps": [{"action": "geocode", "actionClass": "geo.Geocode"}]})`
        """
        return self._run(self._client.define_flow(name, definition))

    def flows(self) -> list[dict[str, Any]]:
        """The flows of dispatch; see `AsyncClient.flows`.

        Example: `[flow["name"] for flow in client.flows() if flow["errors"]]`
        """
        return self._run(self._client.flows())

    def flow(self, name: str) -> dict[str, Any]:
        """One flow of dispatch; `Refused` with status 404 when there is none; see `AsyncClient.flow`.

        Example: `client.flow("orders")["state"]`
        """
        return self._run(self._client.flow(name))

    def pause_flow(self, name: str) -> dict[str, Any]:
        """Let the flow's parcels wait until it is resumed; returns the flow; see `AsyncClient.pause_flow`.

        Example: `client.pause_flow("orders")`
        """
        return self._run(self._client.pause_flow(name))

    def resume_flow(self, name: str) -> dict[str, Any]:
        """Let a flow run that was paused or stopped; returns the flow; see `AsyncClient.resume_flow`.

        Example: `client.resume_flow("orders")`
        """
        return self._run(self._client.resume_flow(name))

    def stop_flow(self, name: str) -> dict[str, Any]:
        """Cut the flow's source no more until it is resumed; its parcels go on; see `AsyncClient.stop_flow`.

        Example: `client.stop_flow("orders")`
        """
        return self._run(self._client.stop_flow(name))

    def start_records(self, flow: str, step: str, records: Sequence[StepRecord]) -> RecordsStarted:
        """Send rows through a step of a flow again, each once; see `AsyncClient.start_records`.

        Example: `client.start_records("orders", "geocode", [StepRecord(did, "letter-7", {"id": 7})])`
        """
        return self._run(self._client.start_records(flow, step, records))

    def forget_flow(self, name: str) -> None:
        """Forget a flow; see `AsyncClient.forget_flow`.

        Example: `client.forget_flow("orders")`
        """
        self._run(self._client.forget_flow(name))

    def policies(self) -> list[dict[str, Any]]:
        """The policies by which errors are resumed by themselves; see `AsyncClient.policies`.

        Example: `[policy["name"] for policy in client.policies()]`
        """
        return self._run(self._client.policies())

    def set_policy(self, name: str, policy: Mapping[str, object]) -> dict[str, Any]:
        """Set a resume policy; see `AsyncClient.set_policy`.

        Example: `client.set_policy("timeouts", {"errorText": "timeout", "maxAttempts": 5, "delaySeconds": 60})`
        """
        return self._run(self._client.set_policy(name, policy))

    def remove_policy(self, name: str) -> None:
        """Remove a resume policy; `Refused` with status 404 when there is none; see `AsyncClient.remove_policy`.

        Example: `client.remove_policy("timeouts")`
        """
        self._run(self._client.remove_policy(name))

    # --- parcels ---

    def parcels(
        self,
        *,
        flow: str | None = None,
        state: str | None = None,
        action: str | None = None,
        action_class: str | None = None,
        error: str | None = None,
        since: datetime | None = None,
        before: datetime | None = None,
        limit: int = 100,
    ) -> list[dict[str, Any]]:
        """Parcels, the newest first: those that fit all that is given; see `AsyncClient.parcels`.

        Example: `for parcel in client.parcels(flow="orders", state="ERROR"): print(parcel["error"])`
        """
        return self._run(
            self._client.parcels(
                flow=flow,
                state=state,
                action=action,
                action_class=action_class,
                error=error,
                since=since,
                before=before,
                limit=limit,
            )
        )

    def parcel(self, did: str) -> dict[str, Any]:
        """A parcel with its steps and everything that happened to it; see `AsyncClient.parcel`.

        Example: `[event["event"] for event in client.parcel(did)["events"]]`
        """
        return self._run(self._client.parcel(did))

    def resume_parcels(
        self,
        dids: Sequence[str] = (),
        *,
        flow: str | None = None,
        state: str | None = None,
        action: str | None = None,
        action_class: str | None = None,
        error: str | None = None,
        since: datetime | None = None,
        before: datetime | None = None,
    ) -> int:
        """Queue parcels again that are in ERROR; see `AsyncClient.resume_parcels`.

        Example: `client.resume_parcels(flow="orders", error="timeout")`
        """
        return self._run(
            self._client.resume_parcels(
                dids,
                flow=flow,
                state=state,
                action=action,
                action_class=action_class,
                error=error,
                since=since,
                before=before,
            )
        )

    def cancel_parcels(
        self,
        dids: Sequence[str] = (),
        *,
        flow: str | None = None,
        state: str | None = None,
        action: str | None = None,
        action_class: str | None = None,
        error: str | None = None,
        since: datetime | None = None,
        before: datetime | None = None,
    ) -> int:
        """End parcels that are not finished; see `AsyncClient.cancel_parcels`.

        Example: `client.cancel_parcels([did])`
        """
        return self._run(
            self._client.cancel_parcels(
                dids,
                flow=flow,
                state=state,
                action=action,
                action_class=action_class,
                error=error,
                since=since,
                before=before,
            )
        )

    def replay_parcel(self, did: str) -> str:
        """Send a parcel's messages through its flow again; see `AsyncClient.replay_parcel`.

        Example: `new_did = client.replay_parcel(did)`
        """
        return self._run(self._client.replay_parcel(did))

    def annotate_parcel(self, did: str, annotations: Mapping[str, str], *, overwrite: bool = False) -> dict[str, Any]:
        """Add annotations to a parcel; returns it; see `AsyncClient.annotate_parcel`.

        Example: `client.annotate_parcel(did, {"checked": "yes"})`
        """
        return self._run(self._client.annotate_parcel(did, annotations, overwrite=overwrite))
