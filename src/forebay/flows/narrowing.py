"""Which records of a batch fail: halving, with a limit on how often is tried. A decision, without Spark.

A batch is a range of seqs, and a try says why a part of it fails. If a range fails and its first half passes, the
second half must be the cause and is not tried as a whole: one bad record among 500,000 takes 20 tries. A record counts
as bad only when it has failed alone. Where a batch fails and each of its records passes alone, the records are not to
blame, and none is found.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from forebay.errors import ForebayError

TRIES_MAX = 10_000
BAD_MAX = 1_000
"""In one batch. More of them are a fault of the action, or of what it depends on, and not of the records."""

Try = Callable[[int, int], str | None]
"""Runs the records from a seq up to, without, another; why they fail, or None."""


class TooManyFail(ForebayError):
    """So many records of one batch fail that the action is to blame: mend it, then the flow goes on by itself."""


@dataclass(frozen=True, slots=True)
class Bad:
    """A record that fails alone."""

    seq: int
    failure: str


def narrow(start: int, end: int, attempt: Try, *, tries_max: int = TRIES_MAX, bad_max: int = BAD_MAX) -> list[Bad]:
    """The records from `start` up to, without, `end` that fail alone, in order. The range is known to fail."""
    search = _Search(attempt, tries_max, bad_max)
    if start < end:
        search.within(start, end, None)
    return search.found


class _Search:
    def __init__(self, attempt: Try, tries_max: int, bad_max: int) -> None:
        self.found: list[Bad] = []
        self._attempt = attempt
        self._tries_left = tries_max
        self._bad_max = bad_max

    def within(self, start: int, end: int, failure: str | None) -> None:
        """Search a range that fails: as `failure` says, or because the rest of what failed does not."""
        if end - start == 1:
            failure = failure or self._tried(start, end)
            if failure is not None:
                self._note(Bad(start, failure))
            return
        middle = (start + end) // 2
        first = self._tried(start, middle)
        if first is not None:
            self.within(start, middle, first)
            second = self._tried(middle, end)
            if second is None:
                return
            self.within(middle, end, second)
        else:
            self.within(middle, end, None)

    def _tried(self, start: int, end: int) -> str | None:
        if self._tries_left == 0:
            raise TooManyFail(f"{len(self.found):,} bad records were found, and the search was given up: too many fail")
        self._tries_left -= 1
        return self._attempt(start, end)

    def _note(self, bad: Bad) -> None:
        self.found.append(bad)
        if len(self.found) > self._bad_max:
            raise TooManyFail(f"more than {self._bad_max:,} records of the batch fail, seq {self.found[0].seq} first")
