"""Metrics of dispatch are bounded in number, and nothing is left out of their sums."""

from __future__ import annotations

from forebay.api.dispatch_watch import CLASSES_SHOWN_MAX, OTHER, shown_classes
from forebay.dispatch.views import ClassFigures


def waiting(name: str, queued: int) -> ClassFigures:
    return ClassFigures(name, queued, 1, 2, float(queued), True, False, 0, 0)


def test_few_classes_are_shown_as_they_are() -> None:
    classes = [waiting("b", 1), waiting(OTHER, 2), waiting("a", 3)]
    assert shown_classes(classes) == sorted(classes)


def test_classes_beyond_the_limit_are_one_series_and_their_sums_are_whole() -> None:
    classes = [waiting(f"c{number:05}", number) for number in range(CLASSES_SHOWN_MAX + 5)] + [waiting(OTHER, 9_000)]
    shown = shown_classes(classes)
    assert len({each.action_class for each in shown}) == len(shown) == CLASSES_SHOWN_MAX + 1
    assert sum(each.queued for each in shown) == sum(each.queued for each in classes)
    other = shown[-1]
    assert (other.action_class, other.cold, other.leased, other.oldest_wait_seconds) == (OTHER, 6, 12, 9_000.0)
    assert other.queued == 9_000 + sum(range(CLASSES_SHOWN_MAX, CLASSES_SHOWN_MAX + 5))
