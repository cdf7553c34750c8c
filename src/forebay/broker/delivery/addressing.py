"""Messages that are for one group alone: so a dead letter is replayed without being delivered to groups that had it.

The group stands in the message's headers. So it lasts as long as the message does, whatever becomes of groups and their
cursors: a group that is made later, or set back, passes the message as well. A group passes a message that is not for
it when its next pop comes there; until then the message counts among those that wait for it.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

GROUP_HEADER = "forebay.group"
_MARK = GROUP_HEADER.encode()


def addressed(headers: bytes, group: str | None) -> bytes:
    """The headers of a message that is for this group alone; for every group if None."""
    named = _named(headers)
    named.pop(GROUP_HEADER, None)
    if group is not None:
        named[GROUP_HEADER] = group
    return msgspec.json.encode(named) if named else b""


def for_others(seqs: Sequence[int], headers: Sequence[bytes], group: str) -> frozenset[int]:
    """Which of the messages are for another group alone."""
    if not any(headers):
        return frozenset()
    return frozenset(seq for seq, text in zip(seqs, headers, strict=True) if _addressee(text) not in (None, group))


def _addressee(headers: bytes) -> str | None:
    if _MARK not in headers:
        return None
    group = _named(headers).get(GROUP_HEADER)
    return group if isinstance(group, str) else None


def _named(headers: bytes) -> dict[str, object]:
    return msgspec.json.decode(headers, type=dict[str, object]) if headers else {}
