"""Sessions of the web page: a random id in a cookie stands for the key that was signed in with."""

from __future__ import annotations

from forebay.access.tables import SQL
from forebay.access.values import Session
from forebay.broker.room_work import Ask, Now, Work
from forebay.clock import SECOND_US

SESSIONS_MAX = 100_000


def begin(
    session_digest: str, key_digest: str, lasts_seconds: float, sessions_max: int = SESSIONS_MAX
) -> Work[Session]:
    """Keep a session. What has ended, and the oldest beyond the limit, goes with it."""
    now_us = yield Now()
    session = Session(key_digest, now_us + round(lasts_seconds * SECOND_US))
    yield Ask(SQL["sessions_expire"], {"now_us": now_us, "kept": sessions_max - 1})
    values = {"session": session_digest, "key": key_digest, "now_us": now_us, "expires_us": session.expires_us}
    yield Ask(SQL["session_add"], values)
    return session


def find(session_digest: str) -> Work[Session | None]:
    """The session, unless it has ended."""
    now_us = yield Now()
    rows = yield Ask(SQL["session_find"], {"session": session_digest, "now_us": now_us})
    return Session(*rows[0]) if rows else None


def end(session_digest: str) -> Work[bool]:
    """Sign out; False when there was no such session. Servers that remember it forget it within two seconds."""
    removed = yield Ask(SQL["session_remove"], {"session": session_digest})
    if removed:
        yield Ask(SQL["version_raise"])
    return bool(removed)
