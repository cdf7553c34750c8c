"""Annotations that a worker gives to parcels: added to those that are there, a newer value in place of an older one."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from forebay.broker.room_work import Ask, Work
from forebay.dispatch.tables import SQL

_decoder = msgspec.json.Decoder(dict[str, str])


def add_annotations(given: Mapping[str, Mapping[str, str]]) -> Work[dict[str, dict[str, str]]]:
    """Add to the annotations of parcels, by did; what each has then."""
    if not given:
        return {}
    rows = yield Ask(SQL["annotations_lock"], {"dids": [[did] for did in sorted(given)]})
    known = {did: _decoder.decode(text) for did, text in rows}
    merged = {did: {**annotations, **given[did]} for did, annotations in known.items()}
    changed = [
        (did, msgspec.json.encode(annotations).decode())
        for did, annotations in merged.items()
        if annotations != known[did]
    ]
    if changed:
        yield Ask(SQL["annotations_set"], {"parcels": changed})
    return merged
