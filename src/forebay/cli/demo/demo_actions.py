"""The demo's actions in Python. The worker imports them from the folder of `forebay.yaml`, as it would yours."""

from __future__ import annotations

import time

from forebay.flows import Record, RecordAction, RecordContext, Result

LOOKUP_SECONDS = 0.002
BUYING = ("/cart", "/checkout")
CLICK = ("n", "user", "page", "ms")


class Enrich(RecordAction):
    """What a visitor was about to do, from the page."""

    schema = "n BIGINT, user STRING, page STRING, ms INT, intent STRING"
    needs = CLICK

    def transform(self, record: Record, context: RecordContext) -> Result:
        given = {name: record[name] for name in CLICK}
        return Result({**given, "intent": "buy" if record["page"] in BUYING else "look"})


class Score(RecordAction):
    """A score by user, from a service that takes 2 ms for each: a task remembers what it has looked up."""

    schema = "n BIGINT, user STRING, page STRING, ms INT, intent STRING, score INT"

    def open(self) -> None:
        self.known: dict[str, int] = {}

    def transform(self, record: Record, context: RecordContext) -> Result:
        user = record["user"]
        if user not in self.known:
            time.sleep(LOOKUP_SECONDS)
            self.known[user] = sum(user.encode()) % 100
        given = {name: record[name] for name in (*CLICK, "intent")}
        return Result({**given, "score": self.known[user]})
