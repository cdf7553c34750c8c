"""What every command that talks to a server has in common: which server, with which key, and about which queue."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Annotated

import typer

from forebay.cli.starting_server import DEFAULT_PORT, wait_while_starting
from forebay.client import Address, Client, addresses, parse_address
from forebay.client.async_client import ATTEMPTS
from forebay.errors import Permanent

UrlOption = Annotated[str, typer.Option("--url", envvar="FOREBAY_URL", help="The server to talk to.")]
KeyOption = Annotated[str | None, typer.Option("--api-key", envvar="FOREBAY_API_KEY", help="A key of that server.")]

DEFAULT_URL = f"http://127.0.0.1:{DEFAULT_PORT}"


def connected(url: str, api_key: str | None) -> Client:
    return connected_to([url], api_key)


def connected_to(urls: Sequence[str], api_key: str | None, *, attempts: int = ATTEMPTS) -> Client:
    """A client of several servers; a URL that is none is refused as what the user typed wrong.

    The environment may name the certificates (PEM) by which `https` servers are checked: `FOREBAY_CA_FILE`. One of this
    machine that is just starting is waited for.
    """
    if len(urls) == 1:
        wait_while_starting(urls[0])
    try:
        return Client(*urls, api_key=api_key, ca_file=os.environ.get("FOREBAY_CA_FILE") or None, attempts=attempts)
    except ValueError as wrong:
        raise Permanent(str(wrong)) from None


def place_of(address: str) -> Address:
    """The queue, partition and group that an argument names."""
    try:
        return parse_address(checked_text(address))
    except ValueError as wrong:
        raise Permanent(str(wrong)) from None


def target_of(address: str) -> Address:
    """The queue and partition to push to."""
    try:
        return addresses.target_of(place_of(address))
    except ValueError as wrong:
        raise Permanent(str(wrong)) from None


def checked_text(word: str) -> str:
    """The word, if it is text: Python keeps bytes that are none as lone surrogates, which no request can carry."""
    try:
        word.encode()
    except UnicodeEncodeError:
        raise Permanent(f"{word!r} is not UTF-8", remedy="Names are UTF-8: spell it so") from None
    return word
