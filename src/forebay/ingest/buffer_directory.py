"""The directory of buffer files: names, appending, rotation, positions, and what is set aside.

Everything here blocks, and is called from threads. Each step says what a crash within it leaves behind.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

from forebay.commitlog.filesystem import AlreadyLocked, File, Filesystem, Kind, Lock, is_disk_full, write_fully
from forebay.errors import StoreUnavailable
from forebay.ingest.frames import Damage


class Lane(StrEnum):
    """The two kinds of buffer files."""

    FAILOVER = "failover"
    QOS0 = "qos0"


class BufferFull(Exception):
    """There is no room for the events, and nothing of them was kept."""


class Appended(NamedTuple):
    """Where the events are in the file."""

    start: int
    end: int


class FailedFile(NamedTuple):
    path: Path
    lane: Lane
    size: int


_FAILED_NAME = re.compile(r"(?P<lane>failover|qos0)_\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{6})?\.buf")
_OWN_NAMES = {
    f"{lane}{rest}" for lane in Lane for rest in (".buf", "_processing.buf", "_processing.pos", "_processing.pos.new")
}
_OWN_NAMES |= {"append.lock", "drain.lock", "failed"}


class BufferDirectory:
    def __init__(self, filesystem: Filesystem, base: Path) -> None:
        self._filesystem = filesystem
        self.base = base
        self.failed = base / "failed"
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
        for directory in (*reversed(self.base.parents), self.base, self.failed):
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
                    self._write(file, data, start, path)
                except BaseException:
                    file.close()
                    raise
        except OSError as error:
            raise _refusal(path, error) from error
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
                    self._write(file, data, start, path)
                finally:
                    file.close()
                on_written(Appended(start, start + len(data)))
            finally:
                lock.release()
        except OSError as error:
            raise _refusal(path, error) from error
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

    def _write(self, file: File, data: bytes, start: int, path: Path) -> None:
        try:
            write_fully(file, [data], start)
        except OSError as error:
            try:
                file.truncate(start)
            except OSError as again:
                # Whole frames of it may stay, and be drained.
                message = f"{path}: {error}, and what was written could not be taken back: {again}"
                raise StoreUnavailable(message, is_outcome_unknown=True) from again
            raise _refusal(path, error) from error

    def size(self, path: Path) -> int:
        """0 when there is no such file."""
        return self._filesystem.status(path).size

    def waiting_bytes(self) -> int:
        """In the files that are appended to or drained."""
        return sum(self.size(path) for lane in Lane for path in (self.active(lane), self.processing(lane)))

    def failed_bytes(self) -> int:
        return sum(failed.size for failed in self.failed_files())

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
            if self._forget_position(processing):  # for good, or it would count for the file that comes now
                self._filesystem.sync_directory(self.base)
            on_begin(size)
            self._filesystem.replace(active, processing)
            on_renamed()
            if lane is not Lane.QOS0:  # whose events a power cut may take anyway; and a sync would hold up all pushes
                self._filesystem.sync_directory(self.base)
        return True

    def open_to_read(self, path: Path) -> File:
        return self._filesystem.open(path)

    def position(self, path: Path) -> int:
        """How far the file was drained. 0 when the note is missing or unreadable: ids tell what is stored already.

        A failed file may have grown since.
        """
        note = path.with_suffix(".pos")
        if self._filesystem.status(note).kind is not Kind.FILE:
            return 0
        file = self._filesystem.open(note)
        try:
            text = file.read_at(64, 0)
        finally:
            file.close()
        found = re.fullmatch(rb"(\d+) of (\d+)\n", text)
        return int(found[1]) if found and int(found[1]) <= int(found[2]) <= self.size(path) else 0

    def note_position(self, path: Path, position: int) -> None:
        """Replaced as a whole: a crash leaves the old note or the new one."""
        note = path.with_suffix(".pos")
        written = note.with_suffix(".pos.new")
        file = self._filesystem.open(written, create=True)
        try:
            file.truncate(0)
            write_fully(file, [b"%d of %d\n" % (position, self.size(path))], 0)
            file.sync()
        finally:
            file.close()
        self._filesystem.replace(written, note)

    def _forget_position(self, path: Path) -> bool:
        """Whether there was one."""
        note = path.with_suffix(".pos")
        if self._filesystem.status(note).kind is Kind.ABSENT:
            return False
        self._filesystem.remove(note)
        return True

    def remove(self, path: Path) -> None:
        """After all of it is stored. A crash may bring it back, with or without its note: ids tell."""
        self._filesystem.remove(path)
        had_position = self._forget_position(path)
        if had_position or path != self.processing(Lane.QOS0):
            self._filesystem.sync_directory(path.parent)

    # what the drain cannot store

    def failed_files(self) -> list[FailedFile]:
        """Oldest first."""
        return [
            FailedFile(self.failed / name, Lane(found["lane"]), self.size(self.failed / name))
            for name in self._filesystem.list_directory(self.failed)
            if (found := _FAILED_NAME.fullmatch(name))
        ]

    def append_failed(self, path: Path, frames: Sequence[bytes]) -> Appended:
        """Move refused events here, durably; or raise, and leave the file as it was, as far as the disk allows that.

        A crash before their old place is given up leaves them twice: ids tell.
        """
        data = b"".join(frames)
        file = self._filesystem.open(path, create=True, append=True)
        try:
            start = file.size()
            try:
                self._write(file, data, start, path)
                file.sync()
                self._filesystem.sync_directory(self.failed)
            except (OSError, BufferFull, StoreUnavailable):
                # They stay where they were and are moved again: what is here of them would be here twice.
                with suppress(OSError):
                    if start:
                        file.truncate(start)
                    else:
                        self._filesystem.remove(path)
                raise
        finally:
            file.close()
        return Appended(start, start + len(data))

    def set_aside(self, lane: Lane, source: Path, damage: Damage, now_us: int) -> Path:
        """Keep damaged bytes where somebody can look at them. A crash in the drain may leave them twice."""
        file = self._filesystem.open(source)
        try:
            data = file.read_at(damage.size, damage.position)
        finally:
            file.close()
        path = self.new_failed(lane, now_us).with_suffix(".damaged")
        self.append_failed(path, [data])
        return path

    def new_failed(self, lane: Lane, now_us: int) -> Path:
        """A name that sorts behind all others of its kind."""
        while True:
            path = self.failed / f"{lane}_{datetime.fromtimestamp(now_us / 1e6, UTC):%Y-%m-%dT%H:%M:%S.%f}.buf"
            taken = [self._filesystem.status(path.with_suffix(end)).kind for end in (".buf", ".damaged")]
            if taken == [Kind.ABSENT, Kind.ABSENT]:
                return path
            now_us += 1

    def strangers(self) -> list[str]:
        """Names that are none of ours: left alone, and told."""
        own = [name for name in self._filesystem.list_directory(self.base) if name not in _OWN_NAMES]
        failed = self._filesystem.list_directory(self.failed)
        kept = (".damaged", ".pos", ".pos.new")
        strange = [name for name in failed if not _FAILED_NAME.fullmatch(name) and not name.endswith(kept)]
        return [*own, *(f"failed/{name}" for name in strange)]

    def damaged_files(self) -> list[Path]:
        names = self._filesystem.list_directory(self.failed)
        return [self.failed / name for name in names if name.endswith(".damaged")]


def _refusal(path: Path, error: OSError) -> BufferFull | StoreUnavailable:
    """Why nothing was appended, in the words of those who push."""
    reason = f"{path}: {error.strerror or error}"
    is_full = is_disk_full(error) or error.errno == errno.EFBIG
    return BufferFull(reason) if is_full else StoreUnavailable(reason)
