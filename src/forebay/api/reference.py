"""Writes the page `docs/reference/rest.md` from the description of the API at `/openapi.json`.

    python -m forebay.api.reference > docs/reference/rest.md

A test compares the file with this text, so the reference cannot drift from the routes.
"""

from __future__ import annotations

import inspect
import json
import sys
from collections.abc import Iterable, Iterator
from typing import Any

from forebay.api.openapi import description
from forebay.api.problems import CODES, STATUSES, TITLES
from forebay.api.routes import API_ROUTES
from forebay.model.body_formats import JSON

PROBLEM = "application/problem+json"
OPENING = """# REST

<!-- Generated from the routes by `python -m forebay.api.reference`. Change the routes, not this file. -->

Every server describes itself too: `/docs` for people, `/openapi.json` (OpenAPI 3.1) for programs. Bodies and answers
are JSON unless a line says otherwise, in UTF-8, with times in ISO 8601. Names in a path have 1 to 255 characters. A
key, where the server wants one, goes into `Authorization: Bearer KEY` or `X-API-Key: KEY`; *scope* says what it has to
allow, and *queues* what a key that is for some queues only is held to: `named`, the queues that the request names;
`shown`, it sees its own; `all`, it is refused.

An error is `application/problem+json` (RFC 9457): `status`, `title`, `detail`, `code`, and `field` where one is wrong.
Programs decide by `code`; what each means stands [at the end](#error-codes). Every operation may also answer 405, 431,
500 and 503.
"""


def reference() -> str:
    """The whole page as Markdown."""
    document = json.loads(description(API_ROUTES))
    by_tag: dict[str, list[str]] = {}
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            by_tag.setdefault(operation["tags"][0], []).append("\n".join(_operation(method, path, operation)))
    parts = [OPENING]
    for tag, operations in by_tag.items():
        parts += [f"## Operations: {tag.replace('_', ' ')}\n", *operations]
    parts += ["## Shapes\n", "What bodies and answers are made of. `?` stands behind a member that may be left out.\n"]
    parts += ["\n".join(_shape(name, schema)) for name, schema in sorted(document["components"]["schemas"].items())]
    parts.append("\n".join(_codes()))
    return "\n".join(parts)


def _operation(method: str, path: str, operation: dict[str, Any]) -> Iterator[str]:
    yield f"### `{method.upper()} {path}`\n"
    yield operation["summary"] + "\n"
    if about := inspect.cleandoc(operation["description"]):
        yield about + "\n"
    scopes = operation.get("x-forebay-scopes")
    held = f"; queues: {operation['x-forebay-queues']}" if scopes else ""
    yield f"- Scope: {' or '.join(f'`{scope}`' for scope in scopes) if scopes else 'none, no key is needed'}{held}"
    if body := operation.get("requestBody"):
        yield f"- Body{'' if body['required'] else ' (may be left out)'}: {_content(body['content'])}"
    problems = []
    for status, answer in sorted(operation["responses"].items()):
        if PROBLEM in answer.get("content", {}):
            problems.append(status)
        else:
            yield f"- {status}: {_content(answer['content']) if 'content' in answer else 'nothing, no body'}"
    if problems:
        yield f"- Problems: {', '.join(problems)}"
    yield ""
    if query := [parameter for parameter in operation["parameters"] if parameter["in"] == "query"]:
        yield from _table(("query", "type", "default", "meaning"), map(_query_row, query))


def _query_row(parameter: dict[str, Any]) -> tuple[str, ...]:
    schema = parameter["schema"]
    default = schema.get("default")
    return f"`{parameter['name']}`", _type(schema), _value(default), parameter["description"]


def _value(default: object) -> str:
    return "" if default is None else f"`{json.dumps(default)}`"


def _content(content: dict[str, Any]) -> str:
    shown = []
    for media_type, inner in content.items():
        schema = inner["schema"]
        shown.append(_type(schema) if media_type == JSON else f"`{media_type}`")
    return " or ".join(shown)


def _shape(name: str, schema: dict[str, Any]) -> Iterator[str]:
    yield f"### {name}\n"
    if about := schema.get("description"):
        yield inspect.cleandoc(about) + "\n"
    if "properties" not in schema:
        yield _type(schema) + "\n"
        return
    required = schema.get("required", ())
    rows = (
        (f"`{member}`{'' if member in required else '?'}", _type(inner), _value(inner.get("default")))
        for member, inner in schema["properties"].items()
    )
    yield from _table(("member", "type", "default"), rows)


def _type(schema: dict[str, Any]) -> str:
    """A JSON schema in words."""
    if reference := schema.get("$ref"):
        name = reference.rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if choices := schema.get("anyOf"):
        return " or ".join(dict.fromkeys(map(_type, choices)))
    if "enum" in schema:
        return ", ".join(f"`{json.dumps(word)}`" for word in schema["enum"])
    kind = schema.get("type", "anything")
    if kind == "array" and schema.get("items"):
        return f"list of {_type(schema['items'])}"
    if kind == "object" and schema.get("additionalProperties"):
        return f"object of {_type(schema['additionalProperties'])}"
    return str(kind) + _bounds(schema)


def _bounds(schema: dict[str, Any]) -> str:
    low = schema.get("minimum", schema.get("minLength"))
    high = schema.get("maximum", schema.get("maxLength"))
    unit = " characters" if schema.get("type") == "string" else ""
    if high is not None:
        return f" ({low or 0} to {high}{unit})"
    return f" (at least {low}{unit})" if low is not None else f" ({schema['format']})" if "format" in schema else ""


def _codes() -> Iterator[str]:
    yield "## Error codes\n"
    yield "The `type` of a problem is `/docs#CODE`. What got 429 or 503 may be sent again, after `Retry-After`.\n"
    yield from _table(("code", "status", "meaning"), map(_code_row, CODES))
    yield "Errors from the rooms below the API, each with the advice of its class:\n"
    advice = ((code, status, (kind.__doc__ or "").splitlines()[0]) for kind, status, code in STATUSES)
    yield from _table(("code", "status", "meaning"), map(_code_row, advice))


def _code_row(row: tuple[str, int, str]) -> tuple[str, ...]:
    code, status, meaning = row
    return f"`{code}`", f"{status} {TITLES[status]}", meaning


def _table(heads: Iterable[str], rows: Iterable[Iterable[str]]) -> Iterator[str]:
    heads = tuple(heads)
    yield f"| {' | '.join(heads)} |"
    yield "|" + "---|" * len(heads)
    for row in rows:
        yield f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |"
    yield ""


if __name__ == "__main__":
    sys.stdout.write(reference())
