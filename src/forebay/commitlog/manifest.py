"""The manifest: what the log is made of, in one small file with two slots.

Little-endian, CRC-32 (zlib) over the whole content with the checksum field zeroed::

    offset  size  field
    0       4     magic "QMFT"
    4       4     version u32: 2, or 1 in a log without records whose CRC covers their place (`block`)
    8       8     next_seq u64        the seq that the next message gets, as of this writing
    16      4     file_count u32      number of entries at the end
    20      4     checksum u32
    24      8     generation u64      counts the manifests written; of two valid slots the higher is the newer
    32      4     file_seq u32        active segment: counts the segments made
    36      8     write_pos u64       bytes of the active segment that are known to be good
    44      8     msg_count u64       messages in those bytes
    52      2     path_len u16, 32
    54      32    path                relative to the base, UTF-8: `YYYY/MM/DD/<16 hex>.data`
    86            entries, 58 bytes each, for every sealed segment in order:
                    start_seq u64, end_seq u64, size u64, path_len u16, path

Because every path has the same length, entries stay the bytes that they are: opening a log of 10,000 segments checks
one CRC and makes no object per segment.

Written in seven steps: (1) know the slot in force, (2) build the content, (3) its checksum, (4) write the other slot,
(5) fsync it, (6) write the pointer, (7) fsync the pointer. Where a step made a new name, the directory is fsynced too.
A crash before step 6 leaves the old manifest in force, one after it the new; in between it is either, and both are
right, because nothing that only the new manifest tells of happens before step 7 is done.

| found at opening                                         | result                                     |
|----------------------------------------------------------|--------------------------------------------|
| no pointer, no segment with bytes, no slot with messages | a fresh log                                |
| no pointer, but messages                                 | `ManifestNotFound`                         |
| pointer neither 0x01 nor 0x02, or not one byte           | `ManifestCorrupted`                        |
| slot in force missing, wrong magic, length or checksum   | `ManifestCorrupted`                        |
| slot in force of another version, with its own checksum  | `UnsupportedManifestVersion`               |
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from struct import Struct
from typing import NamedTuple

from isal.isal_zlib import crc32

from forebay.commitlog import layout
from forebay.commitlog.layout import PATH_BYTES, POINTER, SLOTS
from forebay.errors import InvariantBroken, ManifestCorrupted, UnsupportedManifestVersion
from forebay.filesystem import Filesystem, Kind, write_fully

MAGIC = b"QMFT"
VERSION = 2
_VERSIONS = (1, VERSION)
"""Those that are read; they differ in the records of the log and not in the manifest."""
FILE_COUNT_MAX = 1 << 22
"""Segments in one log. At 512 MiB each that is 2 PiB; a larger figure in a file is damage."""

_HEADER = Struct("<4sIQIIQ")
_ACTIVE = Struct(f"<IQQH{PATH_BYTES}s")
_ENTRY = Struct(f"<QQQH{PATH_BYTES}s")
_FIXED_BYTES = _HEADER.size + _ACTIVE.size
_CHECKSUM_AT = 20


class Entry(NamedTuple):
    """A sealed segment: never written again."""

    start_seq: int
    end_seq: int
    size: int
    path: str


class Entries:
    """The sealed segments in order, kept as the bytes of the manifest."""

    __slots__ = ("raw",)

    def __init__(self, raw: bytes | memoryview = b"") -> None:
        self.raw = raw

    def __len__(self) -> int:
        return len(self.raw) // _ENTRY.size

    def __getitem__(self, index: int) -> Entry:
        """Checked only by its checksum: the caller that opens the path looks first whether it is one of a segment."""
        start, end, size, length, path = _ENTRY.unpack_from(self.raw, index * _ENTRY.size)
        return Entry(start, end, size, path[:length].decode("ascii", "replace"))

    def __iter__(self) -> Iterator[Entry]:
        return (self[index] for index in range(len(self)))

    def with_entry(self, entry: Entry) -> Entries:
        path = entry.path.encode()
        packed = _ENTRY.pack(entry.start_seq, entry.end_seq, entry.size, len(path), path)
        return Entries(b"".join((self.raw, packed)))

    def without_first(self, count: int) -> Entries:
        return Entries(self.raw[count * _ENTRY.size :])

    def first_ending_at_or_after(self, seq: int) -> int:
        """Index of the first segment whose last seq is `seq` or more; `len(self)` when there is none."""
        low, high = 0, len(self)
        while low < high:
            middle = (low + high) // 2
            if self[middle].end_seq < seq:
                low = middle + 1
            else:
                high = middle
        return low


@dataclass(frozen=True, slots=True)
class Manifest:
    next_seq: int
    generation: int
    file_seq: int
    write_pos: int
    msg_count: int
    path: str
    entries: Entries
    version: int = VERSION


def encode(manifest: Manifest) -> bytes:
    entries = manifest.entries
    path = manifest.path.encode()
    if len(path) != PATH_BYTES:
        raise InvariantBroken(f"segment path {manifest.path!r} has {len(path)} bytes and not {PATH_BYTES}")
    header = _HEADER.pack(MAGIC, manifest.version, manifest.next_seq, len(entries), 0, manifest.generation)
    active = _ACTIVE.pack(manifest.file_seq, manifest.write_pos, manifest.msg_count, PATH_BYTES, path)
    content = bytearray().join((header, active, entries.raw))
    content[_CHECKSUM_AT : _CHECKSUM_AT + 4] = _checksum(content).to_bytes(4, "little")
    return bytes(content)


def _checksum(content: bytes | bytearray) -> int:
    view = memoryview(content)
    return int(crc32(view[_CHECKSUM_AT + 4 :], crc32(bytes(4), crc32(view[:_CHECKSUM_AT]))))


def decode(content: bytes, base: Path, file: str) -> Manifest:
    """Read and check a slot's content; every fault is a named error."""
    if len(content) < _FIXED_BYTES:
        raise ManifestCorrupted(base, file, f"{len(content)} bytes, at least {_FIXED_BYTES} are needed")
    magic, version, next_seq, file_count, checksum, generation = _HEADER.unpack_from(content)
    if magic != MAGIC:
        raise ManifestCorrupted(base, file, f"starts with {magic!r}, not {MAGIC!r}")
    computed = _checksum(content)
    if version not in _VERSIONS and not _fits_a_known_version(content, checksum):
        raise UnsupportedManifestVersion(base, file, version, VERSION)
    # The checksum fits a version that is known, so a field that says otherwise is damage, not another version.
    if computed != checksum:
        raise ManifestCorrupted(base, file, f"checksum {checksum:08x}, its content gives {computed:08x}")
    file_seq, write_pos, msg_count, path_length, path = _ACTIVE.unpack_from(content, _HEADER.size)
    # A view and not a copy: opening must not take longer because there are many segments.
    raw = memoryview(content)[_FIXED_BYTES:]
    if file_count > FILE_COUNT_MAX or len(raw) != file_count * _ENTRY.size:
        raise ManifestCorrupted(base, file, f"{len(raw)} bytes of entries do not hold {file_count} files")
    active = path[:path_length].decode("ascii", "replace")
    if not layout.is_segment_path(active):
        raise ManifestCorrupted(base, file, f"{active!r} is not the path of a segment")
    if next_seq < 1 or write_pos > 1 << 62:
        raise ManifestCorrupted(base, file, f"next_seq {next_seq}, write_pos {write_pos} are not possible")
    return Manifest(next_seq, generation, file_seq, write_pos, msg_count, active, Entries(raw), version)


def _fits_a_known_version(content: bytes, checksum: int) -> bool:
    as_known = (content[:4] + version.to_bytes(4, "little") + content[8:] for version in _VERSIONS)
    return any(checksum == _checksum(each) for each in as_known)


class ManifestStore:
    """Reads and writes the manifest of one log. Not for use by two threads at once."""

    def __init__(self, filesystem: Filesystem, base: Path) -> None:
        self._filesystem = filesystem
        self._base = base
        self._slot: int | None = None
        self._pointer_is_certain = True
        self._known: set[str] = set()

    def read(self) -> Manifest | None:
        """The manifest in force, or None when there is no pointer to one."""
        pointer = self._content(POINTER)
        if pointer is None:
            return None
        if pointer not in (b"\x01", b"\x02"):
            found = pointer[:8].hex(" ") or "nothing"
            raise ManifestCorrupted(self._base, POINTER, f"holds {found}, not 01 or 02")
        slot = pointer[0]
        manifest = self.read_slot(slot)
        if manifest is None:
            raise ManifestCorrupted(self._base, SLOTS[slot], f"missing, although {POINTER} names it")
        self._slot = slot
        # The process that wrote the pointer may have been killed before it was synced.
        self._pointer_is_certain = False
        return manifest

    def read_slot(self, slot: int) -> Manifest | None:
        content = self._content(SLOTS[slot])
        return None if content is None else decode(content, self._base, SLOTS[slot])

    def write(self, manifest: Manifest) -> None:
        """Put `manifest` in force, durably. When this raises, the old one is still in force or the new one is."""
        if not self._pointer_is_certain and self._slot is not None:
            # Before a slot is overwritten, the disk must be known to point at the other one.
            self._put(POINTER, bytes([self._slot]))
            self._pointer_is_certain = True
        slot = 2 if self._slot == 1 else 1
        self._put(SLOTS[slot], encode(manifest))
        self._pointer_is_certain = False
        self._put(POINTER, bytes([slot]))
        self._pointer_is_certain = True
        self._slot = slot

    def _put(self, name: str, content: bytes) -> None:
        file = self._filesystem.open(self._base / name, write=True, create=True)
        try:
            write_fully(file, [content], 0)
            if file.size() != len(content):
                file.truncate(len(content))
            file.sync()
        finally:
            file.close()
        if name not in self._known:
            self._filesystem.sync_directory(self._base)
            self._known.add(name)

    def _content(self, name: str) -> bytes | None:
        path = self._base / name
        status = self._filesystem.status(path)
        if status.kind is Kind.ABSENT:
            return None
        if status.kind is not Kind.FILE:
            raise ManifestCorrupted(self._base, name, f"is a {status.kind.value}, not a file")
        file = self._filesystem.open(path)
        try:
            return file.read_at(status.size, 0)
        finally:
            file.close()
