"""What `forebay audit` looks at beside the queues: parcels, buffer files and send queues, counted one by one.

A flow's figures are counters that the store keeps; its parcels are rows. They are listed page by page and counted by
the state of their step, and each message of the flow's source has to be in one of them (`parcel_coverage`). What moves
meanwhile is counted again, a few times, and then reported as `moving`. Buffer files and send queues are files and
memory of the server, which no one else can read while it runs: it counts them again itself (`GET
/api/v1/ledger/recount`), batch by batch and event by event, and their accounts (`GET /api/v1/ledger`) have to add up.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple
from urllib.parse import quote

from forebay.cli.parcel_coverage import coverage_faults
from forebay.client import Client, Refused

LOOKS_MAX = 5
PAGE = 1000
PARTS = {
    "QUEUED": "queued",
    "COLD_QUEUED": "cold",
    "LEASED": "leased",
    "JOINING": "joining",
    "EXPORTING": "exporting",
}
"""How the states of a parcel's step are counted; a parcel in ERROR counts as that."""
NOT_FOUND = 404


class StageBalance(NamedTuple):
    stage: str
    name: str
    accepted: int
    parts: Mapping[str, int]
    is_exact: bool
    differences: list[str]


def flow_balances(client: Client) -> list[StageBalance]:
    names = [flow["name"] for flow in client.get("/api/v1/dispatch/flows")["flows"]]
    return [found for name in names if (found := _flow_balance(client, name)) is not None]


def _flow_balance(client: Client, name: str) -> StageBalance | None:
    """None when there is no such flow any more."""
    found = None
    for _ in range(LOOKS_MAX):
        try:
            before = _flow(client, name)
            parcels = list(_parcels(client, name))
            is_exact = _moving_part(_flow(client, name)) == _moving_part(before)
            counted = _counted(parcels)
            differences = differences_of(_figures(before), counted) if is_exact else []
            if is_exact:
                differences += coverage_faults(client, before, parcels)
        except Refused as refused:
            if refused.status == NOT_FOUND:
                return None
            raise
        found = StageBalance("flow", name, sum(counted.values()), counted, is_exact, differences)
        if is_exact:
            break
    return found


def differences_of(shown: Mapping[str, int], counted: Mapping[str, int]) -> list[str]:
    return [
        f"{counted.get(part, 0)} parcels are {part}; the server counts {count}"
        for part, count in shown.items()
        if counted.get(part, 0) != count
    ]


def _flow(client: Client, name: str) -> dict[str, Any]:
    return dict(client.get(f"/api/v1/dispatch/flows/{quote(name, safe='')}"))


def _figures(flow: Mapping[str, Any]) -> dict[str, int]:
    return {part: flow[part] for part in PARTS.values()} | {"error": flow["errors"]}


def _moving_part(flow: Mapping[str, Any]) -> tuple[object, ...]:
    return _figures(flow), flow["nextSeq"], flow["version"]


def _counted(parcels: Iterable[Mapping[str, Any]]) -> Counter[str]:
    """By state; those that are over are in no account."""
    counted: Counter[str] = Counter()
    for parcel in parcels:
        if parcel["state"] == "IN_FLIGHT":
            counted[PARTS.get(parcel["stepState"], parcel["stepState"])] += 1
        elif parcel["state"] == "ERROR":
            counted["error"] += 1
    return counted


def _parcels(client: Client, flow: str) -> Iterator[dict[str, Any]]:
    query: dict[str, object] = {"flow": flow, "limit": PAGE}
    while True:
        page = client.get("/api/v1/parcels", query)
        yield from (parcel for parcel in page["parcels"] if parcel["flow"] == flow)
        if page["next"] is None:
            return
        query["after"] = page["next"]


def file_balances(client: Client) -> list[StageBalance]:
    """Buffer files and send queues, counted again by the server."""
    for _ in range(LOOKS_MAX):
        found = client.get("/api/v1/ledger/recount")
        if found["buffers"]["exact"] and all(one["exact"] for one in found["sendQueues"]):
            break
    counts = {one["name"]: one for one in found["sendQueues"]}
    accounts = [one for one in client.get("/api/v1/ledger")["accounts"] if one["stage"] == "send queue"]
    return [
        *_buffer_balances(found["buffers"]),
        *(_send_queue_balance(one, counts.get(one["name"])) for one in accounts),
    ]


def _buffer_balances(found: Mapping[str, Any]) -> Iterator[StageBalance]:
    """One for each queue of which something waits in the files, or should."""
    for name in sorted({*found["kept"], *found["counted"]}):
        kept, counted = found["kept"].get(name, 0), found["counted"].get(name, 0)
        differences = [f"{counted} messages are in the files; the server counts {kept}"] if kept != counted else []
        is_exact = found["exact"]
        yield StageBalance("buffer", name, counted, {"waiting": counted}, is_exact, differences if is_exact else [])


def _send_queue_balance(account: Mapping[str, Any], counted: Mapping[str, Any] | None) -> StageBalance:
    found, is_exact = _faults(account), counted is not None and counted["exact"]
    if counted is not None and is_exact and counted["kept"] != counted["counted"]:
        found.append(f"{counted['counted']} batches are there; the server counts {counted['kept']}")
    return StageBalance("send queue", account["name"], account["accepted"], account["parts"], is_exact, found)


def _faults(account: Mapping[str, Any]) -> list[str]:
    found = [f"{count} batches are {part}" for part, count in account["parts"].items() if count < 0]
    if account["difference"]:
        found.append(f"{account['difference']} of {account['accepted']} batches are not accounted for")
    return found
