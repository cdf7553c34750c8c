"""Which payloads are JSON text. Each is parsed by itself: what its neighbours hold cannot complete or break it.

Every payload that counts as JSON is put into answers as it stands. One that is not would make the whole answer
unreadable, other producers' messages included.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pyarrow as pa

_decode = msgspec.json.Decoder(msgspec.Raw).decode
_NO_JSON = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


def binary_marks(payloads: pa.Array) -> pa.Array:
    """1 for each payload that is not JSON text."""
    texts = payloads.to_pylist()
    if _is_utf8(payloads) and _are_json(texts):
        return pa.repeat(pa.scalar(0, pa.uint8()), len(payloads))
    return pa.array([0 if _is_json(text) else 1 for text in texts], pa.uint8())


def _is_utf8(payloads: pa.Array) -> bool:
    """Whether each of them is. The parser passes over the insides of strings, so it does not notice."""
    try:
        payloads.cast(pa.string())
    except pa.ArrowInvalid:
        return False
    return True


def _are_json(texts: Sequence[bytes]) -> bool:
    try:
        for text in texts:
            _decode(text)
    except _NO_JSON:
        return False
    return True


def _is_json(text: bytes) -> bool:
    try:
        text.decode()
        _decode(text)
    except _NO_JSON:
        return False
    return True
