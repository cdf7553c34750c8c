"""OpenAPI 3.1 and a page to read, both made from the routing table and the structs of bodies and answers."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any

import msgspec

import forebay
from forebay.api.gate import COOKIE
from forebay.api.problems import CODES, STATUSES, TITLES
from forebay.api.routing import Content, Route, Scope
from forebay.model.queue import NAME_CHARACTERS_MAX

_REFERENCE = "#/components/schemas/{name}"
_BYTES = {"type": "string", "format": "binary"}
EVERYWHERE = (400, 401, 403, 429)
"""Problems that every operation but the open ones may answer with."""


class Problem(msgspec.Struct):
    """What went wrong (RFC 9457)."""

    type: str
    title: str
    status: int
    detail: str
    error: str
    code: str
    field: str | None = None
    firstSeq: int | None = None  # noqa: N815 - the wire's name


def description(routes: Sequence[Route]) -> bytes:
    """The document at `/openapi.json`."""
    bodies = [route.body for route in routes if route.body not in (None, bytes)]
    kinds = [*bodies, *[kind for route in routes for kind in _shapes(route)]]
    schemas, components = msgspec.json.schema_components([*kinds, Problem], ref_template=_REFERENCE)
    by_kind = {_key(kind): schema for kind, schema in zip([*kinds, Problem], schemas, strict=True)}
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, by_kind)
    document = {
        "openapi": "3.1.0",
        "info": {
            "title": "Forebay",
            "version": forebay.__version__,
            "description": "A durable queue in front of Spark data pipelines. Wire-compatible with Queen.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer"},
                "key": {"type": "apiKey", "in": "header", "name": "X-API-Key"},
                "session": {"type": "apiKey", "in": "cookie", "name": COOKIE},
            },
        },
    }
    return msgspec.json.encode(document)


def _shapes(route: Route) -> list[Any]:
    kinds = [kind for answer in route.answers.values() for kind in (answer if isinstance(answer, tuple) else (answer,))]
    return [kind for kind in kinds if not _is_text(kind) and not isinstance(kind, Content)]


def _is_text(kind: Any) -> bool:
    return kind is None or kind in (str, bytes)


def _key(kind: Any) -> str:
    return repr(kind)


def _operation(route: Route, schemas: dict[str, Any]) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": f"{route.tag}.{route.name}.{route.path.strip('/').replace('/', '.')}",
        "tags": [route.tag],
        "summary": route.summary,
        "description": (route.handler.__doc__ or "").strip(),
        "parameters": [*map(_path_parameter, route.parameter_names()), *map(_query_parameter, route.query)],
        "responses": _responses(route, schemas),
    }
    if route.body is not None:
        operation["requestBody"] = {
            "required": not route.is_body_optional,
            "content": {route.body_type: {"schema": _BYTES if route.body is bytes else schemas[_key(route.body)]}},
        }
    if route.scope is not Scope.OPEN:
        operation["security"] = [{}, {"bearer": []}, {"key": []}, {"session": []}]
        operation["x-forebay-scopes"] = route.scopes
        operation["x-forebay-queues"] = route.queues.value if route.queue_place < 0 else "named"
    return operation


def _path_parameter(name: str) -> dict[str, Any]:
    schema = {"type": "string", "minLength": 1, "maxLength": NAME_CHARACTERS_MAX}
    return {"name": name, "in": "path", "required": True, "schema": schema}


def _query_parameter(parameter: Any) -> dict[str, Any]:
    return {
        "name": parameter.name,
        "in": "query",
        "required": False,
        "description": parameter.help,
        "schema": parameter.schema(),
    }


def _responses(route: Route, schemas: dict[str, Any]) -> dict[str, Any]:
    answers: dict[str, Any] = {}
    for status, kind in route.answers.items():
        if kind is None:
            answers[str(status)] = {"description": "Nothing at the moment."}
        elif isinstance(kind, Content):
            answers[str(status)] = {"description": route.summary, "content": {kind.media_type: {"schema": _BYTES}}}
        elif _is_text(kind):
            content = "text/plain" if kind is str else "text/html"
            answers[str(status)] = {"description": "Text.", "content": {content: {"schema": {"type": "string"}}}}
        elif isinstance(kind, tuple):
            shapes = {"anyOf": [schemas[_key(one)] for one in kind if not isinstance(one, Content)]}
            others = {one.media_type: {"schema": _BYTES} for one in kind if isinstance(one, Content)}
            content_types = {"application/json": {"schema": shapes}, **others}
            answers[str(status)] = {"description": route.summary, "content": content_types}
        else:
            content_of = {"application/json": {"schema": schemas[_key(kind)]}}
            if route.path == "/metrics":
                content_of["text/plain"] = {"schema": {"type": "string"}}
            answers[str(status)] = {"description": route.summary, "content": content_of}
    for status in problems_of(route):
        answers.setdefault(
            str(status),
            {
                "description": TITLES[status],
                "content": {"application/problem+json": {"schema": schemas[_key(Problem)]}},
            },
        )
    return answers


def problems_of(route: Route) -> list[int]:
    own = {*route.problems, 408} if route.body is not None else set(route.problems)
    if route.scope is not Scope.OPEN:
        own |= set(EVERYWHERE)
    return sorted(own)


def page(routes: Sequence[Route]) -> bytes:
    """The page at `/docs`: one file, no script, nothing from elsewhere."""
    parts = [_HEAD]
    for tag in dict.fromkeys(route.tag for route in routes):
        parts.append(f"<h2>{escape(tag.replace('_', ' '))}</h2>")
        parts += [_section(route) for route in routes if route.tag == tag]
    parts.append("<h2>problems</h2><table><tr><th>code<th>status<th>meaning</tr>")
    below = [(code, status, (kind.__doc__ or "").splitlines()[0]) for kind, status, code in STATUSES]
    parts += [
        f"<tr id='{code}'><td><code>{code}</code><td>{status}<td>{escape(meaning)}</tr>"
        for code, status, meaning in [*CODES, *below]
    ]
    return "".join([*parts, "</table></html>"]).encode()


def _section(route: Route) -> str:
    rows = [
        f"<tr><td><code>{escape(each.name)}</code><td>{escape(str(each.default))}<td>{escape(each.help)}</tr>"
        for each in route.query
    ]
    table = f"<table><tr><th>query<th>default<th>meaning</tr>{''.join(rows)}</table>" if rows else ""
    body = ""
    if route.body is bytes:
        body = f"<p>Body: <code>{escape(route.body_type)}</code></p>"
    elif route.body is not None:
        members = ", ".join(
            f"<code>{escape(field.encode_name)}</code>{'' if field.required else '?'}"
            for field in msgspec.structs.fields(route.body)
        )
        body = f"<p>Body: {members}</p>"
    statuses = ", ".join(map(str, [*route.answers, *problems_of(route)]))
    return (
        f"<details><summary><b>{route.method}</b> <code>{escape(route.path)}</code> {escape(route.summary)}</summary>"
        f"<p>{escape((route.handler.__doc__ or '').strip())}</p>{body}{table}<p>Answers: {statuses}. "
        f"Scope: {' or '.join(route.scopes) or 'none'}.</p></details>"
    )


STYLE = """
:root{color-scheme:light dark}body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}
summary{cursor:pointer;padding:.2rem 0}summary b{display:inline-block;min-width:4.5rem}
details>*:not(summary){margin-left:4.5rem}
table{border-collapse:collapse}th,td{text-align:left;padding:.1rem 1rem .1rem 0;vertical-align:top}
"""
_HEAD = f"""<!doctype html><html lang="en"><meta charset="utf-8"><title>Forebay: HTTP API</title>
<meta name="viewport" content="width=device-width"><style>{STYLE}</style><h1>Forebay: HTTP API</h1>
<p>The same for programs: <a href="/openapi.json">OpenAPI 3.1</a>. A key, where the server wants one, goes into
<code>Authorization: Bearer KEY</code> or <code>X-API-Key: KEY</code>.</p>
"""
