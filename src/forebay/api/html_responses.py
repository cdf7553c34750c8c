"""Answers that a browser shows as a page: what such a page may load, and which sites may put it into a frame."""

from __future__ import annotations

from base64 import b64encode
from hashlib import sha256

from forebay.api.exchange import Response

HTML = b"text/html; charset=utf-8"


def page_headers(*inline_styles: str) -> tuple[tuple[bytes, bytes], ...]:
    """Everything from this server and nothing from elsewhere; no script within the page, and only these styles."""
    hashes = "".join([f" 'sha256-{b64encode(sha256(style.encode()).digest()).decode()}'" for style in inline_styles])
    policy = (
        f"default-src 'self'; style-src 'self'{hashes}; object-src 'none'; base-uri 'none'; form-action 'self'; "
        "frame-ancestors 'none'"
    )
    return (
        (b"content-security-policy", policy.encode()),
        (b"x-content-type-options", b"nosniff"),
        (b"x-frame-options", b"DENY"),
        (b"referrer-policy", b"no-referrer"),
    )


def html_answer(body: bytes, *inline_styles: str) -> Response:
    """A page. `inline_styles`: the contents of its `<style>` elements, which are allowed by their hashes."""
    return Response(200, body, HTML, page_headers(*inline_styles))
