"""Requests to one of several servers, with failover and retries."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import msgspec

from forebay.client.messages import Refused, Unreachable
from forebay.clock import Clock, SystemClock

_RETRIED = frozenset({429, 500, 502, 503, 504, 507})


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
        clock: Clock | None = None,
    ) -> None:
        for url in urls:
            if urlsplit(url).scheme not in ("http", "https"):
                raise ValueError(f"{url!r} is no server's URL; it looks like http://127.0.0.1:6632")
        if not urls:
            raise ValueError("at least one server's URL is needed")
        self._urls = [url.rstrip("/") for url in urls]
        self._attempts = attempts
        self._first_pause_seconds = first_pause_seconds
        self._timeout_seconds = timeout_seconds
        self._retry_unhealthy_seconds = retry_unhealthy_seconds
        self._headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        self._clock = clock or SystemClock()
        self._unhealthy_until: dict[str, float] = {}
        self._session: aiohttp.ClientSession | None = None

    async def request(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        *,
        extra_seconds: float = 0,
        content_type: str = "application/json",
    ) -> tuple[int, bytes]:
        """The answer's status and body. Retries what may succeed later; raises `Refused` for what will not."""
        fault = "no attempt was made"
        for attempt in range(self._attempts):
            if attempt:
                pause = self._first_pause_seconds * 2 ** (attempt - 1)
                await asyncio.sleep(pause * random.uniform(0.8, 1.2))
            url = self._choose(attempt)
            try:
                status, answer = await self._send(method, url + path, body, extra_seconds, content_type)
            except (aiohttp.ClientError, TimeoutError, OSError) as error:
                self._unhealthy_until[url] = self._clock.monotonic() + self._retry_unhealthy_seconds
                fault = f"{url}: {error or type(error).__name__}"
                continue
            if status < 400:
                return status, answer
            if status not in _RETRIED:
                raise Refused(status, _detail(answer))
            fault = f"{url}: {status} {_detail(answer)}"
        raise Unreachable(f"{method} {path} failed {self._attempts} times, last {fault}")

    def _choose(self, attempt: int) -> str:
        """The first server that is not known to be down, each attempt the next one; any, if all are."""
        now = self._clock.monotonic()
        healthy = [url for url in self._urls if self._unhealthy_until.get(url, 0) <= now] or self._urls
        return healthy[attempt % len(healthy)]

    async def _send(
        self, method: str, url: str, body: bytes | None, extra_seconds: float, content_type: str
    ) -> tuple[int, bytes]:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                headers=self._headers,
                connector=aiohttp.TCPConnector(limit=0),
            )
        timeout = aiohttp.ClientTimeout(total=self._timeout_seconds + extra_seconds)
        headers = {"Content-Type": content_type}
        async with self._session.request(method, url, data=body, timeout=timeout, headers=headers) as response:
            return response.status, await response.read()

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None


def _detail(body: bytes) -> str:
    try:
        problem: Any = msgspec.json.decode(body)
    except msgspec.DecodeError:
        return body[:200].decode(errors="replace")
    if isinstance(problem, dict):
        return str(problem.get("detail") or problem.get("error") or problem)
    return str(problem)
