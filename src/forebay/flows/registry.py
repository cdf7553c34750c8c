"""Finds the class of an action by its short name or its dotted path."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType, ModuleType

from forebay.errors import Permanent
from forebay.flows.action import DataFrameAction, PythonAction
from forebay.flows.record_action import RecordAction
from forebay.flows.written import resembling

BUILTIN: Mapping[str, str] = MappingProxyType(
    {
        "parse_json": "forebay.spark.builtin.parse_json.ParseJson",
        "deduplicate": "forebay.spark.builtin.deduplicate.Deduplicate",
        "sample": "forebay.spark.builtin.sample.Sample",
        "redact": "forebay.spark.builtin.redact.Redact",
        "rollup": "forebay.spark.builtin.rollup.Rollup",
        "otlp_metrics": "forebay.spark.builtin.otlp_metrics.OtlpMetrics",
        "drop_labels": "forebay.spark.builtin.drop_labels.DropLabels",
        "to_otlp": "forebay.spark.builtin.to_otlp.ToOtlp",
        "to_remote_write": "forebay.spark.builtin.to_remote_write.ToRemoteWrite",
    }
)
"""Short names of the actions that come with Forebay."""


class NotFound(Permanent):
    """No class or module can be loaded under that name. The message says why."""


def find_action(name: str) -> type[PythonAction]:
    """The class of that name; NotFound if there is none, or if it is no action."""
    path = BUILTIN.get(name, name)
    module_name, _, class_name = path.rpartition(".")
    if not module_name:
        raise NotFound(
            f"no built-in action {name!r}{resembling(name, BUILTIN)}; there are {', '.join(BUILTIN)}",
            remedy="A class of your own is named with its module: shop.actions.Enrich",
        )
    module = find_module(module_name)
    found = getattr(module, class_name, None)
    if found is None:
        raise NotFound(f"module {module_name} has no {class_name!r}{resembling(class_name, dir(module))}")
    if not (isinstance(found, type) and issubclass(found, DataFrameAction | RecordAction)):
        raise NotFound(
            f"{path} is no action",
            remedy="It has to be a class derived from forebay.flows.DataFrameAction or RecordAction",
        )
    return found


def find_module(name: str) -> ModuleType:
    """Import a user's module: whatever it raises is reported, and is not our bug."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as missing:
        raise NotFound(f"no module {missing.name!r}", remedy="Put it beside the file, or on PYTHONPATH") from missing
    except Exception as error:
        raise NotFound(f"importing {name} failed: {type(error).__name__}: {error}") from error


def search_beside(file: Path) -> None:
    """Let modules beside the file be found, here and in Spark's Python processes on this machine."""
    folder = str(file.resolve().parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)
        earlier = os.environ.get("PYTHONPATH")
        os.environ["PYTHONPATH"] = folder + (os.pathsep + earlier if earlier else "")
