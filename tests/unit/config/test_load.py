"""Loading: the stronger layer wins, every key knows its origin, and all faults are raised at once."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forebay.config.keys import KEYS
from forebay.config.layers import Alias
from forebay.config.load import Loaded, count_in_file, load
from forebay.config.model import Settings
from forebay.errors import SettingFault, SettingsRefused


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "forebay.yaml"


def faults_of(
    file: Path | None = None, environ: Mapping[str, str] = {}, flags: Mapping[str, object] = {}
) -> tuple[SettingFault, ...]:
    with pytest.raises(SettingsRefused) as refused:
        load(file=file, environ=environ, flags=flags)
    return refused.value.faults


def origin(loaded: Loaded, key: str) -> str:
    return str(loaded.origins[key])


def test_without_any_layer_the_defaults_are_in_effect() -> None:
    loaded = load()
    assert loaded.settings == Settings()
    assert {str(origin) for origin in loaded.origins.values()} == {"default"}


def test_every_key_has_an_origin_and_a_value() -> None:
    loaded = load()
    assert list(loaded.origins) == list(KEYS)
    assert list(loaded.values()) == list(KEYS)


def test_each_layer_overrides_the_ones_before_it(file: Path) -> None:
    key = "log.segment_size"
    variable = {"FOREBAY_LOG_SEGMENT_SIZE": "3Mi"}
    steps = [
        (load(), 512 * 1024**2, "default"),
        (load(flags={"profile": "performance"}), 1024**3, "profile performance"),
    ]
    file.write_text("profile: performance\nlog:\n  segment_size: 2Mi\n")
    steps += [
        (load(file=file), 2 * 1024**2, f"{file} line 3"),
        (load(file=file, environ=variable), 3 * 1024**2, "environment FOREBAY_LOG_SEGMENT_SIZE"),
        (load(file=file, environ=variable, flags={key: "4Mi"}), 4 * 1024**2, "flag --log-segment-size"),
    ]
    for loaded, size, where in steps:
        assert (loaded.settings.log.segment_size, origin(loaded, key)) == (size, where)


def test_strongest_layer_chooses_the_profile(file: Path) -> None:
    file.write_text("profile: performance\n")
    loaded = load(file=file, environ={"FOREBAY_PROFILE": "minimal"})
    assert loaded.settings.log.read_chunk == 256 * 1024
    assert origin(loaded, "log.read_chunk") == "profile minimal"
    assert origin(loaded, "profile") == "environment FOREBAY_PROFILE"
    assert load(file=file).settings.log.compression == "never"


def test_variable_names_the_file_when_no_flag_does(file: Path, tmp_path: Path) -> None:
    file.write_text("data_dir: from-variable\n")
    other = tmp_path / "other.yaml"
    other.write_text("data_dir: from-flag\n")
    environ = {"FOREBAY_CONFIG": str(file)}
    assert load(environ=environ).settings.data_dir == Path("from-variable")
    assert load(file=other, environ=environ).settings.data_dir == Path("from-flag")


def test_missing_file_is_a_fault_of_the_variable_that_named_it() -> None:
    [fault] = faults_of(environ={"FOREBAY_CONFIG": "nowhere.yaml"})
    assert (fault.key, fault.value, fault.origin) == ("config", "nowhere.yaml", "environment FOREBAY_CONFIG")


def test_foreign_name_works_through_the_table_of_aliases() -> None:
    aliases = {"BASIN_DIR": Alias("data_dir")}
    loaded = load(environ={"BASIN_DIR": "/basin"}, aliases=aliases)
    assert (loaded.settings.data_dir, origin(loaded, "data_dir")) == (Path("/basin"), "environment BASIN_DIR")
    both = load(environ={"BASIN_DIR": "/basin", "FOREBAY_DATA_DIR": "/own"}, aliases=aliases)
    assert both.settings.data_dir == Path("/own")


def test_all_faults_of_all_layers_are_raised_at_once(file: Path) -> None:
    file.write_text("profile: fast\nlog:\n  segment_size: 5 apples\n  roll_daily: maybe\n")
    environ = {"FOREBAY_LOG_READ_CHUNK": "1", "FOREBAY_COLOUR": "blue"}
    faults = faults_of(file, environ, {"log.compression": "always"})
    assert [(fault.key, fault.value, fault.origin) for fault in faults] == [
        ("profile", "fast", f"{file} line 1"),
        ("log.segment_size", "5 apples", f"{file} line 3"),
        ("log.roll_daily", "maybe", f"{file} line 4"),
        ("FOREBAY_COLOUR", "blue", "environment FOREBAY_COLOUR"),
        ("log.read_chunk", "1", "environment FOREBAY_LOG_READ_CHUNK"),
        ("log.compression", "always", "flag --log-compression"),
    ]
    assert faults[0].allowed == "minimal, balanced or performance"
    assert faults[1].allowed.startswith("a size from 4Ki to 64Gi, such as 512Mi ('apples' is no unit of size")
    assert faults[2].allowed == "true or false"
    assert faults[4].allowed == "a size from 64Ki to 64Mi, such as 1Mi"
    assert faults[5].allowed == "auto or never"


def test_wrong_value_is_refused_even_if_a_stronger_layer_overrides_it(file: Path) -> None:
    file.write_text("log: {segment_size: huge}\n")
    [fault] = faults_of(file, flags={"log.segment_size": "1Gi"})
    assert fault.origin == f"{file} line 1"


def test_unknown_key_is_refused_with_what_exists_the_nearest_first(file: Path) -> None:
    file.write_text("log:\n  segmnt_size: 1Gi\n")
    [fault] = faults_of(file)
    assert fault.key == "log.segmnt_size"
    assert fault.allowed.startswith("a known key (did you mean log.segment_size?): log.segment_size, ")
    assert "log.compression" in fault.allowed
    assert "data_dir" not in fault.allowed


def test_unknown_section_is_one_fault_whatever_it_holds(file: Path) -> None:
    file.write_text("telepathy:\n  a: 1\n  b: 2\n")
    [fault] = faults_of(file)
    assert (fault.key, fault.value) == ("telepathy", "{…}")
    assert fault.allowed == "a known key: " + ", ".join(KEYS)


def test_unknown_variable_is_refused_with_what_was_meant() -> None:
    [fault] = faults_of(environ={"FOREBAY_LOG_SEGMENTSIZE": "1Gi"})
    assert "did you mean FOREBAY_LOG_SEGMENT_SIZE?" in fault.allowed
    assert "FOREBAY_CONFIG" in fault.allowed


def test_section_needs_keys_of_its_own(file: Path) -> None:
    file.write_text("log: 5\n")
    [fault] = faults_of(file)
    assert fault.allowed.startswith("a section with the keys segment_size, ")


@pytest.mark.parametrize("written", ["true", "[1Gi]", "{a: 1}", "~", "1.5", "010", "-1", "4095", "65Gi", "''"])
def test_wrong_size_in_a_file_is_refused(file: Path, written: str) -> None:
    file.write_text(f"log: {{segment_size: {written}}}\n")
    [fault] = faults_of(file)
    assert fault.key == "log.segment_size"
    assert "a size from 4Ki to 64Gi" in fault.allowed


@pytest.mark.parametrize(("written", "value"), [("true", True), ("no", False), ("on", True), ("'false'", False)])
def test_switch_takes_the_usual_words(file: Path, written: str, value: bool) -> None:
    file.write_text(f"log: {{roll_daily: {written}}}\n")
    assert load(file=file).settings.log.roll_daily is value


def test_long_value_is_cut_in_the_fault() -> None:
    [fault] = faults_of(flags={"log.segment_size": "9" * 5000})
    assert len(str(fault.value)) == 80


def test_only_values_from_the_file_are_counted_as_its_own(file: Path) -> None:
    file.write_text("profile: minimal\nlog: {read_chunk: 2Mi}\n")
    assert count_in_file(load(file=file)) == 2
    assert count_in_file(load()) == 0


@given(
    layers=st.lists(
        st.dictionaries(st.sampled_from(["log.segment_size", "log.read_chunk", "buffer.max_size"]), st.integers(1, 64)),
        min_size=3,
        max_size=3,
    ),
    profile=st.sampled_from(KEYS["profile"].choices),
)
@settings(deadline=None, max_examples=60)
def test_for_every_combination_the_strongest_layer_that_speaks_wins(
    tmp_path_factory: pytest.TempPathFactory, layers: list[dict[str, int]], profile: str
) -> None:
    in_file, in_environment, in_flags = layers
    file = tmp_path_factory.mktemp("settings") / "forebay.yaml"
    file.write_text("".join(f"{key}: {mebi}Mi\n" for key, mebi in in_file.items()))
    environ = {KEYS[key].environment: f"{mebi}Mi" for key, mebi in in_environment.items()}
    flags = {key: f"{mebi}Mi" for key, mebi in in_flags.items()}
    loaded = load(file=file, environ=environ, flags={"profile": profile, **flags})
    below = load(flags={"profile": profile}).values()
    for key, value in loaded.values().items():
        spoken = [layer[key] for layer in (in_flags, in_environment, in_file) if key in layer]
        expected = KEYS[key].read(f"{spoken[0]}Mi") if spoken else KEYS[key].read(below[key])
        assert KEYS[key].read(value) == expected
