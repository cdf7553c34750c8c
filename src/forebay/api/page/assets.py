"""The files of the page, read once, with what a browser needs to keep them."""

from __future__ import annotations

from functools import cache
from hashlib import sha256
from importlib.resources import files
from typing import NamedTuple

from forebay.api.html_responses import page_headers

INDEX = "index.html"
_TYPES = {
    "html": b"text/html; charset=utf-8",
    "css": b"text/css; charset=utf-8",
    "js": b"text/javascript; charset=utf-8",
    "svg": b"image/svg+xml",
}


class Asset(NamedTuple):
    body: bytes
    content_type: bytes
    etag: bytes
    headers: tuple[tuple[bytes, bytes], ...]


@cache
def assets() -> dict[str, Asset]:
    """By the name of the file."""
    folder = files("forebay.api.page") / "static"
    kinds = {file: _TYPES.get(file.name.rpartition(".")[2]) for file in folder.iterdir()}
    return {file.name: _asset(file.read_bytes(), kind) for file, kind in kinds.items() if kind is not None}


def _asset(body: bytes, content_type: bytes) -> Asset:
    etag = b'"%s"' % sha256(body).hexdigest()[:32].encode()
    kept = ((b"etag", etag), (b"cache-control", b"no-cache"))
    return Asset(body, content_type, etag, (*page_headers(), *kept))
