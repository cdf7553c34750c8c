"""Queue patterns: which queues a key may touch."""

from __future__ import annotations

import re
from collections.abc import Sequence

KNOWN_NAMES_MAX = 10_000


class QueuePatterns:
    """`*` stands for any characters, also none; everything else for itself, in the same case."""

    __slots__ = ("_known", "_matches", "patterns")

    def __init__(self, patterns: Sequence[str]) -> None:
        self.patterns = tuple(patterns)
        texts = [".*".join(map(re.escape, pattern.split("*"))) for pattern in patterns]
        self._matches = re.compile("|".join(f"(?:{text})" for text in texts), re.DOTALL).fullmatch
        self._known: dict[str, bool] = {}

    def fit(self, queue: str) -> bool:
        found = self._known.get(queue)
        if found is None:
            found = bool(self.patterns) and self._matches(queue) is not None
            if len(self._known) >= KNOWN_NAMES_MAX:
                self._known.clear()
            self._known[queue] = found
        return found

    def __str__(self) -> str:
        return ", ".join(self.patterns)
