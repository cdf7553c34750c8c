"""The ASGI application: one function, no layers around it. Everything that a request may end in is decided here."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from typing import Any

from forebay.api.exchange import Answer, ClientGone, Receive, Request, StreamedAnswer
from forebay.api.problems import JSON_PROBLEM, Problem, problem_of
from forebay.api.routes import ALL_ROUTES
from forebay.api.routing import Route, Router, Scope
from forebay.api.service import Service
from forebay.errors import ForebayError

Send = Callable[[dict[str, Any]], Awaitable[None]]

_log = logging.getLogger("forebay.api")


class App:
    """`await App(service)(scope, receive, send)`, as uvicorn calls it."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self.router = Router(ALL_ROUTES)

    async def __call__(self, scope: Mapping[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        service = self.service
        method = scope["method"]
        route: Route | None = None
        answer: Answer | StreamedAnswer
        try:
            if method == "OPTIONS":
                answer = self.router.options(scope["raw_path"])
            else:
                route, path = self.router.find(method, scope["raw_path"])
                service.access.check(scope["headers"], route.scope)
                if not service.is_serving and route.scope is not Scope.OPEN:
                    service.check_serves(route.needs)
                request = Request(scope, receive, path, service.limits.body_bytes_max)
                answer = await route.handler(service, request)
        except Problem as problem:
            answer = _told(problem)
        except ClientGone:
            return
        except ForebayError as error:
            answer = _told(problem_of(error))
            if answer.status >= 500:
                _log.warning("%s %s: %s", method, scope["path"], error)
        except Exception:  # noqa: BLE001 - one request's bug must not end the server
            _log.exception("BUG: %s %s", method, scope["path"])
            answer = _told(Problem(500, "a bug in Forebay; the server's log has its traceback", code="bug"))
        service.counts.requests[method, route.path if route else "", answer.status] += 1
        if isinstance(answer, StreamedAnswer):
            await _stream(scope, receive, send, answer)
        else:
            await _send(send, answer)


async def _send(send: Send, answer: Answer) -> None:
    status, body, content_type, more = answer
    headers = [(b"content-length", b"%d" % len(body)), *more]
    if body:
        headers.append((b"content-type", content_type))
    if status == 204:  # it has no body, and then no length either
        headers = list(more)
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def _stream(scope: Mapping[str, Any], receive: Receive, send: Send, answer: StreamedAnswer) -> None:
    """Send chunk by chunk, the next one being made meanwhile; stop when the client has gone.

    When a chunk cannot be made, return without ending the body: uvicorn then cuts the connection, which is the only
    way to tell a client that has seen a 200 already.
    """
    headers = [(b"content-type", answer.content_type)]
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    gone = asyncio.ensure_future(_gone(receive))
    try:
        if scope["method"] != "HEAD":
            async for chunk in answer.chunks:
                if gone.done():
                    return
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
        await send({"type": "http.response.body", "body": b""})
    except Exception as error:  # noqa: BLE001 - whatever it is, the client has to see that the answer is not whole
        _log.warning("%s %s: cut off: %s", scope["method"], scope["path"], error, exc_info=not _is_known(error))
    finally:
        gone.cancel()
        if isinstance(answer.chunks, AsyncGenerator):
            await answer.chunks.aclose()


def _is_known(error: Exception) -> bool:
    return isinstance(error, ForebayError)


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _told(problem: Problem) -> Answer:
    return Answer(problem.status, problem.body(), JSON_PROBLEM, problem.headers)
