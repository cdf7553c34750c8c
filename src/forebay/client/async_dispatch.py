"""What `AsyncClient` can do with dispatch: lease parcels and complete them, define flows, look after parcels."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import datetime
from http import HTTPStatus
from typing import Any
from urllib.parse import urlencode

import msgspec

from forebay.client.messages import Refused, decode_body, encode_body
from forebay.client.parcel_reading import read_parcel
from forebay.client.parcels import Completed, MissingMessages, Parcel, ParcelLease, ParcelOutcome
from forebay.client.paths import quoted
from forebay.client.step_records import RecordSender, RecordsStarted, StepRecord
from forebay.client.transport import Transport

_LEASES = "/api/v1/dispatch/leases"
_FLOWS = "/api/v1/dispatch/flows"
_POLICIES = "/api/v1/dispatch/policies"
_PARCELS = "/api/v1/parcels"
_PAGE = 1_000
_decode_lease = msgspec.json.Decoder(ParcelLease).decode
_decode_completed = msgspec.json.Decoder(Completed).decode


class AsyncDispatch:
    """Every call raises `Refused` for what the server will not do, and `Unreachable` when no server could do it."""

    _transport: Transport

    # --- work ---

    async def lease(
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
        """Lease up to `parcels` of the action classes that the patterns in `classes` fit; None when there are none.

        `worker`: a name that is this worker's alone. `messages`: how many messages at the most, whatever the first
        parcel has; 0 for no limit. `wait`: how many seconds to wait for a parcel. `plugin`: what provides the actions.
        `same_step`: all parcels are of one flow, version and step, as many as wait, to be run as one job.

        Example: `lease = await client.lease("host-1:77", ["geo.*"], parcels=10, wait=30)`
        """
        body = {
            "worker": worker,
            "classes": list(classes),
            "parcels": parcels,
            "messages": messages,
            "wait": round(wait * 1000),
            "plugin": plugin,
            "sameStep": same_step,
        }
        status, answer = await self._transport.request(
            "POST", "/api/v1/dispatch/lease", encode_body(body), extra_seconds=wait
        )
        return _decode_lease(answer) if status == HTTPStatus.OK else None

    async def heartbeat(self, lease: ParcelLease | str) -> bool:
        """Prolong a lease by the time that it was given for; False when it is lost.

        Example: `await client.heartbeat(lease)`
        """
        try:
            await self._transport.request("POST", f"{_LEASES}/{_id(lease)}/heartbeat")
        except Refused as refused:
            if refused.status != HTTPStatus.CONFLICT:
                raise
            return False
        return True

    async def complete(
        self,
        lease: ParcelLease | str,
        outcomes: Sequence[ParcelOutcome],
        *,
        stages: Sequence[str] = (),
        producer: str | None = None,
        epoch: str | int | None = None,
    ) -> Completed:
        """Say what became of the parcels of a lease, all or nothing; safe to repeat with the same outcomes.

        A parcel without an outcome is queued again, and its attempt counts. `stages`, of a `producer` and `epoch`
        (`stage`), become messages with it. Raises `Refused` with status 409 when the lease is lost: then nothing was
        done, and its stages are dropped.

        Example: `await client.complete(lease, [ParcelOutcome(did=p.did, state="COMPLETE") for p in lease.parcels])`
        """
        body: dict[str, object] = {"outcomes": list(outcomes)}
        if producer is not None or epoch is not None:
            body |= {"producer": producer, "epoch": None if epoch is None else str(epoch), "stages": list(stages)}
        path = f"{_LEASES}/{_id(lease)}/complete"
        _, answer = await self._transport.request("POST", path, encode_body(body))
        return _decode_completed(answer)

    async def release(self, lease: ParcelLease | str) -> int:
        """Give the parcels of a lease back, unworked: their attempts do not count. Returns how many.

        Example: `await client.release(lease)`
        """
        return int((await self._dispatch("POST", f"{_LEASES}/{_id(lease)}/release"))["parcels"])

    async def read_parcel(
        self, parcel: Parcel, *, missing: list[MissingMessages] | None = None
    ) -> AsyncIterator[dict[str, Any]]:
        """The messages of a parcel, in order, as `read` gives them.

        Raises `MessagesGone`, which is a `Refused`, where some of them are gone: before the first one, or, if that is
        found out by reading, behind the last. With `missing`, the rest is read, and what is gone is added to that list.

        Example: `async for message in client.read_parcel(parcel): print(message["data"])`
        """
        async for message in read_parcel(self._transport, parcel, missing):
            yield message

    # --- flows ---

    async def define_flow(self, name: str, definition: Mapping[str, object]) -> dict[str, Any]:
        """Define a flow: its `source` and its `steps`. Defined again unchanged, it keeps its version.

        `Refused` lists what is wrong with it.

        Example: `await client.define_flow("orders", {"source": {"queue": "orders-in"},
        "steps": [{"action": "geocode", "actionClass": "geo.Geocode"}]})`
        """
        return await self._dispatch("PUT", f"{_FLOWS}/{quoted(name)}", dict(definition))  # type: ignore[no-any-return]

    async def flows(self) -> list[dict[str, Any]]:
        """The flows of dispatch: state, definition, and how many of their parcels wait, run or failed.

        Example: `[flow["name"] for flow in await client.flows() if flow["errors"]]`
        """
        return (await self._dispatch("GET", _FLOWS))["flows"]  # type: ignore[no-any-return]

    async def flow(self, name: str) -> dict[str, Any]:
        """One flow of dispatch; `Refused` with status 404 when there is none.

        Example: `(await client.flow("orders"))["state"]`
        """
        return await self._dispatch("GET", f"{_FLOWS}/{quoted(name)}")  # type: ignore[no-any-return]

    async def pause_flow(self, name: str) -> dict[str, Any]:
        """Let the flow's parcels wait until it is resumed; returns the flow.

        Example: `await client.pause_flow("orders")`
        """
        return await self._dispatch("POST", f"{_FLOWS}/{quoted(name)}/pause")  # type: ignore[no-any-return]

    async def resume_flow(self, name: str) -> dict[str, Any]:
        """Let a flow run that was paused or stopped; returns the flow.

        Example: `await client.resume_flow("orders")`
        """
        return await self._dispatch("POST", f"{_FLOWS}/{quoted(name)}/resume")  # type: ignore[no-any-return]

    async def stop_flow(self, name: str) -> dict[str, Any]:
        """Cut the flow's source no more until it is resumed; its parcels go on. Returns the flow.

        Example: `await client.stop_flow("orders")`
        """
        return await self._dispatch("POST", f"{_FLOWS}/{quoted(name)}/stop")  # type: ignore[no-any-return]

    async def start_records(self, flow: str, step: str, records: Sequence[StepRecord]) -> RecordsStarted:
        """Send rows through a step of a flow again, and what follows it, without the parcels that they were in.

        `step`: its first action; not the flow's first step, which reads the source: push to that instead. `records`:
        what the step is to read, such as letters of the flow's error queue hold it (`holds: input`). Each starts once,
        by its `did` and `key`, also when this is called again because an answer was lost. Those that are too many for
        one request go in several, each of which is done or not: after an error, call it again with all of them.

        `ValueError` for a payload that is no JSON object. `Refused` with status 404 when there is no such flow, 400
        when it has no such step or a parcel is another flow's, 413 when a record is too large.

        Example: `await client.start_records("orders", "geocode", [StepRecord(did, "letter-7", {"id": 7})])`
        """
        return await RecordSender(self._transport, flow, step).send(records)

    async def forget_flow(self, name: str) -> None:
        """Forget a flow. `Refused` while parcels of it are unfinished (409), or when there is none (404).

        Example: `await client.forget_flow("orders")`
        """
        await self._dispatch("DELETE", f"{_FLOWS}/{quoted(name)}")

    async def policies(self) -> list[dict[str, Any]]:
        """The policies by which errors are resumed by themselves, in the order in which they are tried.

        Example: `[policy["name"] for policy in await client.policies()]`
        """
        return (await self._dispatch("GET", _POLICIES))["policies"]  # type: ignore[no-any-return]

    async def set_policy(self, name: str, policy: Mapping[str, object]) -> dict[str, Any]:
        """Set a resume policy: `errorText`, `flow` or `action`, `maxAttempts`, `delaySeconds`, …; returns it.

        Example: `await client.set_policy("timeouts", {"errorText": "timeout", "maxAttempts": 5, "delaySeconds": 60})`
        """
        return await self._dispatch("PUT", f"{_POLICIES}/{quoted(name)}", dict(policy))  # type: ignore[no-any-return]

    async def remove_policy(self, name: str) -> None:
        """Remove a resume policy; `Refused` with status 404 when there is none.

        Example: `await client.remove_policy("timeouts")`
        """
        await self._dispatch("DELETE", f"{_POLICIES}/{quoted(name)}")

    # --- parcels ---

    async def parcels(
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
        """Parcels, the newest first: those that fit all that is given. `state`: of the parcel (IN_FLIGHT, COMPLETE,
        FILTERED, ERROR, CANCELLED) or of its step (QUEUED, COLD_QUEUED, LEASED, JOINING, EXPORTING). `error`: a part
        of its text.

        Example: `for parcel in await client.parcels(flow="orders", state="ERROR"): print(parcel["error"])`
        """
        query = _chosen(flow, state, action, action_class, error, since, before)
        found: list[dict[str, Any]] = []
        while len(found) < limit:
            page = await self._dispatch(
                "GET", f"{_PARCELS}?{urlencode({**query, 'limit': min(_PAGE, limit - len(found))})}"
            )
            found += page["parcels"]
            if page["next"] is None:
                break
            query["after"] = page["next"]
        return found

    async def parcel(self, did: str) -> dict[str, Any]:
        """A parcel with its steps and everything that happened to it; `Refused` with status 404 when there is none.

        Example: `[event["event"] for event in (await client.parcel(did))["events"]]`
        """
        return await self._dispatch("GET", f"{_PARCELS}/{quoted(did)}")  # type: ignore[no-any-return]

    async def resume_parcels(
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
        """Queue parcels again that are in ERROR, by did or by what they have in common; returns how many.

        Without any choice, all of them.

        Example: `await client.resume_parcels(flow="orders", error="timeout")`
        """
        body = {"dids": list(dids), "all": True, **_chosen(flow, state, action, action_class, error, since, before)}
        return int((await self._dispatch("POST", f"{_PARCELS}/resume", body))["resumed"])

    async def cancel_parcels(
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
        """End parcels that are not finished, by did or by what they have in common; returns how many.

        `Refused` without any choice: it would end all work.

        Example: `await client.cancel_parcels([did])`
        """
        body = {"dids": list(dids), **_chosen(flow, state, action, action_class, error, since, before)}
        return int((await self._dispatch("POST", f"{_PARCELS}/cancel", body))["cancelled"])

    async def replay_parcel(self, did: str) -> str:
        """Send a parcel's messages through its flow again; returns the did of the new parcel.

        `Refused` with status 410 when messages of it are gone, 409 when its queue is another one by now.

        Example: `new_did = await client.replay_parcel(did)`
        """
        return str((await self._dispatch("POST", f"{_PARCELS}/{quoted(did)}/replay"))["did"])

    async def annotate_parcel(
        self, did: str, annotations: Mapping[str, str], *, overwrite: bool = False
    ) -> dict[str, Any]:
        """Add annotations to a parcel; returns it. `Refused` (409) when one has another value, unless `overwrite`.

        Example: `await client.annotate_parcel(did, {"checked": "yes"})`
        """
        body = {"annotations": dict(annotations), "overwrite": overwrite}
        return await self._dispatch("POST", f"{_PARCELS}/{quoted(did)}/annotate", body)  # type: ignore[no-any-return]

    async def _dispatch(self, method: str, path: str, body: object | None = None) -> Any:
        _, answer = await self._transport.request(method, path, None if body is None else encode_body(body))
        return decode_body(answer)


def _id(lease: ParcelLease | str) -> str:
    return quoted(lease if isinstance(lease, str) else lease.lease_id)


def _chosen(
    flow: str | None,
    state: str | None,
    action: str | None,
    action_class: str | None,
    error: str | None,
    since: datetime | None,
    before: datetime | None,
) -> dict[str, object]:
    given = {
        "flow": flow,
        "state": state,
        "action": action,
        "actionClass": action_class,
        "error": error,
        "since": since and since.isoformat(),
        "before": before and before.isoformat(),
    }
    return {name: value for name, value in given.items() if value is not None}
