"""Requests to one of several servers, with failover and retries."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec

from forebay.client.connection import Origin, Response, Tries
from forebay.client.lifetime import Lifetime
from forebay.client.messages import Refused, Unreachable
from forebay.clock import Clock, SystemClock
from forebay.errors import RETRIED_STATUSES

_SAYS_NOTHING = frozenset({500, 502, 504})
"""A bug in the midst of it, or a proxy that has lost the server: whether the request was carried out stays open."""


class Transport:
    def __init__(
        self,
        urls: Sequence[str],
        *,
        attempts: int,
        first_pause_seconds: float,
        timeout_seconds: float,
        retry_unhealthy_seconds: float,
        api_key: str | None,
        ca_file: str | Path | None = None,
        clock: Clock | None = None,
    ) -> None:
        for url in urls:
            if fault := _url_fault(url):
                raise ValueError(f"{url!r} is no server's URL: {fault}; it looks like http://127.0.0.1:6632")
        if not urls:
            raise ValueError("at least one server's URL is needed")
        self._urls = [url.rstrip("/") for url in urls]
        self._attempts = attempts
        self._first_pause_seconds = first_pause_seconds
        self._timeout_seconds = timeout_seconds
        self._retry_unhealthy_seconds = retry_unhealthy_seconds
        headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        if ca_file is not None and not Path(ca_file).is_file():
            raise ValueError(
                f"ca_file {str(ca_file)!r} is no file; it names the certificates (PEM) that servers are checked by"
            )
        self._origins = {url: Origin(url, headers, ca_file) for url in self._urls}
        self._clock = clock or SystemClock()
        self._unhealthy_until: dict[str, float] = {}
        self._lifetime = Lifetime()

    async def request(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        *,
        extra_seconds: float = 0,
        content_type: str = "application/json",
        tries: Tries | None = None,
    ) -> tuple[int, bytes]:
        """The answer's status and body. Retries what may succeed later; raises `Refused` for what will not.

        Give `tries` to learn whether a try before the one that was answered may have been carried out.
        """
        tries = tries or Tries()
        fault, is_away = "no attempt was made", True
        for attempt in range(self._attempts):
            if attempt:
                pause = self._first_pause_seconds * 2 ** (attempt - 1)
                await self._lifetime.wait_for(None, asyncio.sleep, pause * random.uniform(0.8, 1.2))
            url = self._choose(attempt)
            try:
                response = await self._lifetime.wait_for(
                    self._timeout_seconds + extra_seconds,
                    self._origins[url].request, method, path, body, content_type, tries,
                )  # fmt: skip
            except OSError as error:  # TimeoutError is one
                self._unhealthy_until[url] = self._clock.monotonic() + self._retry_unhealthy_seconds
                fault = f"{url}: {str(error) or type(error).__name__}"
                continue
            is_away = False
            if response.status < 300:
                return response.status, response.body
            if response.status not in RETRIED_STATUSES:
                raise Refused(response.status, _detail(response))
            tries.unanswered += _leaves_open_what_happened(response)
            fault = f"{url}: {response.status} {_detail(response)}"
        remedy = f"Start one with `forebay serve`, or name another; tried: {', '.join(self._urls)}" if is_away else None
        raise Unreachable(f"{method} {path} failed {self._attempts} times, last {fault}", remedy=remedy)

    def _choose(self, attempt: int) -> str:
        """The first server that is not known to be down, each attempt the next one; any, if all are."""
        if not self._unhealthy_until:
            return self._urls[attempt % len(self._urls)]
        now = self._clock.monotonic()
        healthy = [url for url in self._urls if self._unhealthy_until.get(url, 0) <= now] or self._urls
        return healthy[attempt % len(healthy)]

    async def close(self) -> None:
        """Requests that are under way end with `ClientClosed`, and so do those that come later."""
        if not self._lifetime.is_of_this_process:
            return  # the connections are the parent's
        self._lifetime.end()
        await self._lifetime.ended()
        for origin in self._origins.values():
            await origin.close()


def _url_fault(url: str) -> str | None:
    """Why no request can be sent there, whatever listens; None if one can."""
    if not url.isprintable() or " " in url:
        return "it has blanks or characters that cannot be printed"
    try:
        parts = urlsplit(url)
        host = (parts.hostname or "").encode("idna")  # as it is looked up
    except ValueError:
        return "it names no host"
    if parts.scheme not in ("http", "https"):
        return "it begins with neither http:// nor https://"
    if not host:
        return "it names no host"
    try:
        is_port = parts.port != 0
    except ValueError:
        is_port = False
    return None if is_port else "its port is no number from 1 to 65535"


def _leaves_open_what_happened(response: Response) -> bool:
    if response.status in _SAYS_NOTHING:
        return True
    try:
        problem: Any = msgspec.json.decode(response.body)
    except msgspec.DecodeError:
        return False
    return isinstance(problem, dict) and problem.get("outcomeUnknown") is True


def _detail(response: Response) -> str:
    body = response.body
    if response.location:
        return f"redirected to {response.location}, which is not followed: name that server"
    try:
        problem: Any = msgspec.json.decode(body)
    except msgspec.DecodeError:
        return body[:200].decode(errors="replace")
    if isinstance(problem, dict):
        return str(problem.get("detail") or problem.get("error") or problem)
    return str(problem)
