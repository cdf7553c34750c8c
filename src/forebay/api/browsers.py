"""Web pages: what a page of another site may not do with this server, through the browser of a user who can reach it.

A browser lets any page send requests to `http://127.0.0.1:6632`: a form or an image is enough to push or to pop. Only
answers are kept from the page, and with a name of its own that leads to 127.0.0.1 (DNS rebinding) not even those. So:

- **Host.** A server without keys on a loopback address serves loopback names only; `server.allowed_hosts` names others.
  A page that came from elsewhere has its own name there, whatever address that leads to.
- **Sec-Fetch-Site, Origin.** Browsers say where a request comes from. One that changes something is refused unless it
  comes from this server's own pages. A GET that changes something (pop) has to be sent by such a page: the address bar
  is not enough, since a link can lead there.

Programs send none of these headers but `Host`, and notice nothing. Keys are required all the same where there are any.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from forebay.api.problems import Problem

ANY = "*"
_OWN = (b"same-origin", b"none")
_KNOWN_MAX = 4096


Headers = Sequence[tuple[bytes, bytes]]


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


@dataclass(frozen=True, slots=True)
class Browsers:
    """`allowed_hosts`: by which names, beside loopback ones, this server is called; None where any will do."""

    allowed_hosts: frozenset[str] | None = None
    _of_programs: dict[int, Headers] = field(default_factory=dict)
    """Heads that came before, by their place in memory: those of programs are the same again and again."""

    def check(self, headers: Headers, method: str, *, changes: bool) -> None:
        """Raise 403 for what a page of another site might have sent. `changes`: the request is no mere question."""
        if self._of_programs.get(id(headers)) is headers:
            return
        site = origin = host = b""
        for name, value in headers:
            if name == b"host":
                host = value
            elif name == b"sec-fetch-site":
                site = value.strip().lower()
            elif name == b"origin":
                origin = value.strip().lower()
        if self.allowed_hosts is not None:
            self._check_host(host)
        if site or origin:
            if changes:
                _check_site(site, origin, host, method)
        elif type(headers) is tuple:
            if len(self._of_programs) >= _KNOWN_MAX:
                self._of_programs.clear()
            self._of_programs[id(headers)] = headers

    def _check_host(self, host: bytes) -> None:
        name = _name_of(host.decode("latin-1"))
        if host and not is_loopback(name) and name not in (self.allowed_hosts or ()):
            raise Problem(
                403,
                f"this server is not called {name!r}; server.allowed_hosts says by which names it is",
                code="wrong_host",
            )


def _check_site(site: bytes, origin: bytes, host: bytes, method: str) -> None:
    if site:
        is_own = site == b"same-origin" if method == "GET" else site in _OWN
    else:  # an old browser, which names its page only
        is_own = origin.partition(b"://")[2] == host.strip().lower()
    if not is_own:
        where = (origin or site).decode("latin-1")
        raise Problem(403, f"a web page may not do this from another site ({where})", code="foreign_page")


def _name_of(host: str) -> str:
    """Without port, brackets and case."""
    try:
        return (urlsplit(f"//{host.strip()}").hostname or "").rstrip(".")
    except ValueError:
        return host


def browsers_for(listens_on: str, allowed_hosts: str, *, has_keys: bool) -> Browsers:
    """`allowed_hosts`: names with commas between them, as in the setting."""
    names = [name.strip().lower() for name in allowed_hosts.split(",") if name.strip()]
    if ANY in names or (not names and (has_keys or not is_loopback(listens_on))):
        return Browsers()
    return Browsers(frozenset([listens_on, *names]))
