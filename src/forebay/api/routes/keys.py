"""API keys of the store: list, make, rotate, revoke. Only for keys of scope admin that are for all queues."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Literal

from msgspec import Meta, Struct

from forebay.access import keys
from forebay.access.digests import new_key
from forebay.access.values import KeyInfo, NewKey
from forebay.api.exchange import Request, Response
from forebay.api.large_bodies import read_body
from forebay.api.parameters import Switch
from forebay.api.responses import answered, iso, iso_or_none
from forebay.api.routing import Route, Scope
from forebay.api.service import Service

GRACE_SECONDS = 3600.0
REVOKED = Switch("revoked", False, "Also those that are revoked.")

_Seconds = Annotated[float, Meta(ge=0, le=keys.SECONDS_MAX)]
_Texts = list[Annotated[str, Meta(min_length=1, max_length=keys.PATTERN_CHARACTERS_MAX)]]


class NewKeyBody(Struct, rename="camel", forbid_unknown_fields=True):
    """A key that is to be made."""

    name: Annotated[str, Meta(min_length=1, max_length=keys.NAME_CHARACTERS_MAX)]
    scopes: Annotated[list[Literal["read", "write", "consume", "admin"]], Meta(min_length=1, max_length=10)]
    queues: Annotated[_Texts, Meta(max_length=keys.PATTERNS_MAX)] = []
    """Patterns, such as `orders.*`; none: all queues."""
    expires_seconds: _Seconds | None = None
    """From now; never if it is not given."""


class RotateBody(Struct, rename="camel", forbid_unknown_fields=True):
    grace_seconds: _Seconds = GRACE_SECONDS
    """How long the old key still counts."""


class KeyShape(Struct, rename="camel"):
    """A key, without its text: that is shown once, when it is made."""

    id: str
    name: str
    scopes: list[str]
    queues: list[str]
    state: str
    """`active`, `expired` or `revoked`."""
    made_by: str
    created_at: str
    expires_at: str | None
    revoked_at: str | None
    last_used_at: str | None
    """To a minute or so."""
    old_key_until: str | None
    """Until when the text before the last rotation counts."""


class KeyList(Struct, rename="camel"):
    keys: list[KeyShape]
    in_force: bool
    """Whether a key is needed at all."""


class KeyMade(Struct, rename="camel"):
    key: str
    """The text to give as key. It is shown here and never again."""
    info: KeyShape


class KeyRevoked(Struct):
    success: bool
    id: str


def key_shape(key: KeyInfo, now_us: int) -> KeyShape:
    has_old = key.previous_digest and key.previous_until_us > now_us and key.revoked_us is None
    return KeyShape(
        key.key_id,
        key.name,
        list(key.scopes),
        list(key.queues),
        key.state_at(now_us),
        key.made_by,
        iso(key.created_us),
        _time(key.expires_us),
        _time(key.revoked_us),
        _time(key.used_us),
        iso(key.previous_until_us) if has_old else None,
    )


def _time(us: int | None) -> str | None:
    return None if us is None else iso_or_none(us)


async def list_keys(service: Service, request: Request) -> Response:
    """Those of the store. Keys of a keys file are not listed: the file says which they are."""
    await service.keyring.note_uses()
    found = await service.store.look(keys.read)
    wanted = [key for key in found.keys if key.revoked_us is None or REVOKED.read(request.query)]
    shapes = [key_shape(key, found.now_us) for key in wanted]
    return answered(KeyList(shapes, service.access.is_in_force))


async def create_key(service: Service, request: Request) -> Response:
    """It counts here at once, and on the other servers of the store within two seconds. The first key has to be
    `admin` of all queues; with it, keys are in force."""
    body = await read_body(NewKeyBody, request)
    request.subject = body.name
    wanted = NewKey(body.name, body.scopes, body.queues, body.expires_seconds, request.caller.name)
    key, digest = new_key()
    has_other_admin = service.keyring.file_has_admin
    made = await service.store.together(partial(keys.create, wanted, digest, has_other_admin=has_other_admin))
    return await _shown(service, key, made, 201)


async def rotate_key(service: Service, request: Request) -> Response:
    """Another text for the same key. The old one counts until the grace time is over, and the one before it no more."""
    (key_id,) = request.path
    body = await read_body(RotateBody, request, is_optional=True)
    key, digest = new_key()
    changed = await service.store.together(partial(keys.rotate, key_id, digest, body.grace_seconds))
    return await _shown(service, key, changed, 200)


async def _shown(service: Service, key: str, info: KeyInfo, status: int) -> Response:
    await service.keyring.read()
    shape = key_shape(info, await service.store.time_us())
    return answered(KeyMade(key, shape), status)._replace(headers=((b"cache-control", b"no-store"),))


async def revoke_key(service: Service, request: Request) -> Response:
    """It counts no more here at once, and on the other servers of the store within two seconds. 409 for the last key
    that could make others."""
    (key_id,) = request.path
    has_other_admin = service.keyring.file_has_admin
    revoked = await service.store.together(partial(keys.revoke, key_id, has_other_admin=has_other_admin))
    request.subject = f"{key_id} ({revoked.name})"
    await service.keyring.read()
    return answered(KeyRevoked(True, key_id))


_KEYS = "/api/v1/keys"

ROUTES = (
    Route("GET", _KEYS, list_keys, "List API keys.", Scope.ADMIN, answers={200: KeyList}, query=(REVOKED,)),
    Route(
        "POST",
        _KEYS,
        create_key,
        "Make an API key.",
        Scope.ADMIN,
        answers={201: KeyMade},
        body=NewKeyBody,
        problems=(409, 413, 415, 503, 507),
    ),
    Route(
        "DELETE",
        f"{_KEYS}/{{id}}",
        revoke_key,
        "Revoke an API key.",
        Scope.ADMIN,
        answers={200: KeyRevoked},
        problems=(404, 409, 503, 507),
    ),
    Route(
        "POST",
        f"{_KEYS}/{{id}}/rotate",
        rotate_key,
        "Give an API key another text.",
        Scope.ADMIN,
        answers={200: KeyMade},
        body=RotateBody,
        is_body_optional=True,
        problems=(404, 413, 415, 503, 507),
    ),
)
