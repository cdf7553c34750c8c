"""Leases that are renewed while a handler works.

Only the server knows that a lease is lost, so only its word ends the renewing. A server that cannot be reached says
nothing about the lease, which runs on meanwhile: it is tried again soon, and not after the whole interval, in which the
lease could run out. Each lease is renewed by itself: one that waits for an answer holds up no other.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable

from forebay.client.messages import ClientClosed, Unreachable

RETRY_SECONDS_MAX = 1.0
"""How long after a renewal that reached no server the next one is tried, at most."""

_log = logging.getLogger("forebay.client")

Renew = Callable[[str, int], Awaitable[bool]]
"""Renews a lease for so many seconds; False when it is lost."""


async def keep_leases(renew: Renew, lease_ids: Iterable[str], every_seconds: float) -> None:
    """Runs until it is cancelled, or all the leases are lost."""
    await asyncio.gather(*[_keep(renew, lease_id, every_seconds) for lease_id in lease_ids])


async def _keep(renew: Renew, lease_id: str, every_seconds: float) -> None:
    seconds = round(3 * every_seconds) or 1
    pause = every_seconds
    while True:
        await asyncio.sleep(pause)
        pause = every_seconds
        try:
            if not await renew(lease_id, seconds):
                _log.warning(
                    "lease %s is lost: its messages may be delivered to another consumer",
                    lease_id,
                    extra={"action": "lease_lost"},
                )
                return
        except ClientClosed:
            return
        except Unreachable as error:
            pause = min(every_seconds / 4, RETRY_SECONDS_MAX)
            _log.warning(
                "lease %s could not be renewed, next try in %.1f s: %s",
                lease_id,
                pause,
                error,
                extra={"action": "lease_not_renewed"},
            )
        except Exception:  # noqa: BLE001 -- whatever it was, the handler still works and needs its lease
            _log.exception(
                "lease %s could not be renewed, next try in %.1f s",
                lease_id,
                pause,
                extra={"action": "lease_not_renewed"},
            )
