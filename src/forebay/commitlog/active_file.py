"""The file that is written to, and the zeros that stand ready behind its last record.

To sync a file that grows, a filesystem writes its journal too: the new length, the new blocks. That takes about as long
as the data itself. So the record that reaches the end of the file brings zeros along, in the same write and the same
sync, and the records after it overwrite them: nothing but data is left to sync.

- As many zeros as there are bytes before them, and at most `AHEAD_BYTES`: the file is at most twice as long
  as its records.
- A record above `LARGE_BYTES` brings none: fewer than three like it would find room in them, and to write every byte
  twice takes longer then than the journal does.
- They are cut off when the segment is sealed and when the log is closed. After a crash they are still there: zeros up
  to the end of the file are no record and no damage (`scan`), and opening cuts them off (`recovery`).
- They are a help and no promise. Where the disk has no room for them, the record is written without.
"""

from __future__ import annotations

import contextlib

from forebay.filesystem import Buffers, File, write_durably

AHEAD_BYTES = 1 << 20
LARGE_BYTES = AHEAD_BYTES // 3
_ZEROS = memoryview(bytes(AHEAD_BYTES))


class ActiveFile:
    """The active segment's file; `position` is always where its records end."""

    __slots__ = ("_ahead_bytes", "_file", "_ready_to", "_size_max")

    def __init__(self, file: File, position: int, size_max: int) -> None:
        self._file = file
        self._size_max = size_max
        self._ready_to = position
        """Up to here the file is on the disk: records, and zeros behind them."""
        self._ahead_bytes = AHEAD_BYTES

    def write(self, pieces: Buffers, size: int, position: int) -> None:
        """Have the pieces, `size` bytes in all, on the disk at `position`."""
        end = position + size
        if end <= self._ready_to:
            write_durably(self._file, pieces, position)
            return
        ahead = min(end, self._ahead_bytes, self._size_max - end) if size <= LARGE_BYTES else 0
        if ahead <= 0:
            write_durably(self._file, pieces, position)
            self._ready_to = end
            return
        written = self._file.write_durably_at([*pieces, _ZEROS[:ahead]], position)
        if written < size:
            rest = memoryview(b"".join(pieces))[written:]
            written += write_durably(self._file, [rest], position + written)
        self._ready_to = position + written

    def cut(self, position: int) -> None:
        """After a failed write: nothing stands behind `position`, and no zeros are tried again in this file."""
        self._ahead_bytes = 0
        self._ready_to = position
        self._file.truncate(position)

    def close(self, position: int) -> None:
        """Give the zeros back. If the disk refuses, they stay: they are never read."""
        if self._ready_to > position:
            with contextlib.suppress(OSError):
                self._file.truncate(position)
        self._file.close()
