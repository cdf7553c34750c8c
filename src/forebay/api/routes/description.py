"""The API's description of itself: OpenAPI for programs, a page for people."""

from __future__ import annotations

from functools import cache
from typing import Any

from forebay.api.exchange import Request, Response
from forebay.api.html_responses import html_answer
from forebay.api.routing import Route, Scope
from forebay.api.service import Service


@cache
def _written() -> tuple[bytes, bytes]:
    # The description is made from all routes, of which these two are part: hence not at import.
    from forebay.api.openapi import description, page
    from forebay.api.routes import API_ROUTES

    return description(API_ROUTES), page(API_ROUTES)


async def openapi(service: Service, request: Request) -> Response:
    return Response(200, _written()[0])


async def docs(service: Service, request: Request) -> Response:
    from forebay.api.openapi import STYLE

    return html_answer(_written()[1], STYLE)


ROUTES = (
    Route(
        "GET",
        "/openapi.json",
        openapi,
        "This description, for programs (OpenAPI 3.1).",
        Scope.OPEN,
        answers={200: dict[str, Any]},
    ),
    Route("GET", "/docs", docs, "This description, for people.", Scope.OPEN, answers={200: bytes}),
)
