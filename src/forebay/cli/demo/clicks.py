"""Click events as a function of their number, and what plain Python makes of them: the other side of the comparison."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import NamedTuple, TypedDict

START = datetime(2026, 1, 1, 12, tzinfo=UTC)
SPAN = timedelta(minutes=20)
"""The clicks are spread evenly over it, however many there are."""
LATER = timedelta(hours=1)
USERS = 500
REGIONS = ("africa", "america", "asia", "europe", "oceania")
PAGES = ("/", "/search", "/cart", "/checkout", "/help")
NO_USER = "nobody"
USERS_HEADER = "id,region\n"


class Click(TypedDict):
    n: int
    user: str
    page: str
    ms: int
    at: str


class JoinedClick(Click):
    region: str


class ScoredClick(TypedDict):
    n: int
    user: str
    page: str
    ms: int
    intent: str
    score: int


class Minute(NamedTuple):
    minute: str
    region: str


class Counted(NamedTuple):
    clicks: int
    ms: int


class Clicks:
    """So many clicks; the numbers begin at 0."""

    def __init__(self, count: int) -> None:
        self.count = count

    def click(self, n: int) -> Click:
        at = START + SPAN * n / self.count
        return {
            "n": n,
            "user": _user(n * 7919 % USERS),
            "page": PAGES[n * 31 % len(PAGES)],
            "ms": n * 37 % 900,
            "at": _text(at),
        }

    def closing(self) -> Click:
        """The event behind the last click: it ends all minutes, and is itself in none."""
        return {"n": self.count, "user": NO_USER, "page": "/", "ms": 0, "at": _text(START + SPAN + LATER)}

    def pushed(self) -> dict[int, Click]:
        """What the first queue has to hold."""
        return {self.count: self.closing()} | {n: self.click(n) for n in range(self.count)}

    def joined(self) -> dict[int, JoinedClick]:
        regions = users()
        return {n: {**click, "region": regions[click["user"]]} for n, click in self._all()}

    def scored(self) -> dict[int, ScoredClick]:
        """What the destination has to get, of the closing event too."""
        return {
            n: {
                "n": n,
                "user": click["user"],
                "page": click["page"],
                "ms": click["ms"],
                "intent": "buy" if click["page"].startswith("/c") else "look",
                "score": sum(map(ord, click["user"])) % 100,
            }
            for n, click in self.pushed().items()
        }

    def per_minute(self) -> dict[Minute, Counted]:
        found: dict[Minute, list[int]] = defaultdict(list)
        regions = users()
        for _, click in self._all():
            at = datetime.fromisoformat(click["at"])
            found[Minute(_text(at.replace(second=0, microsecond=0)), regions[click["user"]])].append(click["ms"])
        return {key: Counted(len(ms), sum(ms)) for key, ms in found.items()}

    def _all(self) -> Iterator[tuple[int, Click]]:
        return ((n, self.click(n)) for n in range(self.count))


def users() -> dict[str, str]:
    """The small table to join with: users and their regions."""
    return {_user(number): REGIONS[number * 3 % len(REGIONS)] for number in range(USERS)}


def minute_text(at: datetime) -> str:
    """A time as the events spell it."""
    return _text(at.astimezone(UTC))


def _user(number: int) -> str:
    return f"user-{number:03d}"


def _text(at: datetime) -> str:
    """As Spark's to_json writes it: milliseconds, and Z for UTC."""
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")
