"""Paths of requests."""

from __future__ import annotations

from functools import lru_cache
from urllib.parse import quote, urlencode

from forebay.client.addresses import Address


def quoted(name: str) -> str:
    return quote(name, safe="")


@lru_cache(maxsize=256)
def pop_path(
    place: Address,
    batch: int,
    wait: bool,
    timeout_ms: int,
    auto_ack: bool,
    partitions: int,
    subscription_mode: str | None,
    subscription_from: str | None,
) -> str:
    """Path and query of a pop. Consumers ask the same again and again, so they are remembered."""
    query: dict[str, object] = {
        "shape": "columns",
        "packed": "true",
        "batch": batch,
        "wait": "true" if wait else "false",
        "timeout": timeout_ms,
        "consumerGroup": place.group,
        "autoAck": "true" if auto_ack else "false",
        "partitions": partitions,
    }
    if subscription_mode is not None:
        query["subscriptionMode"] = subscription_mode
    if subscription_from is not None:
        query["subscriptionFrom"] = subscription_from
    path = f"/api/v1/pop/queue/{quoted(place.queue)}"
    if place.partition is not None:
        path += f"/partition/{quoted(place.partition)}"
    return f"{path}?{urlencode(query)}"


def seek_path(place: Address) -> str:
    path = f"/api/v1/consumer-groups/{quoted(place.group)}/queues/{quoted(place.queue)}"
    if place.partition is not None:
        path += f"/partitions/{quoted(place.partition)}"
    return f"{path}/seek"
