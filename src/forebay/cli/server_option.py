"""What every command that talks to a server has in common: which server, and with which key."""

from __future__ import annotations

from typing import Annotated

import typer

from forebay.client import Client

UrlOption = Annotated[str, typer.Option("--url", envvar="FOREBAY_URL", help="The server to talk to.")]
KeyOption = Annotated[str | None, typer.Option("--api-key", envvar="FOREBAY_API_KEY", help="A key of that server.")]

DEFAULT_URL = "http://127.0.0.1:6632"


def connected(url: str, api_key: str | None) -> Client:
    return Client(url, api_key=api_key)
