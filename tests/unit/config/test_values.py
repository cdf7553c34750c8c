"""Kinds of value in a model: read as people write, held exactly, written back the way they are read."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path

import pytest
from pydantic import BaseModel, Field, ValidationError

from forebay.config.values import Directory, Duration, Size


class Pool(BaseModel):
    volume: Size = Field(default=1024, ge=1024, le=1024**3)
    patience: Duration = Field(default=timedelta(seconds=30), ge=timedelta(seconds=1))
    shore: Directory = Path("shore")


@pytest.mark.parametrize("written", ["1Mi", "1048576", 1048576, "1024Ki"])
def test_size_is_held_as_bytes(written: object) -> None:
    assert Pool.model_validate({"volume": written}).volume == 1024**2


@pytest.mark.parametrize("written", ["1m30s", "90s", timedelta(seconds=90)])
def test_duration_is_held_as_timedelta(written: object) -> None:
    assert Pool.model_validate({"patience": written}).patience == timedelta(seconds=90)


@pytest.mark.parametrize(
    "wrong",
    [
        {"volume": True},
        {"volume": 1.5},
        {"volume": None},
        {"volume": [1024]},
        {"volume": -1},
        {"volume": "1Ki or so"},
        {"volume": 1023},
        {"volume": "2Gi"},
        {"patience": True},
        {"patience": 30},
        {"patience": "30"},
        {"patience": 1.5},
        {"patience": timedelta(seconds=-1)},
        {"patience": "999ms"},
        {"shore": ""},
        {"shore": " "},
        {"shore": "a\0b"},
        {"shore": "~/data"},
        {"shore": 5},
    ],
)
def test_wrong_value_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        Pool.model_validate(wrong)


def test_json_form_is_the_unit_string_and_reads_back() -> None:
    pool = Pool.model_validate({"volume": "512Mi", "patience": "1h30m"})
    document = json.loads(pool.model_dump_json())
    assert document == {"volume": "512Mi", "patience": "1h30m", "shore": "shore"}
    assert Pool.model_validate(document) == pool


def test_python_form_is_the_exact_value() -> None:
    assert Pool().model_dump() == {"volume": 1024, "patience": timedelta(seconds=30), "shore": Path("shore")}
