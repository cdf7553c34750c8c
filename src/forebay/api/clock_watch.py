"""Whether the wall clock can be believed when it says that something is old enough to be removed.

Between two looks the wall clock and the monotonic clock advance by the same. A wall clock that has advanced by much
more was set: by an administrator, by NTP, or because the machine slept. It may be right now, or wrong by hours, and
what is removed for its age does not come back. So nothing is removed until the clock is set back, or an hour has gone.
A clock that is already wrong when the process starts cannot be distinguished from one that is right.
"""

from __future__ import annotations

from dataclasses import dataclass

from forebay.clock import SECOND_US

JUMP_SECONDS_MIN = 600.0
"""How much more the wall clock must advance to have jumped."""
WAIT_SECONDS = 3600.0
"""How long nothing is removed after a jump, by the monotonic clock."""


@dataclass(slots=True)
class ClockWatch:
    jumps: int = 0
    _offset: float | None = None
    """Wall clock less monotonic clock, in seconds, as it is believed."""
    _jumped_offset: float = 0.0
    _resume: float | None = None
    """When a clock that has jumped is believed, by the monotonic clock; None while nothing is in doubt."""

    def look(self, now_us: int, monotonic: float) -> float | None:
        """Returns by how many seconds the wall clock has jumped forward, if it did since the last look."""
        offset = now_us / SECOND_US - monotonic
        if self._offset is None:
            self._offset = offset
        jumped = offset - (self._jumped_offset if self.is_in_doubt else self._offset)
        if self._resume is not None and offset - self._offset <= JUMP_SECONDS_MIN:
            self._resume = None  # it was set back
        if jumped > JUMP_SECONDS_MIN:
            self._jumped_offset = offset
            self._resume = monotonic + WAIT_SECONDS
            self.jumps += 1
            return jumped
        if self._resume is not None and monotonic >= self._resume:
            self._resume = None
        if self._resume is None:
            self._offset = offset
        return None

    @property
    def is_in_doubt(self) -> bool:
        """Whether nothing may be removed for its age now."""
        return self._resume is not None
