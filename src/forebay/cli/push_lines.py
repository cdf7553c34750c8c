"""Lines of a file or of a pipe as a push sends them: each is checked, and together they are cut into requests.

Whatever is wrong with a line is said with its number, because the user has to find the line.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import msgspec
from msgspec import Raw

from forebay.errors import Permanent
from forebay.model.ids import minted_id

REQUEST_BYTES_MAX = 4 << 20
"""Of one push, unless a single message is larger."""


class Line(NamedTuple):
    number: int
    text: bytes


def requests_of(lines: Iterable[bytes], batch: int, bytes_max: int = REQUEST_BYTES_MAX) -> Iterator[list[Line]]:
    """Lines that are pushed together: at most `batch`, and not too many bytes. Blank ones are left out.

    A full request does not wait for the line behind it, which a slow pipe may bring an hour later.
    """
    request: list[Line] = []
    size = 0
    for number, text in enumerate(lines, 1):
        if not text.strip():
            continue
        if request and size + len(text) > bytes_max:
            yield request
            request, size = [], 0
        request.append(Line(number, text))
        size += len(text)
        if len(request) >= batch:
            yield request
            request, size = [], 0
    if request:
        yield request


def text_payload(given: bytes, origin: str) -> str:
    """Text becomes a JSON string, which has no room for bytes that are no UTF-8."""
    return _utf8(given, origin).rstrip("\n")


def json_payload(given: bytes, origin: str) -> Raw:
    """The JSON text as it stands: it is checked, and not decoded and encoded again."""
    _decoded(given, origin, Any, remedy="To push it as text, add --text")
    return Raw(given.strip())


def item(given: bytes, origin: str) -> Raw:
    """An item as `POST /push` takes it, with an id. A payload stays as it stands.

    The id is there before the first try, so that a second one cannot store the message twice.
    """
    members = _decoded(given, origin, dict[str, Raw], remedy='An item is such as {"queue": "orders", "payload": 7}')
    if bytes(members.get("transactionId", b"null")).strip() != b"null":
        return Raw(given.strip())
    members["transactionId"] = Raw(msgspec.json.encode(minted_id()))
    return Raw(msgspec.json.encode(members))


def _decoded(given: bytes, origin: str, kind: Any, *, remedy: str) -> Any:
    _utf8(given, origin)
    try:
        return msgspec.json.decode(given, type=kind)
    except RecursionError:
        raise Permanent(f"{origin} is nested too deeply", remedy=remedy) from None
    except msgspec.ValidationError as error:
        raise Permanent(f"{origin} is no item: {error}", remedy=remedy) from None
    except msgspec.DecodeError as error:
        raise Permanent(f"{origin} is not JSON: {error}", remedy=remedy) from None


def _utf8(given: bytes, origin: str) -> str:
    try:
        return given.decode()
    except UnicodeDecodeError as error:
        raise Permanent(
            f"{origin} is not UTF-8 at byte {error.start}",
            remedy="Messages are UTF-8: convert it first, such as with `iconv -f LATIN1 -t UTF-8`",
        ) from None
