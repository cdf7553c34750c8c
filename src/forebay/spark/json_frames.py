"""`payloadAs=json`: what a reader does when it loads a queue as JSON.

A data source in Python runs beside Spark, and Spark's JSON parser is inside of it. A second parser would mean something
else at its edges. So the source gives the payload as bytes, and `load` puts Spark's own from_json on top of it, as
flows do: `forebay.spark.builtin.json_parsing`. For that, `register` teaches the readers' `load` of this process the
option. Where `load` was not taught (SQL's `USING forebay`, other languages, another process), the source refuses the
option and names the remedy.

A frame that is loaded so is the plain source and a projection on it, and its checkpoint is the one of the plain source.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, NamedTuple

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from forebay.errors import Permanent
from forebay.spark.builtin.json_parsing import json_columns
from forebay.spark.option_table import FORMAT
from forebay.spark.options import OptionValue, refuse_options_of_tables

_IS_TAUGHT = "_forebay_is_taught"
_OF_JSON = ("payloadas", "schema")
Load = Callable[..., DataFrame]


class _Options(NamedTuple):
    """What a reader was given before `load`."""

    source: str | None
    options: Mapping[str, str]
    schema: str
    """DDL, or a StructType's JSON; empty if there is none."""
    is_stream: bool
    name: str | None
    session: SparkSession


def teach_readers(spark: SparkSession) -> None:
    """Let `spark.read` and `spark.readStream`, of this session and of others of its kind, know `payloadAs=json`."""
    for reader in (type(spark.read), type(spark.readStream)):
        if not hasattr(reader.load, _IS_TAUGHT):
            reader.load = _taught(reader.load)  # type: ignore[method-assign]


def _taught(load: Load) -> Load:
    @wraps(load)
    def load_queue(
        self: Any,
        path: Any = None,
        format: str | None = None,  # noqa: A002 - Spark's name
        schema: Any = None,
        **options: OptionValue,
    ) -> DataFrame:
        if format is not None:
            self.format(format)
        if schema is not None:
            self.schema(schema)
        self.options(**options)
        try:
            reader_options = _options_of(self)
        except (KeyError, Py4JError):
            # A Spark that keeps it elsewhere: all is as if `load` had not been taught.
            return load(self, path)
        if reader_options.source == FORMAT and reader_options.is_stream:
            refuse_options_of_tables(reader_options.options)
        named = {name.lower(): value for name, value in reader_options.options.items()}
        if reader_options.source != FORMAT or named.get("payloadas", "").strip().lower() != "json":
            return load(self, path)
        return json_columns(
            load(_plain(type(self), reader_options), path), _wanted(named.get("schema"), reader_options.schema)
        )

    setattr(load_queue, _IS_TAUGHT, True)
    return load_queue


def _plain(kind: Any, reader_options: _Options) -> Any:
    """A reader of the same kind for the same queue, which gives bytes. The user's own may load again."""
    options = {name: value for name, value in reader_options.options.items() if name.lower() not in _OF_JSON}
    plain = kind(reader_options.session).format(FORMAT).options(**options)
    return plain if reader_options.name is None else plain.name(reader_options.name)


def _wanted(option: str | None, schema: str) -> str | StructType:
    if (option is None) == (not schema):
        raise Permanent(
            "payloadAs=json needs the columns of the payload, as option schema or with .schema(…): "
            + ("both are given" if schema else "neither is given")
        )
    if option is not None:
        return option
    return StructType.fromJson(json.loads(schema)) if schema.startswith("{") else schema


def _options_of(reader: Any) -> _Options:
    """What a reader knows. Spark has no public way to ask. Readers of Spark Connect keep it in Python."""
    known = vars(reader)
    is_stream = hasattr(reader, "name")
    java = known.get("_jreader")
    if java is None:
        schema, name = known["_schema"], known.get("_source_name")
        return _Options(known["_format"], known["_options"], schema, is_stream, name, known["_client"])
    source = java.source()
    if source != FORMAT:
        return _Options(source, {}, "", is_stream, None, known["_spark"])
    given = java.userSpecifiedSchema()
    schema = given.get().json() if given.isDefined() else ""
    name = _name_of_stream(java) if is_stream else None
    return _Options(source, _as_dict(java.extraOptions()), schema, is_stream, name, known["_spark"])


def _name_of_stream(java: Any) -> str | None:
    name = java.userProvidedSourceName()
    return str(name.get()) if name.isDefined() else None


def _as_dict(java: Any) -> dict[str, str]:
    found = {}
    pairs = java.iterator()
    while pairs.hasNext():
        pair = pairs.next()
        found[str(pair.productElement(0))] = str(pair.productElement(1))
    return found
