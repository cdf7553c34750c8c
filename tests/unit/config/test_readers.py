"""Every setting is obeyed somewhere: a key that no code reads would be a promise without anything behind it."""

from __future__ import annotations

import ast
from pathlib import Path

from pydantic import BaseModel

from forebay.config import dispatch_model, export_model, lists, model, receiver_targets

READ_BY_THE_SETTINGS_THEMSELVES = {
    ("Settings", "profile"): "chooses other defaults, while the settings are put together",
    ("ReceiversSettings", "otlp_http"): "`receiver_targets.listening` goes over them by name",
    ("ReceiversSettings", "otlp_grpc"): "as otlp_http",
    ("ReceiversSettings", "remote_write"): "as otlp_http",
}
SOURCE = Path(__file__).resolve().parents[3] / "src" / "forebay"


def read_outside_of_the_settings() -> set[str]:
    """All names behind a dot in the sources, but for the room that declares the settings."""
    paths = [path for path in sorted(SOURCE.rglob("*.py")) if path.relative_to(SOURCE).parts[0] != "config"]
    trees = [ast.parse(path.read_text()) for path in paths]
    return {node.attr for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Attribute)}


def fields() -> set[tuple[str, str]]:
    modules = (model, dispatch_model, export_model, lists, receiver_targets)
    models = {
        found
        for module in modules
        for found in vars(module).values()
        if isinstance(found, type) and issubclass(found, BaseModel)
    }
    return {(found.__name__, name) for found in models for name in found.model_fields}


def test_every_setting_has_a_reader() -> None:
    found = fields()
    assert ("LogSettings", "segment_size") in found
    assert ("Settings", "data_dir") in found
    names = read_outside_of_the_settings()
    assert {field for field in found if field[1] not in names} == READ_BY_THE_SETTINGS_THEMSELVES.keys()
