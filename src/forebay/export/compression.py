"""How request bodies are compressed on their way out."""

from __future__ import annotations

from typing import Literal

import cramjam
from isal import igzip

Compression = Literal["gzip", "zstd", "snappy", "none"]


def compressed(body: bytes, how: Compression) -> bytes:
    """The body as its `Content-Encoding` says. `snappy` is the raw format, as remote write wants it."""
    if how == "gzip":
        return igzip.compress(body)
    if how == "zstd":
        return bytes(cramjam.zstd.compress(body))
    return bytes(cramjam.snappy.compress_raw(body)) if how == "snappy" else body
