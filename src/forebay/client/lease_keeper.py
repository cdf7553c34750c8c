"""Heartbeats for a lease of parcels while a worker has them."""

from __future__ import annotations

import asyncio
import logging

from forebay.client.async_client import AsyncClient
from forebay.client.messages import ClientClosed, Refused, Unreachable
from forebay.client.parcels import ParcelLease

RETRY_SECONDS = 1.0
"""How long after a request that reached no server the next one is tried."""

_log = logging.getLogger("forebay.client")


class LeaseKeeper:
    """Sends heartbeats until the lease is lost: by the server's word, or because its time is over unheard."""

    def __init__(self, client: AsyncClient, lease: ParcelLease) -> None:
        self.is_lost = False
        self._client = client
        self._lease = lease

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        ends = loop.time() + self._lease.lease_seconds
        pause = self._lease.heartbeat_seconds
        while True:
            await asyncio.sleep(pause)
            began = loop.time()
            try:
                if not await self._client.heartbeat(self._lease):
                    break
            except ClientClosed:
                return
            except (Unreachable, Refused) as error:
                _log.warning(
                    "lease %s could not be prolonged: %s",
                    self._lease.lease_id,
                    error,
                    extra={"action": "lease_not_renewed"},
                )
                if loop.time() >= ends:
                    break
                pause = min(self._lease.heartbeat_seconds / 4, RETRY_SECONDS)
                continue
            ends = began + self._lease.lease_seconds
            pause = self._lease.heartbeat_seconds
        self.is_lost = True
        _log.warning(
            "lease %s is lost: its parcels go to another worker", self._lease.lease_id, extra={"action": "lease_lost"}
        )
