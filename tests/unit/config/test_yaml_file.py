"""The YAML file: every value knows its line, every damage has a message, and nothing unfolds or runs."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from forebay.config.yaml_file import DEPTH_MAX, FILE_BYTES_MAX, NODES_MAX, read_yaml
from forebay.errors import SettingFault

SECTIONS = {"log", "log.deep"}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "forebay.yaml"


def values(file: Path, text: str | bytes) -> dict[str, object]:
    file.write_bytes(text.encode() if isinstance(text, str) else text)
    entries, faults = read_yaml(file, "flag --config", SECTIONS)
    assert faults == []
    return {entry.key: entry.value for entry in entries}


def only_fault(file: Path, text: str | bytes) -> SettingFault:
    file.write_bytes(text.encode() if isinstance(text, str) else text)
    _, faults = read_yaml(file, "flag --config", SECTIONS)
    assert len(faults) == 1, faults
    return faults[0]


def test_keys_are_nested_or_dotted_and_know_their_line(file: Path) -> None:
    file.write_text(
        "# a comment\nprofile: minimal\nlog:\n  segment_size: 64Mi\n\n  deep: {key: 1}\nlog.read_chunk: 1Mi\n"
    )
    entries, faults = read_yaml(file, "flag --config", SECTIONS)
    assert faults == []
    assert [(entry.key, entry.value, str(entry.origin)) for entry in entries] == [
        ("profile", "minimal", f"{file} line 2"),
        ("log.segment_size", "64Mi", f"{file} line 4"),
        ("log.deep.key", 1, f"{file} line 6"),
        ("log.read_chunk", "1Mi", f"{file} line 7"),
    ]


@pytest.mark.parametrize(
    "text", ["", "\n", "# nothing yet\n", "---\n", "null\n", "log:\n", "log: {}\n", "log: ~\n", "\ufeff"]
)
def test_file_or_section_without_content_sets_nothing(file: Path, text: str) -> None:
    assert values(file, text) == {}


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("512Mi", "512Mi"),
        ("4096", 4096),
        ("10_000", 10_000),
        ("-5", -5),
        ("'4096'", "4096"),
        ("true", True),
        ("False", False),
        ('"true"', "true"),
        ("", None),
        ("~", None),
        ("[1, a]", [1, "a"]),
        ("{a: 1}", {"a": 1}),
        ("!!str 5", "5"),
        ("&same 5", 5),
    ],
)
def test_plain_value_is_taken_as_written(file: Path, written: str, value: object) -> None:
    assert values(file, f"key: {written}\n") == {"key": value}


@pytest.mark.parametrize(
    "written", ["010", "0o17", "0x1f", "1:30", "yes", "no", "on", "2026-01-01", "1.5", ".inf", ".nan"]
)
def test_what_yaml_would_turn_into_something_else_stays_text(file: Path, written: str) -> None:
    assert values(file, f"key: {written}\n") == {"key": written}


def test_number_of_thousands_of_digits_stays_text(file: Path) -> None:
    assert values(file, f"key: {'9' * 5000}\n") == {"key": "9" * 5000}


def test_alias_repeats_a_single_value(file: Path) -> None:
    assert values(file, "one: &size 64Mi\ntwo: *size\n") == {"one": "64Mi", "two": "64Mi"}


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("key: 1\nkey: 2\n", 2),
        ("log:\n  key: 1\n  key: 2\n", 3),
        ("log:\n  key: 1\nlog.key: 2\n", 3),
        ("log:\n  key: 1\nlog:\n  key: 2\n", 4),
    ],
)
def test_key_given_twice_is_a_fault_with_both_lines(file: Path, text: str, line: int) -> None:
    fault = only_fault(file, text)
    assert fault.key.endswith("key")
    assert fault.value == 2
    assert fault.origin == f"{file} line {line}"
    assert f"{file} line {1 if text.startswith('key') else 2}" in fault.allowed


@pytest.mark.parametrize(
    ("text", "line", "allowed"),
    [
        ("- a\n- b\n", 1, "a mapping of keys to values"),
        ("just text\n", 1, "a mapping of keys to values"),
        ("key: [1\n", 2, "YAML (expected ',' or ']'"),
        ("key: 1\n  other: 2\n", 2, "YAML (mapping values are not allowed here"),
        ("a: 1\n---\nb: 2\n", 2, "YAML (but found another document"),
        ("a: 1\nb: *nowhere\n", 2, "YAML (found undefined alias"),
        ("a: 1\nb: \x01\n", 2, "YAML (special characters are not allowed"),
        ("a: 1\nb: !!python/object/apply:os.system [id]\n", 2, "no tag !!python/object/apply:os.system"),
        ("b: !mine 5\n", 1, "no tag !mine"),
        ("b: !!binary aGVsbG8=\n", 1, "no tag !!binary"),
        ("a: &a [x]\nb: *a\n", 2, "not to a list or a mapping"),
        ("a: &a [*a]\n", 1, "not to a list or a mapping"),
        ("<<: {a: 1}\n", 1, "sections are not merged"),
        ("? [a, b]\n: 1\n", 1, "a key is a word"),
    ],
)
def test_yaml_that_cannot_be_taken_is_a_fault_with_its_line(file: Path, text: str, line: int, allowed: str) -> None:
    fault = only_fault(file, text)
    assert fault.origin == f"{file} line {line}"
    assert allowed in fault.allowed


def test_anchors_cannot_unfold_into_a_bomb(file: Path) -> None:
    bomb = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
        f"{chr(97 + n)}: &{chr(97 + n)} [{','.join([f'*{chr(96 + n)}'] * 9)}]\n" for n in range(1, 9)
    )
    assert "alias to a single value" in only_fault(file, bomb).allowed


def test_too_many_values_are_refused(file: Path) -> None:
    assert only_fault(file, "a: [" + "1," * NODES_MAX + "]").allowed == f"at most {NODES_MAX} values"


def test_too_deep_a_nesting_is_refused(file: Path) -> None:
    assert only_fault(file, "a: " + "[" * 100_000).allowed == f"at most {DEPTH_MAX} levels"


def test_file_over_the_limit_is_refused(file: Path) -> None:
    fault = only_fault(file, b"# " + b"x" * FILE_BYTES_MAX)
    assert "at most 1 MiB" in fault.allowed
    assert fault.origin == "flag --config"


def test_file_at_the_limit_is_read(file: Path) -> None:
    head = b"key: 1\n# "
    assert values(file, head + b"x" * (FILE_BYTES_MAX - len(head))) == {"key": 1}


def test_file_that_is_not_utf8_is_refused_with_the_byte_and_line(file: Path) -> None:
    fault = only_fault(file, b"a: 1\nb: caf\xe9\n")
    assert (fault.allowed, fault.origin) == ("UTF-8 (byte 0xe9 is not)", f"{file} line 2")


def test_missing_file_is_refused_with_who_named_it(file: Path) -> None:
    entries, faults = read_yaml(file, "environment FOREBAY_CONFIG", SECTIONS)
    allowed = "a YAML file that can be read (No such file or directory)"
    assert entries == []
    assert faults == [SettingFault("config", str(file), allowed, "environment FOREBAY_CONFIG")]


def test_directory_is_no_file(tmp_path: Path) -> None:
    _, faults = read_yaml(tmp_path, "flag --config", SECTIONS)
    assert "Is a directory" in faults[0].allowed


@pytest.fixture
def unprivileged() -> Iterator[None]:
    """Root may read everything, so the test gives root up while it runs."""
    user = os.geteuid()
    if user == 0:
        os.seteuid(65534)
    yield
    os.seteuid(user)


def test_file_without_permission_is_refused(file: Path, request: pytest.FixtureRequest) -> None:
    file.write_text("key: 1\n")
    file.chmod(0o000)
    request.getfixturevalue("unprivileged")
    _, faults = read_yaml(file, "flag --config", SECTIONS)
    assert "Permission denied" in faults[0].allowed
