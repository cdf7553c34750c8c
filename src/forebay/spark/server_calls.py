"""HTTP to the servers from driver and executors, with nothing but the standard library.

A call goes on asking, here and at the other servers, until `retry_seconds` have passed without any progress: a server
that is killed and started again must not end a query. What a server refuses is final at once.
"""

from __future__ import annotations

import json
import ssl
import time
from collections.abc import Callable, Mapping
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from typing import Any, NoReturn
from urllib.parse import urlsplit

from forebay.clock import Clock, SystemClock
from forebay.errors import RETRIED_STATUSES, Permanent, Transient
from forebay.model.body_formats import JSON
from forebay.spark.options import Connection

SOCKET_SECONDS_MAX = 120.0
"""How long a server may be silent in the middle of an answer."""
FIRST_PAUSE_SECONDS = 0.1
PAUSE_SECONDS_MAX = 3.0
ERROR_BYTES_MAX = 64 * 1024

BROKEN = (OSError, HTTPException, ssl.SSLError)
"""What a connection that breaks raises."""


class ServerRefused(Permanent):
    """The server at `url` will not do it. `status` is the HTTP status, `problem` its explanation."""

    def __init__(self, status: int, problem: Mapping[str, Any], url: str = "the server") -> None:
        self.status = status
        self.problem = dict(problem)
        self.code = str(problem.get("code", ""))
        self.detail = str(problem.get("detail") or problem.get("error") or "no reason given")
        super().__init__(f"{url} refused ({status}): {self.detail}")


class ServersAway(Transient):
    """No server could do it for as long as `retryTimeout`. Nothing is lost: start the query again when one is back."""


class Unreachable(OSError):
    """The connection to a server broke. Says to which."""


class _NotNow(Exception):
    """A server answered that it cannot do it now."""


class Patience:
    """How long to go on asking. `progress` starts the count anew."""

    def __init__(self, seconds: float, clock: Clock | None = None, sleep: Callable[[float], None] = time.sleep) -> None:
        self._seconds = seconds
        self._clock = clock or SystemClock()
        self._sleep = sleep
        self.progress()

    def progress(self) -> None:
        self._began = self._clock.monotonic()
        self._pause_seconds = FIRST_PAUSE_SECONDS

    def wait(self, what: str, fault: BaseException) -> None:
        """Pause before the next try; when patience is at its end, raise `ServersAway`."""
        left = self._began + self._seconds - self._clock.monotonic()
        if left <= 0:
            raise ServersAway(
                f"{what} failed for {self._seconds:g} s, last: {str(fault) or type(fault).__name__}",
                remedy="The option retryTimeout says how long to wait",
            ) from fault
        self._sleep(min(self._pause_seconds, left))
        self._pause_seconds = min(self._pause_seconds * 2, PAUSE_SECONDS_MAX)


class ServerCalls:
    """Requests to one of the servers; the one that answered last is tried first."""

    def __init__(
        self,
        connection: Connection,
        *,
        clock: Clock | None = None,
        sleep: Callable[[float], None] = time.sleep,
        silence_seconds_max: float = SOCKET_SECONDS_MAX,
    ) -> None:
        self._connection = connection
        self._clock = clock
        self._sleep = sleep
        self._silence_seconds_max = silence_seconds_max
        self._turn = 0

    def patience(self) -> Patience:
        return Patience(self._connection.retry_seconds, self._clock, self._sleep)

    def request(self, method: str, path: str, body: Any = None, content_type: str = JSON) -> Any:
        """The answer, decoded. Retried until patience ends, so ask only for what may be done twice."""
        patience = self.patience()
        while True:
            try:
                with self.open(method, path, body, content_type) as answer:
                    return json.loads(answer.read())
            except (*BROKEN, _NotNow, ValueError) as fault:
                self.give_up_on_this_server()
                patience.wait(f"{method} {path}", fault)

    def request_once(self, method: str, path: str, body: Any = None) -> bytes:
        """The answer's bytes: every server is tried once. `ServersAway` if none could do it."""
        fault: BaseException | None = None
        for _ in self._connection.urls:
            try:
                with self.open(method, path, body) as answer:
                    return answer.read()
            except (*BROKEN, _NotNow) as broken:
                self.give_up_on_this_server()
                fault = broken
        raise ServersAway(f"{method} {path} failed, last: {fault}") from fault

    def open(self, method: str, path: str, body: Any = None, content_type: str = JSON) -> Exchange:
        """One try at one server; an answer that is no success is raised."""
        url = self._connection.urls[self._turn % len(self._connection.urls)]
        exchange = Exchange(url, self._silence_seconds_max)
        headers = {"Content-Type": content_type}
        if self._connection.api_key:
            headers["Authorization"] = f"Bearer {self._connection.api_key}"
        try:
            answer = exchange.send(method, path, body, headers)
            if answer.status >= 400:
                _raise(answer, url + path.partition("?")[0])
        except BaseException as fault:
            exchange.close()
            if isinstance(fault, BROKEN):
                raise Unreachable(f"{url}: {str(fault) or type(fault).__name__}") from fault
            raise
        return exchange

    def give_up_on_this_server(self) -> None:
        self._turn += 1

    def is_retried(self, fault: BaseException) -> bool:
        return isinstance(fault, (*BROKEN, _NotNow))


class Exchange:
    """One request and its answer, on a connection of its own. A context manager: leaving it closes the connection."""

    def __init__(self, url: str, silence_seconds_max: float = SOCKET_SECONDS_MAX) -> None:
        parts = urlsplit(url)
        made = HTTPSConnection if parts.scheme == "https" else HTTPConnection
        self._connection = made(parts.hostname or "", parts.port, timeout=silence_seconds_max)
        self._prefix = parts.path
        self._answer: HTTPResponse | None = None

    def send(self, method: str, path: str, body: Any, headers: Mapping[str, str]) -> HTTPResponse:
        self._connection.request(method, self._prefix + path, body, dict(headers))
        self._answer = self._connection.getresponse()
        return self._answer

    def read(self, size: int = -1) -> bytes:
        if self._answer is None:
            raise HTTPException("nothing was requested yet")
        return self._answer.read() if size < 0 else self._answer.read(size)

    def close(self) -> None:
        if self._answer is not None:
            self._answer.close()
        self._connection.close()

    def __enter__(self) -> Exchange:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _raise(answer: HTTPResponse, url: str) -> NoReturn:
    text = answer.read(ERROR_BYTES_MAX)
    try:
        problem = json.loads(text)
    except ValueError:
        problem = {"detail": text[:200].decode(errors="replace")}
    if not isinstance(problem, dict):
        problem = {"detail": str(problem)}
    refused = ServerRefused(answer.status, problem, url)
    if answer.status in RETRIED_STATUSES:
        raise _NotNow(f"{url}: {answer.status} {refused.detail}")
    raise refused
