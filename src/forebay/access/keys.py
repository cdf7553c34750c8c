"""Keys as they are kept: made, rotated, revoked, read, and noted when they are used."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from forebay.access.digests import new_key_id
from forebay.access.faults import KeyNameTaken, KeyRefused, KeysFull, LastAdminKey, UnknownKey
from forebay.access.scopes import NAMES
from forebay.access.tables import SQL
from forebay.access.values import KeyInfo, Keys, NewKey
from forebay.broker.room_work import Ask, Now, Work
from forebay.clock import SECOND_US

KEYS_MAX = 10_000
NAME_CHARACTERS_MAX = 100
PATTERNS_MAX = 100
PATTERN_CHARACTERS_MAX = 255
SECONDS_MAX = 3650 * 86_400.0
_texts = msgspec.json.Decoder(tuple[str, ...])


def check(wanted: NewKey) -> None:
    """Raise `KeyRefused` with the first thing that is wrong."""
    if not 0 < len(wanted.name) <= NAME_CHARACTERS_MAX or not wanted.name.isprintable():
        raise KeyRefused("name", f"has to have 1 to {NAME_CHARACTERS_MAX} printable characters")
    if not wanted.scopes:
        raise KeyRefused("scopes", f"is empty; choose from {', '.join(NAMES)}")
    for scope in wanted.scopes:
        if scope not in NAMES:
            raise KeyRefused("scopes", f"{scope!r} is none of {', '.join(NAMES)}")
    if len(wanted.queues) > PATTERNS_MAX:
        raise KeyRefused("queues", f"has {len(wanted.queues)} patterns, allowed are {PATTERNS_MAX}")
    for pattern in wanted.queues:
        if not 0 < len(pattern) <= PATTERN_CHARACTERS_MAX or "\0" in pattern:
            raise KeyRefused("queues", f"a pattern has 1 to {PATTERN_CHARACTERS_MAX} characters without NUL")
    check_seconds("expires", wanted.lasts_seconds)


def check_seconds(field: str, seconds: float | None) -> None:
    if seconds is not None and not 0 <= seconds <= SECONDS_MAX:
        raise KeyRefused(field, f"{seconds:g} seconds are not 0 to {SECONDS_MAX:g}")


def create(wanted: NewKey, digest: str, *, has_other_admin: bool = False) -> Work[KeyInfo]:
    """Keep a key whose text has this digest. `has_other_admin`: a keys file has one that can make others."""
    check(wanted)
    now_us = yield Now()
    # The version's row is locked first: of two servers that make a key of one name, the second sees the first's.
    yield from _raise_version()
    known = yield from _all()
    names = {key.name for key in known if key.revoked_us is None}
    if wanted.name in names:
        raise KeyNameTaken(wanted.name)
    if len(known) >= KEYS_MAX:
        raise KeysFull(KEYS_MAX)
    is_full_admin = "admin" in wanted.scopes and not wanted.queues
    if not is_full_admin and not has_other_admin and not _other_admins(known, "", now_us):
        raise KeyRefused("scopes", "the first key has to be admin of all queues: without one no other could be made")
    expires_us = None if wanted.lasts_seconds is None else now_us + round(wanted.lasts_seconds * SECOND_US)
    scopes = [name for name in NAMES if name in wanted.scopes]
    values = {
        "key_id": new_key_id(),
        "name": wanted.name,
        "digest": digest,
        "scopes": scopes,
        "queues": list(dict.fromkeys(wanted.queues)),
        "made_by": wanted.made_by,
        "now_us": now_us,
        "expires_us": expires_us,
    }
    yield Ask(SQL["key_add"], values)
    yield Ask(SQL["number_set"], {"name": "in_force", "value": 1})
    return (yield from find(str(values["key_id"])))


def rotate(key_id: str, digest: str, grace_seconds: float) -> Work[KeyInfo]:
    """Give a key another text. The one before counts until the grace time is over; the one before that no more."""
    check_seconds("grace", grace_seconds)
    now_us = yield Now()
    yield from _raise_version()
    until_us = now_us + round(grace_seconds * SECOND_US)
    changed = yield Ask(SQL["key_rotate"], {"key_id": key_id, "digest": digest, "until_us": until_us})
    if not changed:
        raise UnknownKey(key_id)
    return (yield from find(key_id))


def revoke(key_id: str, *, has_other_admin: bool = False) -> Work[KeyInfo]:
    """End a key at once, and its sessions with it. `LastAdminKey` if no other could make keys."""
    now_us = yield Now()
    yield from _raise_version()
    known = yield from _all()
    key = next((one for one in known if one.key_id == key_id and one.revoked_us is None), None)
    if key is None:
        raise UnknownKey(key_id)
    if key.is_full_admin and not has_other_admin and not _other_admins(known, key_id, now_us):
        raise LastAdminKey(key.name)
    yield Ask(SQL["key_revoke"], {"key_id": key_id, "now_us": now_us})
    yield Ask(SQL["sessions_of_key_remove"], {"digests": [[key.digest], [key.previous_digest]]})
    return (yield from find(key_id))


def find(key_id: str) -> Work[KeyInfo]:
    rows = yield Ask(SQL["keys_list"], {"key_id": key_id})
    if not rows:
        raise UnknownKey(key_id)
    return _info(rows[0])


def read() -> Work[Keys]:
    """All of them."""
    now_us = yield Now()
    numbers = dict((yield Ask(SQL["numbers"])))
    known = yield from _all()
    return Keys(numbers.get("version", 0), bool(numbers.get("in_force", 0)), known, now_us)


def version() -> Work[int]:
    """What has changed whenever a key or a session was taken away, or a key added."""
    numbers = dict((yield Ask(SQL["numbers"])))
    return int(numbers.get("version", 0))


def note_uses(key_ids: Sequence[str]) -> Work[None]:
    """They were used just now. The version stays: nothing that is judged by has changed."""
    now_us = yield Now()
    yield Ask(SQL["keys_used"], {"ids": [[key_id] for key_id in key_ids], "now_us": now_us})


def forget_revoked(before_us: int) -> Work[int]:
    """Remove keys that were revoked before a time; how many."""
    return len((yield Ask(SQL["keys_forget_revoked"], {"before_us": before_us})))


def forget_all() -> Work[int]:
    """Remove all keys and sessions, and turn keys off; how many keys there were."""
    yield from _raise_version()
    removed = yield Ask(SQL["keys_forget_all"])
    yield Ask(SQL["sessions_forget_all"])
    yield Ask(SQL["number_set"], {"name": "in_force", "value": 0})
    return len(removed)


def _raise_version() -> Work[None]:
    yield Ask(SQL["version_raise"])


def _all() -> Work[list[KeyInfo]]:
    rows = yield Ask(SQL["keys_list"], {"key_id": ""})
    return [_info(row) for row in rows]


def _other_admins(known: Iterable[KeyInfo], key_id: str, now_us: int) -> bool:
    return any(key.is_full_admin and key.key_id != key_id and key.state_at(now_us) == "active" for key in known)


def _info(row: Sequence[Any]) -> KeyInfo:
    named = KeyInfo(*row)
    return named._replace(scopes=_texts.decode(row[5]), queues=_texts.decode(row[6]))
