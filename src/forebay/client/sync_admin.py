"""What `Client` can do beside messages: as `AsyncAdmin` and `AsyncArrow`, without `async`.

Arguments and errors of each method are those of the asynchronous one of the same name.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Coroutine, Iterator, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar

from forebay.client.addresses import Address
from forebay.client.messages import Committed

if TYPE_CHECKING:
    import pyarrow as pa

    from forebay.client.arrow import Rows
    from forebay.client.async_client import AsyncClient

T = TypeVar("T")


class SyncAdmin:
    _client: AsyncClient

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        raise NotImplementedError

    def configure(
        self, queue: str, options: Mapping[str, object] | None = None, *, namespace: str = "", task: str = ""
    ) -> dict[str, Any]:
        """Make the queue, or replace its options; see `AsyncClient.configure`.

        Example: `client.configure("orders", {"leaseTime": 60, "completedRetentionSeconds": 86_400})`
        """
        return self._run(self._client.configure(queue, options, namespace=namespace, task=task))

    def queues(
        self, *, search: str = "", limit: int = 100, offset: int = 0, internal: bool = False
    ) -> list[dict[str, Any]]:
        """Queues by name, with what each holds; see `AsyncClient.queues`.

        Example: `[queue["name"] for queue in client.queues(search="orders")]`
        """
        return self._run(self._client.queues(search=search, limit=limit, offset=offset, internal=internal))

    def delete_queue(self, queue: str) -> bool:
        """Delete a queue with all that it holds; see `AsyncClient.delete_queue`.

        Example: `client.delete_queue("orders")`
        """
        return self._run(self._client.delete_queue(queue))

    def clear_queue(self, queue: str, *, partition: str | None = None) -> int:
        """Remove the messages of a queue or partition; see `AsyncClient.clear_queue`.

        Example: `client.clear_queue("orders", partition="berlin")`
        """
        return self._run(self._client.clear_queue(queue, partition=partition))

    def groups(self, *, internal: bool = False) -> list[dict[str, Any]]:
        """Every group on every queue, with its lag; see `AsyncClient.groups`.

        Example: `[group for group in client.groups() if group["totalLag"]]`
        """
        return self._run(self._client.groups(internal=internal))

    def seek(
        self, address: str | Address, *, seq: int | None = None, time: datetime | None = None, to_end: bool = False
    ) -> dict[str, Any]:
        """Set where the address's group reads next; see `AsyncClient.seek`.

        Example: `client.seek("orders@billing", seq=1)`
        """
        return self._run(self._client.seek(address, seq=seq, time=time, to_end=to_end))

    def preview_seek(
        self, address: str | Address, *, seq: int | None = None, time: datetime | None = None, to_end: bool = False
    ) -> dict[str, Any]:
        """What such a seek would skip and repeat; nothing changes. See `AsyncClient.preview_seek`.

        Example: `client.preview_seek("orders@billing", to_end=True)["skipped"]`
        """
        return self._run(self._client.preview_seek(address, seq=seq, time=time, to_end=to_end))

    def dead_letters(
        self,
        queue: str | None = None,
        *,
        group: str | None = None,
        partition: str | None = None,
        transaction_id: str | None = None,
        limit: int = 100,
        offset: int = 0,
    ) -> list[dict[str, Any]]:
        """Dead letters, the newest first; see `AsyncClient.dead_letters`.

        Example: `for letter in client.dead_letters("orders", group="billing"): print(letter["errorMessage"])`
        """
        found = self._client.dead_letters(
            queue, group=group, partition=partition, transaction_id=transaction_id, limit=limit, offset=offset
        )
        return self._run(found)

    def replay_dead_letters(
        self,
        queue: str | None = None,
        *,
        group: str | None = None,
        partition: str | None = None,
        transaction_id: str | None = None,
        to_all_groups: bool = False,
    ) -> int:
        """Push dead letters again, each for its group or for all; see `AsyncClient.replay_dead_letters`.

        Example: `client.replay_dead_letters("orders", group="billing")`
        """
        done = self._client.replay_dead_letters(
            queue, group=group, partition=partition, transaction_id=transaction_id, to_all_groups=to_all_groups
        )
        return self._run(done)

    def purge_dead_letters(
        self,
        queue: str | None = None,
        *,
        group: str | None = None,
        partition: str | None = None,
        transaction_id: str | None = None,
    ) -> int:
        """Throw dead letters away; see `AsyncClient.purge_dead_letters`.

        Example: `client.purge_dead_letters("orders")`
        """
        done = self._client.purge_dead_letters(queue, group=group, partition=partition, transaction_id=transaction_id)
        return self._run(done)

    def read(self, queue: str, from_seq: int = 1, *, limit: int | None = None) -> Iterator[dict[str, Any]]:
        """Messages of a queue as they are kept, without a group; see `AsyncClient.read`.

        Example: `for message in client.read("orders", limit=10): print(message["data"])`
        """
        yield from self._each(self._client.read(queue, from_seq, limit=limit))

    def iter_arrow(
        self,
        queue: str,
        from_seq: int | None = None,
        to_seq: int | None = None,
        *,
        partitions: Sequence[str] = (),
        limit: int | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """Messages of a queue as Arrow batches; see `AsyncClient.iter_arrow`.

        Example: `for batch in client.iter_arrow("orders"): print(batch.num_rows)`
        """
        yield from self._each(self._client.iter_arrow(queue, from_seq, to_seq, partitions=partitions, limit=limit))

    def _each(self, found: AsyncIterator[T]) -> Iterator[T]:
        while (one := self._run(_next_or_none(found))) is not None:
            yield one

    def read_arrow(
        self,
        queue: str,
        from_seq: int | None = None,
        to_seq: int | None = None,
        *,
        partitions: Sequence[str] = (),
        limit: int | None = None,
    ) -> pa.Table:
        """A queue as an Arrow table; see `AsyncClient.read_arrow`.

        Example: `client.read_arrow("orders", limit=1_000).to_pandas()`
        """
        return self._run(self._client.read_arrow(queue, from_seq, to_seq, partitions=partitions, limit=limit))

    def stage(
        self, queue: str, rows: Rows, *, producer: str, epoch: str | int, part: str = "", write: str = ""
    ) -> list[str]:
        """Send rows that no reader sees before `commit` names their stages; see `AsyncClient.stage`.

        Example: `stages = client.stage("orders", table, producer="nightly", epoch="2026-01-31")`
        """
        return self._run(self._client.stage(queue, rows, producer=producer, epoch=epoch, part=part, write=write))

    def commit(
        self, stages: Sequence[str], *, producer: str, epoch: str | int, write: str = "", queue: str | None = None
    ) -> Committed:
        """Make staged rows messages, once for the producer's epoch; see `AsyncClient.commit`.

        Example: `client.commit(stages, producer="nightly", epoch="2026-01-31")`
        """
        return self._run(self._client.commit(stages, producer=producer, epoch=epoch, write=write, queue=queue))

    def abort(self, *, producer: str, epoch: str | int, write: str = "", queue: str | None = None) -> int:
        """Forget what was staged and not committed; see `AsyncClient.abort`.

        Example: `client.abort(producer="nightly", epoch="2026-01-31")`
        """
        return self._run(self._client.abort(producer=producer, epoch=epoch, write=write, queue=queue))

    def get(self, path: str, query: Mapping[str, object] | None = None) -> Any:
        """Any of the server's GET routes; see `AsyncClient.get`.

        Example: `client.get("/api/v1/status")`
        """
        return self._run(self._client.get(path, query))

    def post(self, path: str, body: object) -> Any:
        """Any of the server's POST routes; see `AsyncClient.post`.

        Example: `client.post("/api/v1/system/maintenance", {"enabled": True})`
        """
        return self._run(self._client.post(path, body))

    def delete(self, path: str) -> Any:
        """Any of the server's DELETE routes; see `AsyncClient.delete`.

        Example: `client.delete("/api/v1/keys/1f0c2d")`
        """
        return self._run(self._client.delete(path))


async def _next_or_none(found: AsyncIterator[T]) -> T | None:
    return await anext(found, None)
