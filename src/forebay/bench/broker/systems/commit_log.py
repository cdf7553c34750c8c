"""The commit log alone: no HTTP, no index, no queues. What the embedded store cannot be faster than."""

from __future__ import annotations

import os
import shutil
import time
import uuid
from collections.abc import Sequence
from pathlib import Path

from forebay.bench.batched_log import BatchedLog
from forebay.bench.broker.systems.system import PushesOnly
from forebay.commitlog import CommitLog
from forebay.model.message import MessageBatch


class BareLog(PushesOnly):
    def __init__(self) -> None:
        self.place = ""
        self._log: CommitLog | None = None
        self._appends: BatchedLog | None = None

    async def open(self, url: str, lanes: int) -> None:
        self._directory = Path(url)

    async def close(self) -> None:
        if self._log is not None:
            self._log.close()
            shutil.rmtree(self._directory / self.place)
            self._log = self._appends = None

    async def empty_place(self) -> None:
        await self.close()
        self.place = uuid.uuid4().hex
        self._log = CommitLog.open(self._directory / self.place)
        self._appends = BatchedLog(self._log)

    def prepared(self, texts: Sequence[str], lane: int) -> MessageBatch:
        count = len(texts)
        ids = [os.urandom(18).hex().encode() for _ in range(count)]
        now_us = time.time_ns() // 1000
        payloads = [f'"{text}"'.encode() for text in texts]
        return MessageBatch(payloads, [now_us] * count, [str(lane).encode()] * count, ids)

    async def push(self, lane: int, messages: MessageBatch) -> None:
        if self._appends is not None:
            await self._appends.append(messages)
