"""Which payloads are JSON text: all of a batch at once, and one by one only where they are not."""

from __future__ import annotations

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

_any_json = msgspec.json.Decoder(msgspec.Raw)
_decode_raw, _decode_lines = _any_json.decode, _any_json.decode_lines


def binary_marks(payloads: pa.Array) -> pa.Array:
    """1 for each payload that is not JSON text."""
    if _are_all_json(payloads):
        return pa.repeat(pa.scalar(0, pa.uint8()), len(payloads))
    return pa.array([0 if _is_json(payload) else 1 for payload in payloads.to_pylist()], pa.uint8())


def _are_all_json(payloads: pa.Array) -> bool:
    """One parse for all of them, as lines.

    A value may not hold a line break of its own here: only then does as many values as lines mean one value each.
    """
    if b"\n" in _values(payloads):
        return False
    one_list = pa.ListArray.from_arrays(pa.array([0, len(payloads)], pa.int32()), payloads)
    # As bytes, not as a buffer of Arrow's: what msgspec finds in bytes it need not copy.
    text = pc.binary_join(one_list, b"\n")[0].as_py()
    try:
        if not text.isascii():
            text.decode()
        return len(_decode_lines(text)) == len(payloads)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False


def _values(payloads: pa.Array) -> bytes:
    """The bytes of all of them, one behind the other."""
    _, offsets, values = payloads.buffers()
    if values is None:
        return b""
    # Only those of these payloads: how long the buffer is altogether, its sender decides.
    ends = memoryview(offsets)[4 * payloads.offset : 4 * (payloads.offset + len(payloads) + 1)].cast("i")
    return bytes(memoryview(values)[ends[0] : ends[-1]])


def _is_json(payload: bytes) -> bool:
    try:
        payload.decode()
        _decode_raw(payload)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    return True
