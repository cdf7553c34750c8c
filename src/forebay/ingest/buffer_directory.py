"""The directory of buffer files: names, appending, rotation.

Everything here blocks, and is called from threads. Each step says what a crash within it leaves behind.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from forebay.errors import StoreUnavailable
from forebay.filesystem import AlreadyLocked, File, Filesystem, Lock, make_directories
from forebay.ingest.buffer_writes import Appended, BufferKind, refusal, write_or_take_back
from forebay.ingest.failed_directory import FailedDirectory
from forebay.ingest.positions import Positions

_OWN_NAMES = {
    f"{kind}{rest}"
    for kind in BufferKind
    for rest in (".buf", "_processing.buf", "_processing.pos", "_processing.pos.new")
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
        self._active = {kind: base / f"{kind}.buf" for kind in BufferKind}
        self._processing = {kind: base / f"{kind}_processing.buf" for kind in BufferKind}

    def active(self, kind: BufferKind) -> Path:
        return self._active[kind]

    def processing(self, kind: BufferKind) -> Path:
        return self._processing[kind]

    def prepare(self) -> None:
        """Make what is missing. Whatever a crash left of it is made whole by the next start."""
        make_directories(self._filesystem, self.base, self.failed.path)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """While nothing else appends or rotates, in this process or another."""
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
        kind: BufferKind,
        frames: Sequence[bytes],
        *,
        is_durable: bool,
        on_begin: Callable[[Appended], None] = lambda place: None,
    ) -> Appended:
        """Write all or nothing. A crash leaves a beginning of it, of which the scan takes the whole frames.

        `on_begin` is given where they will be, while no other can append.
        """
        path = self.active(kind)
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
        # Outside the lock: a process that rotates the file away meanwhile stores what it reads.
        try:
            if is_durable:
                file.sync()
        except OSError as error:
            # The bytes may be on the disk and may be drained; they cannot be taken back for sure.
            raise StoreUnavailable(f"{path}: the disk did not confirm: {error}", is_outcome_unknown=True) from error
        finally:
            file.close()
        return place

    def append_if_free(self, kind: BufferKind, frames: Sequence[bytes], on_written: Callable[[Appended], None]) -> bool:
        """`append`, not durable and without waiting: False when another appends or rotates just now.

        `on_written` is given where the events are, while no other can append or rotate.
        """
        path = self.active(kind)
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
        # An empty file counts as new: the process that made it may have failed to sync its name, and then wrote
        # nothing.
        is_new = not self.size(path)
        file = self._filesystem.open(path, create=True, append=True)
        if is_new and is_durable:  # before another process appends, and trusts the name to be there
            try:
                self._filesystem.sync_directory(path.parent)
            except BaseException:
                file.close()
                raise
        return file

    def size(self, path: Path) -> int:
        """0 when there is no such file."""
        return self._filesystem.status(path).size

    def waiting_bytes(self, kinds: Iterable[BufferKind] = BufferKind) -> int:
        """In the files that are appended to or drained."""
        return sum(self.size(path) for kind in kinds for path in (self.active(kind), self.processing(kind)))

    # draining

    def rotate(
        self,
        kind: BufferKind,
        *,
        on_begin: Callable[[int], None] = lambda size: None,
        on_renamed: Callable[[], None] = lambda: None,
    ) -> bool:
        """Let the drain have what was appended so far; False when there is nothing.

        The next append makes a new file. A crash leaves the old one under one of the two names. `on_begin` is given how
        much there is, and `on_renamed` is called, while no other can append.
        """
        active, processing = self.active(kind), self.processing(kind)
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
            if (
                kind is not BufferKind.QOS0
            ):  # whose events a power cut may take anyway; and a sync would hold up all pushes
                self._filesystem.sync_directory(self.base)
        return True

    def open_to_read(self, path: Path) -> File:
        return self._filesystem.open(path)

    def remove(self, path: Path) -> None:
        """After all of it is stored. A crash may bring it back, with or without its note: ids tell."""
        self._filesystem.remove(path)
        had_position = self.positions.forget(path)
        if had_position or path != self.processing(BufferKind.QOS0):
            self._filesystem.sync_directory(path.parent)

    def strangers(self) -> list[str]:
        """Names that are none of ours: left alone, and reported."""
        own = [name for name in self._filesystem.list_directory(self.base) if name not in _OWN_NAMES]
        return [*own, *(f"failed/{name}" for name in self.failed.strangers())]
