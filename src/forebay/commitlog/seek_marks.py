"""Places in segments that are remembered as reading and writing pass by, so that a seq is found without a long walk."""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict

from forebay.model.message import SEQ_MAX

MARK_EVERY_BYTES = 1 << 20
_MARKED_SEGMENTS_MAX = 256


class SeekMarks:
    """Where some records start: per segment a sorted list of (first_seq, position). Forgets the least used segment."""

    def __init__(self) -> None:
        self._marks: OrderedDict[str, list[tuple[int, int]]] = OrderedDict()

    def note(self, path: str, first_seq: int, position: int) -> None:
        marks = self._marks.get(path)
        if marks is None:
            if len(self._marks) >= _MARKED_SEGMENTS_MAX:
                self._marks.popitem(last=False)
            marks = self._marks.setdefault(path, [])
        if position - (marks[-1][1] if marks else 0) >= MARK_EVERY_BYTES:
            marks.append((first_seq, position))

    def before(self, path: str, seq: int) -> tuple[int, int] | None:
        """The last mark at or before the record that holds `seq`: its first seq and its position."""
        marks = self._marks.get(path)
        if not marks:
            return None
        self._marks.move_to_end(path)
        index = bisect_right(marks, (seq, SEQ_MAX))
        return marks[index - 1] if index else None
