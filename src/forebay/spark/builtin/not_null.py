"""NOT NULL in a schema: what Spark's from_json does not look at, and Java takes on trust.

Spark asks no value of a column that is NOT NULL whether it is null. Where one is after all, a number may become 0 and a
text a NullPointerException. So columns are read as nullable, and rows with a null in the wrong place are found here.
"""

from __future__ import annotations

from functools import reduce
from operator import or_

from pyspark.sql import Column
from pyspark.sql import functions as f
from pyspark.sql.types import ArrayType, DataType, MapType, StructField, StructType


def as_nullable(schema: StructType) -> StructType:
    """The same columns, and everything within them, nullable."""
    return StructType([StructField(field.name, _nullable(field.dataType), True, field.metadata) for field in schema])


def columns_with_nulls(value: Column, schema: StructType) -> Column | None:
    """The names of the columns of a struct that have a null where none may be, with commas between; empty if none has.

    None if the schema allows nulls everywhere.
    """
    checked = [field for field in schema if _is_checked(field)]
    wrong = [f.when(_is_wrong(value.getField(field.name), field), f.lit(field.name)) for field in checked]
    return f.concat_ws(", ", *wrong) if wrong else None


def _is_checked(field: StructField) -> bool:
    """Whether nulls are refused somewhere in it."""
    return not field.nullable or any(map(_is_checked, _parts(field.dataType)))


def _parts(kind: DataType) -> list[StructField]:
    if isinstance(kind, StructType):
        return kind.fields
    if isinstance(kind, ArrayType):
        return [StructField("element", kind.elementType, kind.containsNull)]
    if isinstance(kind, MapType):
        return [StructField("value", kind.valueType, kind.valueContainsNull)]
    return []


def _is_wrong(value: Column, field: StructField) -> Column:
    """Whether there is a null where none may be: the value itself, or within it. Never null."""
    faults = [] if field.nullable else [value.isNull()]
    parts = [part for part in _parts(field.dataType) if _is_checked(part)]
    if parts and isinstance(field.dataType, StructType):
        inner = reduce(or_, [_is_wrong(value.getField(part.name), part) for part in parts])
        faults.append(value.isNotNull() & inner)
    elif parts:
        values = f.map_values(value) if isinstance(field.dataType, MapType) else value
        faults.append(f.coalesce(f.exists(values, lambda one: _is_wrong(one, parts[0])), f.lit(False)))
    return reduce(or_, faults)


def _nullable(kind: DataType) -> DataType:
    if isinstance(kind, StructType):
        return as_nullable(kind)
    if isinstance(kind, ArrayType):
        return ArrayType(_nullable(kind.elementType), True)
    if isinstance(kind, MapType):
        return MapType(_nullable(kind.keyType), _nullable(kind.valueType), True)
    return kind
