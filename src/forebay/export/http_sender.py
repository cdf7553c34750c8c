"""One way of sending over HTTP for all destinations that do. Proxies, TLS and redirects are aiohttp's business, but for
one thing: a redirect that turns a request into a GET loses the batch, and is a refusal here.

Every failure becomes a `SendFailed` with its class. An answer is read up to 64 KiB: a destination that answers without
end is cut off and judged by its status.
"""

from __future__ import annotations

import os
import ssl
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import aiohttp

from forebay.clock import Clock
from forebay.export.outcome import ErrorClass, SendFailed, failure_of

ANSWER_BYTES_MAX = 64 << 10
TURNS_INTO_GET = frozenset({301, 302, 303})


@dataclass(frozen=True, slots=True)
class HttpOptions:
    url: str
    headers: Mapping[str, str] = field(default_factory=dict)
    timeout_seconds: float = 30.0
    ca_file: str = ""
    certificate: str = ""
    certificate_key: str = ""
    connections_max: int = 100


class HttpResponse(NamedTuple):
    status: int
    body: bytes
    content_type: str


class HttpSender:
    """A pool of connections to one place."""

    def __init__(self, options: HttpOptions, clock: Clock) -> None:
        self.options = options
        self._clock = clock
        self._session: aiohttp.ClientSession | None = None

    def open(self) -> None:
        options = self.options
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=options.connections_max, ssl=tls_context(options) or True),
            timeout=aiohttp.ClientTimeout(total=options.timeout_seconds),
            headers={"User-Agent": "forebay", **options.headers},
            auto_decompress=True,
            trust_env=_is_environment_telling(),
        )

    async def post(self, url: str, body: bytes, headers: Mapping[str, str]) -> HttpResponse:
        """Send, and return an answer that is a yes. Raises SendFailed for every other, and for none."""
        if self._session is None:
            raise SendFailed(ErrorClass.UNKNOWN, "the destination is not open")
        try:
            async with self._session.post(url, data=body, headers=dict(headers)) as response:
                content = await response.content.read(ANSWER_BYTES_MAX)
                _check_that_body_was_sent(response)
                if 200 <= response.status < 300:
                    return HttpResponse(response.status, content, response.content_type)
                text = content.decode(errors="replace")
                retry_after = response.headers.get("Retry-After")
                raise failure_of(response.status, text, retry_after, now_us=self._clock.now_us())
        except TimeoutError as error:
            message = f"no answer from {url} within {self.options.timeout_seconds:g} s"
            raise SendFailed(ErrorClass.TIMEOUT, message) from error
        except aiohttp.InvalidURL as error:
            raise SendFailed(ErrorClass.CLIENT_ERROR, f"{url} is no URL: {error}") from error
        except (aiohttp.ClientError, OSError) as error:
            raise SendFailed(ErrorClass.NETWORK, f"{url}: {error or type(error).__name__}") from error

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None


def _check_that_body_was_sent(response: aiohttp.ClientResponse) -> None:
    """Raises SendFailed after a redirect that made a GET of the request: its yes is for a request without the batch.

    301, 302 and 303 do that, by the rules of HTTP for clients; 307 and 308 do not.
    """
    for step in response.history:
        if step.status in TURNS_INTO_GET and step is not response:  # without Location it is the answer itself
            message = f"HTTP {step.status}: {step.url} is at {response.url} now, and a batch cannot follow there"
            raise SendFailed(ErrorClass.CLIENT_ERROR, f"{message}. Write that address into the settings")


def _is_environment_telling() -> bool:
    """Whether there are proxies or a netrc file to obey.

    aiohttp looks for both at every request, in a thread each, which costs more than sending 50 KiB. It is spared that
    where there are none when the destination is opened.
    """
    home = os.environ.get("NETRC") or Path("~/.netrc").expanduser()
    return bool(urllib.request.getproxies()) or Path(home).exists()


def tls_context(options: HttpOptions) -> ssl.SSLContext | None:
    """None for that of the system. Raises OSError (ssl.SSLError is one) for files that cannot be used."""
    if not options.ca_file and not options.certificate:
        return None
    context = ssl.create_default_context(cafile=options.ca_file or None)
    if options.certificate:
        context.load_cert_chain(options.certificate, options.certificate_key or None)
    return context
