"""One dash or two: long options mean the same, and nothing that is no option is touched."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forebay.cli.dashes import Options, respell

OPTIONS = Options(
    valued={"--config": 1, "-c": 1, "--output": 1, "-o": 1, "--profile": 1, "--range": 2},
    switches={"--roll": "--no-roll", "--no-roll": "--roll", "--force": None, "-f": None, "-h": None, "--help": None},
)


def spelled(line: str) -> str:
    done, left = respell(line.split(), OPTIONS, up_to_argument=False)
    return " ".join(done + left)


@pytest.mark.parametrize(
    ("written", "becomes"),
    [
        ("-profile minimal", "--profile minimal"),
        ("-profile=minimal", "--profile=minimal"),
        ("-output json", "--output json"),
        ("-config=a=b", "--config=a=b"),
        ("-roll", "--roll"),
        ("-roll=true", "--roll"),
        ("--roll=T", "--roll"),
        ("-roll=1", "--roll"),
        ("-roll=false", "--no-roll"),
        ("--no-roll=false", "--roll"),
        ("-force=true x", "--force x"),
        ("-force=false x", "x"),
        ("-c=forebay.yaml", "-c forebay.yaml"),
        ("-f=0 x", "x"),
        ("-help", "--help"),
        ("-unknwon", "--unknwon"),
    ],
)
def test_long_option_works_with_one_dash(written: str, becomes: str) -> None:
    assert spelled(written) == becomes


@pytest.mark.parametrize(
    "line",
    [
        "",
        "-o json",
        "-ojson",
        "-c FILE",
        "-h",
        "--help",
        "--profile minimal",
        "--profile=-minimal",
        "--profile -profile",
        "-c -profile",
        "--range -profile -roll",
        "-5",
        "-1.5",
        "-.5",
        "-",
        "--",
        "-- -profile minimal",
        "a -- -roll=false",
        "--roll=perhaps",
        "--output=-roll=true",
    ],
)
def test_everything_else_is_left_as_it_was(line: str) -> None:
    assert spelled(line) == line


def test_options_of_a_group_end_at_the_first_argument() -> None:
    words = ["-profile", "minimal", "check", "-output", "json"]
    done, left = respell(words, OPTIONS, up_to_argument=True)
    assert done == ["--profile", "minimal"]
    assert left == ["check", "-output", "json"]


@given(st.lists(st.text(max_size=12), max_size=6))
@settings(deadline=None)
def test_words_behind_the_double_dash_are_never_touched(words: list[str]) -> None:
    done, left = respell(["--", *words], OPTIONS, up_to_argument=False)
    assert (done, left) == ([], ["--", *words])


@given(st.lists(st.text(alphabet="-=abcfhor", max_size=8), max_size=6))
@settings(deadline=None)
def test_respelling_twice_is_respelling_once(words: list[str]) -> None:
    done, left = respell(words, OPTIONS, up_to_argument=False)
    assert respell(done + left, OPTIONS, up_to_argument=False) == (done, left)
