"""`DispatchWorker` for programs without an event loop: handlers run in threads."""

from __future__ import annotations

from collections.abc import Mapping

from forebay.client.dispatch_worker import DispatchWorker, Handler
from forebay.client.sync_client import Client


class SyncDispatchWorker:
    """Use it as `SyncDispatchWorker(client, {"geo.*": handler}).run()`; the arguments are those of `DispatchWorker`."""

    def __init__(
        self,
        client: Client,
        handlers: Mapping[str, Handler],
        *,
        name: str = "",
        parcels: int = 10,
        messages: int = 0,
        wait_seconds: float = 20.0,
        plugin: str = "",
        same_step: bool = False,
    ) -> None:
        self._client = client
        self._worker = DispatchWorker(
            client._client,  # noqa: SLF001 -- the same package: no other may run what it runs
            handlers,
            name=name,
            parcels=parcels,
            messages=messages,
            wait_seconds=wait_seconds,
            plugin=plugin,
            same_step=same_step,
        )

    @property
    def name(self) -> str:
        return self._worker.name

    @property
    def completed(self) -> int:
        """Parcels whose outcome the server took, since the worker began."""
        return self._worker.completed

    def run(self, *, once: bool = False) -> None:
        """Until `stop` is called, from another thread or a signal handler; with `once` until there is nothing.

        Raises `Refused` for a key that may not consume, and `ClientClosed` when the client is closed under it.

        Example: `SyncDispatchWorker(client, {"geo.*": geocode}).run()`
        """
        self._client._run(self._worker.run(once=once))  # noqa: SLF001

    def stop(self) -> None:
        """Lease no more; `run` returns when the parcels at hand are completed.

        Example: `worker.stop()`
        """
        self._client._run(self._stop())  # noqa: SLF001

    async def _stop(self) -> None:
        self._worker.stop()
