"""The directory of buffer files: names, appending, rotation.

Everything here blocks, and is called from threads. Each step says what a crash within it leaves behind.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from forebay.errors import StoreUnavailable
from forebay.filesystem import AlreadyLocked, File, Filesystem, Kind, Lock
from forebay.ingest.buffer_writes import Appended, Lane, refusal, write_or_take_back
from forebay.ingest.failed_directory import FailedDirectory
from forebay.ingest.positions import Positions

_OWN_NAMES = {
    f"{lane}{rest}" for lane in Lane for rest in (".buf", "_processing.buf", "_processing.pos", "_processing.pos.new")
}
_OWN_NAMES |= {"append.lock", "drain.lock", "failed"}


class BufferDirectory:
    def __init__(self, filesystem: Filesystem, base: Path) -> None:
        self._filesystem = filesystem
        self.base = base
        self.failed = FailedDirectory(filesystem, base / "failed")
        self.positions = Positions(filesystem)
        self._drain_lock: Lock | None = None
        self._append_lock = base / "append.lock"
        self._active = {lane: base / f"{lane}.buf" for lane in Lane}
        self._processing = {lane: base / f"{lane}_processing.buf" for lane in Lane}

    def active(self, lane: Lane) -> Path:
        return self._active[lane]

    def processing(self, lane: Lane) -> Path:
        return self._processing[lane]

    def prepare(self) -> None:
        """Make what is missing. Whatever a crash left of it is made whole by the next start."""
        for directory in (*reversed(self.base.parents), self.base, self.failed.path):
            if self._filesystem.status(directory).kind is Kind.ABSENT:
                self._filesystem.make_directory(directory)
                self._filesystem.sync_directory(directory.parent)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """While nobody else appends or rotates, in this process or another."""
        lock = self._filesystem.wait_for_lock(self._append_lock)
        try:
            yield
        finally:
            lock.release()

    def take_drain_lock(self, owner: str) -> bool:
        """Whether this process drains. It keeps the right until it ends."""
        if self._drain_lock is None:
            try:
                self._drain_lock = self._filesystem.lock(self.base / "drain.lock", owner)
            except AlreadyLocked:
                return False
        return True

    def release_drain_lock(self) -> None:
        if self._drain_lock is not None:
            self._drain_lock.release()
            self._drain_lock = None

    # appending

    def append(
        self,
        lane: Lane,
        frames: Sequence[bytes],
        *,
        is_durable: bool,
        on_begin: Callable[[Appended], None] = lambda place: None,
    ) -> Appended:
        """Write all or nothing. A crash leaves a beginning of it, of which the scan takes the whole frames.

        `on_begin` is told where they will be, while nobody else can append.
        """
        path = self.active(lane)
        data = b"".join(frames)
        try:
            with self._alone():
                file = self._opened_to_append(path, is_durable=is_durable)
                try:
                    start = file.size()
                    place = Appended(start, start + len(data))
                    on_begin(place)
                    write_or_take_back(file, data, start, path)
                except BaseException:
                    file.close()
                    raise
        except OSError as error:
            raise refusal(path, error) from error
        # Outside the lock: whoever rotates the file away meanwhile stores what it reads.
        try:
            if is_durable:
                file.sync()
        except OSError as error:
            # The bytes may be on the disk and may be drained; nobody can take them back for sure.
            raise StoreUnavailable(f"{path}: the disk did not confirm: {error}", is_outcome_unknown=True) from error
        finally:
            file.close()
        return place

    def append_if_free(self, lane: Lane, frames: Sequence[bytes], on_written: Callable[[Appended], None]) -> bool:
        """`append`, not durable and without waiting: False when somebody else appends or rotates just now.

        `on_written` is told where the events are, while nobody else can append or rotate.
        """
        path = self.active(lane)
        data = b"".join(frames)
        try:
            lock = self._filesystem.lock_if_free(self._append_lock)
            if lock is None:
                return False
            try:
                file = self._opened_to_append(path, is_durable=False)
                try:
                    start = file.size()
                    write_or_take_back(file, data, start, path)
                finally:
                    file.close()
                on_written(Appended(start, start + len(data)))
            finally:
                lock.release()
        except OSError as error:
            raise refusal(path, error) from error
        return True

    def _opened_to_append(self, path: Path, *, is_durable: bool) -> File:
        # An empty file counts as new: whoever made it may have failed to sync its name, and then wrote nothing.
        is_new = not self.size(path)
        file = self._filesystem.open(path, create=True, append=True)
        if is_new and is_durable:  # before anybody else appends, and trusts the name to be there
            try:
                self._filesystem.sync_directory(path.parent)
            except BaseException:
                file.close()
                raise
        return file

    def size(self, path: Path) -> int:
        """0 when there is no such file."""
        return self._filesystem.status(path).size

    def waiting_bytes(self, lanes: Iterable[Lane] = Lane) -> int:
        """In the files that are appended to or drained."""
        return sum(self.size(path) for lane in lanes for path in (self.active(lane), self.processing(lane)))

    # draining

    def rotate(
        self,
        lane: Lane,
        *,
        on_begin: Callable[[int], None] = lambda size: None,
        on_renamed: Callable[[], None] = lambda: None,
    ) -> bool:
        """Let the drain have what was appended so far; False when there is nothing.

        The next append makes a new file. A crash leaves the old one under one of the two names. `on_begin` is told how
        much there is, and `on_renamed` is called, while nobody else can append.
        """
        active, processing = self.active(lane), self.processing(lane)
        if self.size(processing):
            return True
        with self._alone():
            if not (size := self.size(active)):
                return False
            if self.positions.forget(processing):  # for good, or it would count for the file that comes now
                self._filesystem.sync_directory(self.base)
            on_begin(size)
            self._filesystem.replace(active, processing)
            on_renamed()
            if lane is not Lane.QOS0:  # whose events a power cut may take anyway; and a sync would hold up all pushes
                self._filesystem.sync_directory(self.base)
        return True

    def open_to_read(self, path: Path) -> File:
        return self._filesystem.open(path)

    def remove(self, path: Path) -> None:
        """After all of it is stored. A crash may bring it back, with or without its note: ids tell."""
        self._filesystem.remove(path)
        had_position = self.positions.forget(path)
        if had_position or path != self.processing(Lane.QOS0):
            self._filesystem.sync_directory(path.parent)

    def strangers(self) -> list[str]:
        """Names that are none of ours: left alone, and told."""
        own = [name for name in self._filesystem.list_directory(self.base) if name not in _OWN_NAMES]
        return [*own, *(f"failed/{name}" for name in self.failed.strangers())]
