"""Pushes and acks that happen together or not at all."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from forebay.client.addresses import Address, address_of
from forebay.client.messages import Message, TransactionFailed
from forebay.client.outgoing import all_outgoing


class Transaction:
    """What it is told is done all at once by `commit`, or not at all."""

    def __init__(self, send: Callable[[str, str, object], Awaitable[Any]]) -> None:
        self._send = send
        self._operations: list[dict[str, object]] = []

    def push(self, address: str | Address, *batch: object) -> Transaction:
        place = address_of(address)
        self._operations.append({"type": "push", "items": all_outgoing(place, batch)})
        return self

    def ack(self, message: Message, status: str = "completed", *, error: str | None = None) -> Transaction:
        answer: dict[str, object] = {
            "type": "ack",
            "consumerGroup": message.group,
            "transactionId": message.transaction_id,
            "partitionId": message.partition_id,
            "leaseId": message.lease_id,
            "status": status,
            "error": error,
        }
        self._operations.append(answer)
        return self

    async def commit(self) -> list[dict[str, Any]]:
        """Raises `TransactionFailed` when nothing of it happened."""
        outcome = await self._send("POST", "/api/v1/transaction", {"operations": self._operations})
        if not outcome["success"]:
            raise TransactionFailed(str(outcome.get("error") or "the transaction was refused"))
        return outcome["results"]  # type: ignore[no-any-return]
