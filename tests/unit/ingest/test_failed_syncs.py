"""A disk that does not confirm a push: the embedded store seals its segment, and the buffer takes the message."""

from __future__ import annotations

import errno
from pathlib import Path

from fixtures.buffer_steps import QUICK, drained, message, until
from fixtures.embedded_stores import opened
from forebay.broker.stores.embedded import EmbeddedStore
from forebay.clock import SystemClock
from forebay.filesystem import RealFilesystem
from forebay.ingest import Intake
from forebay.testing.faulty_filesystem import Fail, Fault, FaultyFilesystem, Operation


class SickDisk:
    """Fails every sync of a segment while `is_sick`."""

    def __init__(self) -> None:
        self.is_sick = False
        self.failures = 0

    def __call__(self, operation: Operation) -> Fault | None:
        if not self.is_sick or operation.name != "sync" or operation.path.suffix != ".data":
            return None
        self.failures += 1
        return Fail(errno.EIO)


async def test_push_that_the_log_could_not_sync_is_buffered_and_stored_once_in_order(tmp_path: Path) -> None:
    disk = SickDisk()
    store = EmbeddedStore(tmp_path / "data", filesystem=FaultyFilesystem(RealFilesystem(), disk))
    patient = QUICK._replace(store_seconds=20.0)
    intake = Intake(store, RealFilesystem(), tmp_path / "buffers", SystemClock(), limits=patient)
    await intake.start(lambda queue, count: None)
    assert [one.status for one in await intake.push([message("1")])] == ["queued"]
    disk.is_sick = True
    told = [one for text in "234" for one in await intake.push([message(text)])]
    assert [(one.status, one.receipt) for one in told] == [("buffered", "buffer")] * 3
    assert disk.failures > 0
    assert not intake.is_db_healthy
    disk.is_sick = False
    await drained(intake)
    await until(lambda: intake.is_db_healthy)
    assert [one.status for one in await intake.push([message("5")])] == ["queued"]
    await intake.stop()
    await store.close()
    again = await opened(tmp_path / "data")
    assert [one.payload for one in await again.read("orders", 1, 100)] == [b'"%d"' % n for n in range(1, 6)]
    assert await again.lost_messages() == []
    await again.close()
