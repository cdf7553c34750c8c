"""Layers are read, not judged: every entry says which key, what value, and where it stood."""

from __future__ import annotations

import pytest

from forebay.config.keys import KEYS
from forebay.config.layers import Alias, environment_layer, flag_layer, profile_layer


def read(environ: dict[str, str], **aliases: Alias) -> list[tuple[str, object, str]]:
    return [(entry.key, entry.value, str(entry.origin)) for entry in environment_layer(environ, KEYS, aliases)]


@pytest.mark.parametrize("name", KEYS)
def test_every_key_is_found_by_its_environment_name(name: str) -> None:
    variable = KEYS[name].environment
    assert read({variable: "x"}) == [(name, "x", f"environment {variable}")]


def test_unknown_forebay_variable_keeps_its_name_for_the_refusal() -> None:
    assert read({"FOREBAY_COLOUR": "blue"}) == [("FOREBAY_COLOUR", "blue", "environment FOREBAY_COLOUR")]


def test_variables_of_others_are_left_alone() -> None:
    assert read({"HOME": "/", "forebay_profile": "x", "FOREBAYS": "x"}) == []


def test_the_variable_that_names_the_file_is_no_setting() -> None:
    assert read({"FOREBAY_CONFIG": "forebay.yaml"}) == []


def test_empty_variable_counts_as_not_set() -> None:
    assert read({"FOREBAY_PROFILE": "", "FOREBAY_COLOUR": ""}) == []


def test_addresses_of_a_kubernetes_service_are_left_alone() -> None:
    linked = {
        "FOREBAY_SERVICE_HOST": "10.0.0.11",
        "FOREBAY_SERVICE_PORT": "6632",
        "FOREBAY_SERVICE_PORT_HTTP": "6632",
        "FOREBAY_PORT": "tcp://10.0.0.11:6632",
        "FOREBAY_PORT_6632_TCP": "tcp://10.0.0.11:6632",
        "FOREBAY_PORT_6632_TCP_ADDR": "10.0.0.11",
        "FOREBAY_API_SERVICE_HOST": "10.0.0.12",
        "FOREBAY_API_PORT": "udp://10.0.0.12:53",
    }
    assert read(linked) == []
    assert read({"FOREBAY_PORT": "6632"}) == [("FOREBAY_PORT", "6632", "environment FOREBAY_PORT")]


def test_foreign_name_sets_its_key_with_the_unit_it_implies() -> None:
    assert read({"BASIN_KIB": "64"}, BASIN_KIB=Alias("log.segment_size", "Ki")) == [
        ("log.segment_size", "64Ki", "environment BASIN_KIB")
    ]


def test_own_name_comes_after_the_foreign_one_and_so_overrides_it() -> None:
    environ = {"FOREBAY_DATA_DIR": "own", "ZZ_DIR": "foreign"}
    assert [value for _, value, _ in read(environ, ZZ_DIR=Alias("data_dir"))] == ["foreign", "own"]


def test_flag_is_named_the_way_it_is_typed() -> None:
    [entry] = flag_layer({"log.segment_size": "1Gi"}, KEYS)
    assert str(entry.origin) == "flag --log-segment-size"


def test_profile_is_named_in_the_origin_of_its_values() -> None:
    assert {str(entry.origin) for entry in profile_layer("minimal")} == {"profile minimal"}
    assert profile_layer("unheard of") == []
