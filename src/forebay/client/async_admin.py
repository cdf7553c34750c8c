"""What `AsyncClient` can do beside messages: queues, groups, dead letters, and any other route."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from datetime import datetime
from typing import Any
from urllib.parse import urlencode

from forebay.client.addresses import Address, address_of
from forebay.client.messages import decode_body, encode_body
from forebay.client.paths import quoted, seek_path
from forebay.client.transport import Transport

_READ_AT_ONCE = 1000


class AsyncAdmin:
    """Every call raises `Refused` for what the server will not do, and `Unreachable` when no server could do it."""

    _transport: Transport

    async def configure(
        self, queue: str, options: Mapping[str, object] | None = None, *, namespace: str = "", task: str = ""
    ) -> dict[str, Any]:
        """Make the queue, or replace its options (`leaseTime`, `retryLimit`, …); those not given get their defaults.

        Returns the queue with all its options. `Refused` names an option that is not known or out of bounds.

        Example: `await client.configure("orders", {"leaseTime": 60, "completedRetentionSeconds": 86_400})`
        """
        body = {"queue": queue, "namespace": namespace, "task": task, "options": dict(options or {})}
        return await self._json("POST", "/api/v1/configure", body)  # type: ignore[no-any-return]

    async def queues(
        self, *, search: str = "", limit: int = 100, offset: int = 0, internal: bool = False
    ) -> list[dict[str, Any]]:
        """Queues by name, those whose names contain `search`: with what each holds, what waits, is leased, is dead.

        `internal`: also those that Forebay makes for itself (`.flow.…`, `.export.…`).

        Example: `[queue["name"] for queue in await client.queues(search="orders")]`
        """
        query = {"search": search, "limit": limit, "offset": offset, "internal": str(internal).lower()}
        return (await self.get("/api/v1/resources/queues", query))["queues"]  # type: ignore[no-any-return]

    async def delete_queue(self, queue: str) -> bool:
        """Delete a queue with its messages, groups and dead letters. False when there was none.

        Example: `await client.delete_queue("orders")`
        """
        return bool((await self._json("DELETE", f"/api/v1/resources/queues/{quoted(queue)}"))["deleted"])

    async def clear_queue(self, queue: str, *, partition: str | None = None) -> int:
        """Remove the messages that a queue, or one partition, holds now; returns how many. `Refused` if it is unknown.

        Example: `await client.clear_queue("orders", partition="berlin")`
        """
        query = "" if partition is None else f"?{urlencode({'partition': partition})}"
        return int((await self._json("DELETE", f"/api/v1/queues/{quoted(queue)}/clear{query}"))["removed"])

    async def groups(self, *, internal: bool = False) -> list[dict[str, Any]]:
        """Every group on every queue, with how far it is behind, in messages and in seconds.

        `internal`: also on queues that Forebay makes for itself.

        Example: `[group for group in await client.groups() if group["totalLag"]]`
        """
        return await self.get("/api/v1/consumer-groups", {"internal": str(internal).lower()})  # type: ignore[no-any-return]

    async def seek(
        self,
        address: str | Address,
        *,
        seq: int | None = None,
        time: datetime | None = None,
        to_end: bool = False,
    ) -> dict[str, Any]:
        """Set where the address's group reads next: at a seq, at a time, or behind everything there is.

        Give one of the three. Leases of the group end. `Refused` if there is no such queue.

        Example: `await client.seek("orders@billing", seq=1)`
        """
        body = _seek_target(seq, time, to_end)
        return await self._json("POST", seek_path(address_of(address)), body)  # type: ignore[no-any-return]

    async def preview_seek(
        self,
        address: str | Address,
        *,
        seq: int | None = None,
        time: datetime | None = None,
        to_end: bool = False,
    ) -> dict[str, Any]:
        """What such a `seek` would do now, in messages: `skipped`, `repeated`, `leased`, `waiting`, `waitingAfter`.

        Nothing changes. `fromSeq` is what the target stands for: a seek to it does what was previewed, also if more is
        pushed meanwhile. Arguments and errors are those of `seek`.

        Example: `(await client.preview_seek("orders@billing", to_end=True))["skipped"]`
        """
        query = _seek_target(seq, time, to_end) | ({"toEnd": "true"} if to_end else {})
        return await self.get(seek_path(address_of(address)), query)  # type: ignore[no-any-return]

    async def dead_letters(
        self,
        queue: str | None = None,
        *,
        group: str | None = None,
        partition: str | None = None,
        transaction_id: str | None = None,
        limit: int = 100,
        offset: int = 0,
    ) -> list[dict[str, Any]]:
        """Dead letters, the newest first, each with `errorMessage` and the message's `data`.

        Example: `for letter in await client.dead_letters("orders", group="billing"): print(letter["errorMessage"])`
        """
        query = _chosen(queue, group, partition, transaction_id) | {"limit": limit, "offset": offset}
        return (await self.get("/api/v1/dlq", query))["messages"]  # type: ignore[no-any-return]

    async def replay_dead_letters(
        self,
        queue: str | None = None,
        *,
        group: str | None = None,
        partition: str | None = None,
        transaction_id: str | None = None,
        to_all_groups: bool = False,
    ) -> int:
        """Push dead letters again, each for the group in which it died, or for every group; returns how many.

        Without any choice, all of them. If a queue is full, those before it stay replayed.

        Example: `await client.replay_dead_letters("orders", group="billing")`
        """
        body = _chosen(queue, group, partition, transaction_id) | {"all": True, "toAllGroups": to_all_groups}
        return int((await self.post("/api/v1/dlq/replay", body))["replayed"])

    async def purge_dead_letters(
        self,
        queue: str | None = None,
        *,
        group: str | None = None,
        partition: str | None = None,
        transaction_id: str | None = None,
    ) -> int:
        """Throw dead letters away; without any choice, all of them. Returns how many.

        Example: `await client.purge_dead_letters("orders")`
        """
        body = _chosen(queue, group, partition, transaction_id) | {"all": True}
        return int((await self.post("/api/v1/dlq/purge", body))["purged"])

    async def read(self, queue: str, from_seq: int = 1, *, limit: int | None = None) -> AsyncIterator[dict[str, Any]]:
        """Messages of a queue as they are kept, in order, without a group; up to what is there now, or `limit`.

        Example: `async for message in client.read("orders", limit=10): print(message["data"])`
        """
        left = limit
        while left is None or left > 0:
            size = _READ_AT_ONCE if left is None else min(left, _READ_AT_ONCE)
            answer = await self.get("/api/v1/messages", {"queue": queue, "fromSeq": from_seq, "limit": size})
            for message in answer["messages"]:
                yield message
            left = None if left is None else left - len(answer["messages"])
            if answer["nextSeq"] is None:
                return
            from_seq = answer["nextSeq"]

    async def get(self, path: str, query: Mapping[str, object] | None = None) -> Any:
        """Any of the server's GET routes, which its `/docs` describes; returns the decoded answer.

        Example: `await client.get("/api/v1/status")`
        """
        return await self._json("GET", f"{path}?{urlencode(query)}" if query else path)

    async def post(self, path: str, body: object) -> Any:
        """Any of the server's POST routes, with a body that becomes JSON; returns the decoded answer.

        Example: `await client.post("/api/v1/system/maintenance", {"enabled": True})`
        """
        return await self._json("POST", path, body)

    async def delete(self, path: str) -> Any:
        """Any of the server's DELETE routes; returns the decoded answer.

        Example: `await client.delete("/api/v1/keys/1f0c2d")`
        """
        return await self._json("DELETE", path)

    async def _json(self, method: str, path: str, body: object | None = None) -> Any:
        _, answer = await self._transport.request(method, path, None if body is None else encode_body(body))
        return decode_body(answer) if answer else None


def _chosen(
    queue: str | None, group: str | None, partition: str | None, transaction_id: str | None
) -> dict[str, object]:
    given = {"queue": queue, "consumerGroup": group, "partition": partition, "transactionId": transaction_id}
    return {name: value for name, value in given.items() if value is not None}


def _seek_target(seq: int | None, time: datetime | None, to_end: bool) -> dict[str, object]:
    given = {"seq": seq, "timestamp": None if time is None else time.isoformat(), "toEnd": to_end or None}
    return {name: value for name, value in given.items() if value is not None}
