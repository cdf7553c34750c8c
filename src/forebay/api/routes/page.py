"""The web page: one document for all of its addresses, and the files that it loads. See `forebay.api.page`."""

from __future__ import annotations

from forebay.api.exchange import Request, Response
from forebay.api.page.assets import INDEX, Asset, assets
from forebay.api.problems import not_found
from forebay.api.routing import Content, Needs, Route, Scope
from forebay.api.service import Service

PAGES = (
    ("/", "The journey: every stage now and over the last hour, and what is wrong."),
    ("/queue-metrics", "What waits warm and cold, by flow and action, and what runs."),
    ("/queues", "Queues."),
    ("/queues/{name}", "A queue: its groups, messages, partitions and options."),
    ("/dead-letters", "Dead letters."),
    ("/parcels", "Parcels."),
    ("/parcels/{name}", "A parcel and its history."),
    ("/flows", "Flows and their workers."),
    ("/destinations", "Destinations, and what waits for them."),
    ("/buffers", "Buffer files and maintenance."),
    ("/access", "Keys, and the audit log."),
)


async def page(service: Service, request: Request) -> Response:
    """Shown also while the store is away, and without a key: it says what is wrong, or asks for one."""
    return _answer(assets()[INDEX], request)


async def file(service: Service, request: Request) -> Response:
    found = assets().get(request.path[0])
    if found is None:
        raise not_found(f"the page has no file {request.path[0]!r}")
    return _answer(found, request)


def _answer(asset: Asset, request: Request) -> Response:
    if asset.etag in request.header(b"if-none-match"):
        return Response(304, headers=asset.headers)
    return Response(200, asset.body, asset.content_type, asset.headers)


ROUTES = (
    *(
        Route("GET", path, page, summary, Scope.OPEN, answers={200: bytes, 304: None}, needs=Needs.NOTHING)
        for path, summary in PAGES
    ),
    Route(
        "GET",
        "/page/{file}",
        file,
        "A file of the page.",
        Scope.OPEN,
        answers={200: Content("text/javascript"), 304: None},
        problems=(404,),
        needs=Needs.NOTHING,
    ),
)
