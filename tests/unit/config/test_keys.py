"""The table of keys: derived from the model, without two keys that share a name."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Literal

import pytest
from pydantic import Field, ValidationError

from forebay.config.keys import KEYS, ValueRefused, keys_of, resembling, sections_of
from forebay.config.layers import ALIASES, CONFIG_VARIABLE
from forebay.config.model import LogSettings, Settings
from forebay.config.profiles import PROFILES
from forebay.config.section import Section
from forebay.config.values import Duration

RESERVED_FLAGS = {"--config", "--output", "--help", "--version"}


class Gate(Section):
    """A made-up section with the kinds that no setting uses yet."""

    wait: Duration = Field(default=timedelta(seconds=30), ge=timedelta(seconds=1), le=timedelta(hours=1))
    width: int = Field(default=3, ge=1, le=9)
    label: str = "west"


class River(Section):
    gate: Gate = Gate()
    depth: Literal["low"] = "low"


def test_no_two_keys_share_an_environment_name_or_a_flag() -> None:
    keys = KEYS.values()
    environment = [key.environment for key in keys] + [CONFIG_VARIABLE, *ALIASES]
    flags = [key.flag for key in keys] + [key.off_flag for key in keys if key.is_switch] + sorted(RESERVED_FLAGS)
    assert len(set(environment)) == len(environment)
    assert len(set(flags)) == len(flags)


def test_every_key_says_what_it_means_and_its_default_is_allowed() -> None:
    for key in KEYS.values():
        assert re.fullmatch(r".+\.", key.description), key.name
        assert key.allowed, key.name
        key.read(key.default)


def test_every_size_has_bounds() -> None:
    assert all(key.bounds for key in KEYS.values() if key.type_name == "size")


def test_names_follow_from_the_dotted_key() -> None:
    key = KEYS["log.segment_size"]
    assert (key.environment, key.flag) == ("FOREBAY_LOG_SEGMENT_SIZE", "--log-segment-size")
    assert KEYS["data_dir"].environment == "FOREBAY_DATA_DIR"
    assert KEYS["log.roll_daily"].off_flag == "--no-log-roll-daily"


def test_a_new_section_gets_its_keys_from_its_class() -> None:
    keys = keys_of(River)
    assert list(keys) == ["gate.wait", "gate.width", "gate.label", "depth"]
    assert sections_of(keys) == {"gate"}
    assert keys["gate.wait"].allowed == "a duration from 1s to 1h, such as 30s"
    assert keys["gate.width"].allowed == "a whole number from 1 to 9"
    assert keys["gate.label"].allowed == "text"
    assert keys["gate.wait"].read("1m") == timedelta(minutes=1)


def test_refusal_carries_the_hint_of_the_unit() -> None:
    with pytest.raises(ValueRefused, match="add a unit: 30s"):
        keys_of(River)["gate.wait"].read("30")


def test_true_is_no_number() -> None:
    with pytest.raises(ValueRefused):
        keys_of(River)["gate.width"].read(True)


@pytest.mark.parametrize("name", PROFILES)
def test_every_profile_sets_known_keys_to_allowed_values(name: str) -> None:
    for key, value in PROFILES[name].items():
        KEYS[key].read(value)
    assert "profile" not in PROFILES[name]


def test_profiles_are_those_that_the_key_profile_allows() -> None:
    assert tuple(PROFILES) == KEYS["profile"].choices


def test_balanced_is_the_defaults() -> None:
    assert Settings().profile == "balanced"
    assert not PROFILES["balanced"]


def test_settings_never_change_after_loading() -> None:
    with pytest.raises(ValidationError):
        Settings().log.segment_size = 1


def test_model_refuses_keys_it_does_not_know() -> None:
    with pytest.raises(ValidationError):
        LogSettings.model_validate({"segment_days": True})


def test_nearest_name_comes_first() -> None:
    assert resembling("log.segmnt_size", KEYS)[0] == "log.segment_size"
    assert resembling("colour", KEYS) == []
