"""The benchmark of the page sends what the page's scripts send, as often as they do."""

from __future__ import annotations

import re
from importlib.resources import files

import pytest

from forebay.bench.page import POLLS


def script(name: str) -> str:
    return (files("forebay.api.page") / "static" / f"{name}.js").read_text()


def constant(name: str, text: str) -> int:
    found = re.search(rf"^const {name} = ([\d_]+);", text, re.MULTILINE)
    assert found is not None, name
    return int(found[1])


@pytest.mark.parametrize("view", POLLS)
def test_polls_of_a_view_are_the_requests_of_its_script(view: str) -> None:
    text = script(f"view_{view}")
    load = text.partition("load")[2].partition("export function draw")[0]
    assert set(re.findall(r'\bget\("(/[^"]+)"', load)) == {path.partition("?")[0] for path, _ in POLLS[view]}
    assert "everyMs" not in text, "it is polled as often as other views"


def test_polls_are_as_often_as_the_scripts_say() -> None:
    every = constant("EVERY_MS", script("app")) / 1000
    looks = constant("LOOKS_OF_HISTORY", script("view_journey"))
    now, *others = (seconds for _, seconds in POLLS["journey"])
    assert (now, set(others)) == (every, {every * looks})
    assert {seconds for view in ("queues", "queue_metrics") for _, seconds in POLLS[view]} == {every}
