"""Values of records to columns of Arrow and back, without a record that does not fit hurting the others.

A column is made at once. Only where Arrow refuses it, its values are looked at one by one, and each that does not fit
is the fault of its record. Arrow takes some values that mean something else in the column: 1.5 for an integer, a number
for a time, a text for an array, an unknown field of a struct. Those are refused before, and so is null for NOT NULL.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import date, datetime, time, timedelta
from typing import Any

import pyarrow as pa

_MISFITS = (pa.ArrowException, TypeError, ValueError, OverflowError)
_SHOWN_CHARACTERS_MAX = 100
_PYTHON_TYPES: Sequence[tuple[Callable[[pa.DataType], bool], tuple[type, ...]]] = (
    (pa.types.is_timestamp, (datetime,)),
    (pa.types.is_date, (date,)),
    (pa.types.is_time, (time,)),
    (pa.types.is_duration, (timedelta,)),
)


class Cells(Mapping[str, Sequence[Any]]):
    """The columns of a batch as Python values; a column that no record looks at is never converted."""

    def __init__(self, batch: pa.RecordBatch) -> None:
        self._batch = batch
        self._names = tuple(batch.schema.names)
        self._known: dict[str, Sequence[Any]] = {}

    def __getitem__(self, name: str) -> Sequence[Any]:
        found = self._known.get(name)
        if found is None:
            if name not in self._names:
                raise KeyError(name)
            found = self._known[name] = python_values(self._batch.column(name))
        return found

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


def python_values(column: pa.Array) -> list[Any]:
    """The values of a column; maps are dictionaries, however deep they are."""
    values: list[Any] = column.to_pylist()
    return [_with_dicts(value, column.type) for value in values] if _has_map(column.type) else values


def _has_map(kind: pa.DataType) -> bool:
    return pa.types.is_map(kind) or any(_has_map(kind.field(i).type) for i in range(kind.num_fields))


def _with_dicts(value: Any, kind: pa.DataType) -> Any:
    if value is None or not _has_map(kind):
        return value
    if pa.types.is_map(kind):
        return {_with_dicts(key, kind.key_type): _with_dicts(below, kind.item_type) for key, below in value}
    if pa.types.is_struct(kind):
        return {field.name: _with_dicts(value[field.name], field.type) for field in kind}
    return [_with_dicts(below, kind.value_type) for below in value]


def column_of(values: Sequence[Any], field: pa.Field) -> tuple[pa.Array, dict[int, str]]:
    """The values as a column of that type, and the causes of those that do not fit, which are null in it.

    `field` says what is NOT NULL, also within the values; the column itself is nullable throughout.
    """
    kind = as_nullable(field.type)
    faults: dict[int, str] = {}
    if not field.nullable or _is_looked_at(field.type, values):
        for index, value in enumerate(values):
            fault = _fault_of(value, field)
            if fault is not None:
                faults[index] = _misfit(field, value, fault)
    fitting = [None if index in faults else value for index, value in enumerate(values)] if faults else values
    try:
        return pa.array(fitting, kind), faults
    except _MISFITS:
        return _one_by_one(fitting, field, kind, faults)


def _one_by_one(
    values: Sequence[Any], field: pa.Field, kind: pa.DataType, faults: dict[int, str]
) -> tuple[pa.Array, dict[int, str]]:
    kept: list[Any] = []
    for index, value in enumerate(values):
        try:
            pa.array([value], kind)
            kept.append(value)
        except _MISFITS as misfit:
            faults[index] = _misfit(field, value, str(misfit).splitlines()[0])
            kept.append(None)
    return pa.array(kept, kind), faults


def as_nullable(kind: pa.DataType) -> pa.DataType:
    """The same type with nulls allowed everywhere but in the keys of maps."""
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(field.name, as_nullable(field.type)) for field in kind])
    if pa.types.is_map(kind):
        key, item = as_nullable(kind.key_type), as_nullable(kind.item_type)
        return pa.map_(pa.field("key", key, nullable=False), pa.field("value", item))
    if pa.types.is_list(kind):
        return pa.list_(pa.field("element", as_nullable(kind.value_type)))
    return kind


def _is_looked_at(kind: pa.DataType, values: Sequence[Any]) -> bool:
    if pa.types.is_integer(kind):
        # By type and not by value, because nearly all columns of integers hold nothing else.
        return not all(hasattr(one, "__index__") or one is type(None) for one in set(map(type, values)))
    return kind.num_fields > 0 or any(is_kind(kind) for is_kind, _ in _PYTHON_TYPES)


def _fault_of(value: Any, field: pa.Field) -> str | None:
    """Why a value must not be given to Arrow; None if Arrow may judge it."""
    kind = field.type
    if value is None:
        return None if field.nullable else f"null, and {field.name} is NOT NULL"
    for is_kind, types in _PYTHON_TYPES:
        if is_kind(kind):
            is_fine = isinstance(value, types) and not (pa.types.is_date(kind) and isinstance(value, datetime))
            return None if is_fine else f"got {type(value).__name__}"
    if pa.types.is_integer(kind):
        return None if hasattr(value, "__index__") else f"got {type(value).__name__}"
    if pa.types.is_list(kind):
        if isinstance(value, str | bytes | Mapping | set | frozenset):
            return f"got {type(value).__name__}"
        return _first_fault((below, kind.value_field) for below in value)
    if pa.types.is_map(kind):
        if not isinstance(value, Mapping):
            return f"got {type(value).__name__}"
        return _first_fault((below, kind.item_field) for below in value.values())
    if pa.types.is_struct(kind):
        if not isinstance(value, Mapping):
            return f"got {type(value).__name__}"
        known = {below.name for below in kind}
        unknown = [str(name) for name in value if name not in known]
        if unknown:
            return f"unknown fields {', '.join(unknown)}"
        return _first_fault((value.get(below.name), below) for below in kind)
    return None


def _first_fault(parts: Iterator[tuple[Any, pa.Field]]) -> str | None:
    return next((fault for value, field in parts if (fault := _fault_of(value, field)) is not None), None)


def _misfit(field: pa.Field, value: Any, why: str) -> str:
    return f"{_shortened(repr(value))} does not fit column {field.name} ({field.type}): {_shortened(why)}"


def _shortened(text: str) -> str:
    return text if len(text) <= _SHOWN_CHARACTERS_MAX else text[:_SHOWN_CHARACTERS_MAX] + "…"
