"""Action classes as the database has them: locked, counted, cold or not.

Work that moves parcels of a class locks the class's row first, all its classes at once and in the order of their names.
From then on the numbers are exact until the transaction ends, on however many servers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from forebay.broker.room_work import Ask, Work
from forebay.dispatch.tables import SQL
from forebay.dispatch.tiering import ClassSizes

Modes = Mapping[str, bool]
"""Locked classes by name: whether each was left cold."""


class ClassCounts(NamedTuple):
    """What waits of a class. Parcels of paused flows are counted apart: nothing drains them."""

    warm: int = 0
    """Of all flows: all take room."""
    paused_warm: int = 0
    cold: int = 0
    """Of flows that may be leased from."""
    paused_cold: int = 0

    def sizes(self, *, is_cold: bool) -> ClassSizes:
        """What tiers are decided by. Cold parcels of a paused flow keep only their own flow cold."""
        return ClassSizes(self.warm, self.cold, is_cold)


def lock_classes(classes: Iterable[str]) -> Work[dict[str, bool]]:
    """Keep others from moving parcels of these classes until the transaction ends; classes that are new are made."""
    keys = [[action_class] for action_class in sorted(set(classes))]
    if not keys:
        return {}
    rows = yield Ask(SQL["classes_lock"], {"classes": keys})
    if len(rows) < len(keys):
        yield Ask(SQL["classes_make"], {"classes": keys})
        rows = yield Ask(SQL["classes_lock"], {"classes": keys})
    return {action_class: bool(is_cold) for action_class, is_cold in rows}


def count_classes(classes: Iterable[str]) -> Work[dict[str, ClassCounts]]:
    """What waits of each of these classes."""
    keys = [[action_class] for action_class in sorted(set(classes))]
    rows = yield Ask(SQL["class_sizes"], {"classes": keys})
    found = {row[0]: ClassCounts(*row[1:]) for row in rows}
    return {action_class: found.get(action_class, ClassCounts()) for [action_class] in keys}


def set_modes(before: Modes, after: Modes) -> Work[list[str]]:
    """Write down which classes went cold or warm; the names of those that went cold."""
    changed = {name: is_cold for name, is_cold in after.items() if before[name] != is_cold}
    if changed:
        modes = [[name, int(is_cold)] for name, is_cold in sorted(changed.items())]
        yield Ask(SQL["class_modes_set"], {"modes": modes})
    return [name for name, is_cold in sorted(changed.items()) if is_cold]
