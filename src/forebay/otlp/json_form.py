"""OTLP's JSON: protobuf's, but for ids, which are hexadecimal, and for enumerations, which are numbers."""

from __future__ import annotations

import base64
import json
from typing import Any

from google.protobuf import json_format

from forebay.otlp.kinds import Kind
from forebay.otlp.protobufs import REQUESTS

ID_KEYS = frozenset({"traceId", "spanId", "parentSpanId"})
DEPTH_MAX = 100


def from_json(kind: Kind, body: bytes) -> Any:
    """The request in OTLP JSON. Raises ValueError if it is none. Keys that are not known are ignored, as OTLP asks."""
    try:
        return json_format.ParseDict(_with_protobuf_ids(_object(body), 0), REQUESTS[kind](), ignore_unknown_fields=True)
    except (json_format.ParseError, RecursionError, ValueError, TypeError, AttributeError) as error:
        # The last two are what protobuf's parser raises for some values of the wrong type.
        raise ValueError(f"no {kind} request: {error}") from error


def _object(body: bytes) -> dict[str, Any]:
    found = json.loads(body)
    if isinstance(found, dict):
        return found
    raise ValueError("it is no object")


def _with_protobuf_ids(value: Any, depth: int) -> Any:
    if depth > DEPTH_MAX:
        raise ValueError(f"more than {DEPTH_MAX} levels")
    if isinstance(value, list):
        return [_with_protobuf_ids(below, depth + 1) for below in value]
    if not isinstance(value, dict):
        return value
    return {
        key: base64.b64encode(bytes.fromhex(below)).decode()
        if key in ID_KEYS and isinstance(below, str)
        else _with_protobuf_ids(below, depth + 1)
        for key, below in value.items()
    }
