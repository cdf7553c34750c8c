"""Where `forebay keys` makes its changes: at a running server over HTTP, here, or in the store itself (`stored_keys`).

They are two modules because the second needs all that a server is made of, and a command that asks one need not wait
until that is loaded.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Protocol

from forebay.access.values import NewKey
from forebay.cli.server_option import connected_to
from forebay.client.paths import quoted

PATH = "/api/v1/keys"

Document = dict[str, Any]


class KeyStore(Protocol):
    """What both can do; keys are shown as `GET /api/v1/keys` shows them."""

    def listed(self, *, revoked: bool) -> list[Document]: ...
    def create(self, wanted: NewKey) -> Document: ...
    def rotate(self, key_id: str, grace_seconds: float) -> Document: ...
    def revoke(self, key_id: str) -> None: ...


class ServerKeys:
    """Those of a server. Changes are sent once: a key whose text was lost on its way would be there all the same."""

    def __init__(self, url: str, api_key: str | None) -> None:
        self._connect = partial(connected_to, [url], api_key, attempts=1)

    def listed(self, *, revoked: bool) -> list[Document]:
        with self._connect() as client:
            return list(client.get(PATH, {"revoked": str(revoked).lower()})["keys"])

    def create(self, wanted: NewKey) -> Document:
        body: Document = {"name": wanted.name, "scopes": list(wanted.scopes), "queues": list(wanted.queues)}
        if wanted.lasts_seconds is not None:
            body["expiresSeconds"] = wanted.lasts_seconds
        with self._connect() as client:
            return dict(client.post(PATH, body))

    def rotate(self, key_id: str, grace_seconds: float) -> Document:
        with self._connect() as client:
            return dict(client.post(f"{PATH}/{quoted(key_id)}/rotate", {"graceSeconds": grace_seconds}))

    def revoke(self, key_id: str) -> None:
        with self._connect() as client:
            client.delete(f"{PATH}/{quoted(key_id)}")
