"""Formats of bodies between server and clients: their content types, and the bytes by which they are known."""

from __future__ import annotations

JSON = "application/json"
ARROW_STREAM = "application/vnd.apache.arrow.stream"
END_OF_STREAM = b"\xff\xff\xff\xff\0\0\0\0"
"""The last bytes of a whole Arrow stream: without them it was cut short."""
PACKED_MARK = b"FBP1"
"""The first bytes of popped messages in the packed format."""
