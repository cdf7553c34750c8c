"""Pushes and acks that happen together or not at all."""

from __future__ import annotations

from typing import Any

import msgspec

from forebay.client.addresses import Address, target_of
from forebay.client.connection import Tries
from forebay.client.messages import Message, OutcomeUnknown, Refused, TransactionFailed
from forebay.client.outgoing import all_outgoing, encoded
from forebay.client.transport import Transport

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.decode


class Transaction:
    """What is called on it is done all at once by `commit`, or not at all."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._tries = Tries()  # of all commits together: one that ended without an answer may have been carried out
        self._operations: list[dict[str, object]] = []

    def push(self, address: str | Address, *batch: object) -> Transaction:
        """Add messages, in order; returns the transaction. `ValueError` for an address that names a group, or NaN.

        Example: `client.transaction().push("invoices", {"order": 7}).ack(message)`
        """
        items = encoded(all_outgoing(target_of(address), batch))
        self._operations.append({"type": "push", "items": msgspec.Raw(items)})
        return self

    def ack(self, message: Message, status: str = "completed", *, error: str | None = None) -> Transaction:
        """Add the answer for a message (`completed`, `failed`, `retry` or `dlq`); returns the transaction.

        Example: `transaction.ack(message, "failed", error="no such customer")`
        """
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
        """Do all of it; returns one result for each push and ack.

        Raises `TransactionFailed` when nothing of it happened, and `OutcomeUnknown` when that cannot be known any more.

        The latter comes of an answer that got lost: the transaction is sent again, and is refused either for a reason
        of its own or because the first try has done it and its leases are finished.
        """
        body = _encode({"operations": self._operations})
        try:
            _, answer = await self._transport.request("POST", "/api/v1/transaction", body, tries=self._tries)
        except Refused as refused:
            if self._tries.unanswered:
                raise _unknown(str(refused)) from refused
            raise
        outcome = _decode(answer)
        if outcome["success"]:
            return outcome["results"]  # type: ignore[no-any-return]
        reason = str(outcome.get("error") or "the transaction was refused")
        raise _unknown(reason) if self._tries.unanswered else TransactionFailed(reason)


def _unknown(reason: str) -> OutcomeUnknown:
    return OutcomeUnknown(
        f"the transaction may or may not have happened: the answer to an earlier try was lost, and then: {reason}"
    )
