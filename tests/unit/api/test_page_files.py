"""The files of the page: small, complete, kept by browsers, and nothing in them that its own policy would refuse."""

from __future__ import annotations

import re

import pytest

from fixtures.keyed_app import KeyedApp
from forebay.api.page.assets import INDEX, assets
from forebay.api.routes.page import PAGES

BYTES_MAX = 150_000


def texts() -> dict[str, str]:
    return {name: asset.body.decode() for name, asset in assets().items()}


def test_page_is_small() -> None:
    assert sum(len(asset.body) for asset in assets().values()) < BYTES_MAX


def test_every_file_that_is_named_is_there_and_every_file_is_named() -> None:
    named = {INDEX}
    for name, text in texts().items():
        named |= set(re.findall(r"/page/([\w.]+)", text))
        if name.endswith(".js"):
            named |= set(re.findall(r'from "\./([\w.]+)"', text))
    views = re.findall(r'\["/[\w-]*", "(\w+)"', texts()["app.js"]) + re.findall(r'\$/, "(\w+)"', texts()["app.js"])
    named |= {f"view_{view}.js" for view in [*views, "nowhere"]}
    assert named == set(assets())


def test_nothing_is_loaded_from_elsewhere() -> None:
    for name, text in texts().items():
        found = [url for url in re.findall(r"https?://[\w.]+", text) if not url.startswith("http://www.w3.org")]
        assert found == [], name


def test_markup_holds_no_script_and_no_style() -> None:
    page = texts()[INDEX]
    assert re.findall(r"<script(?![^>]*\bsrc=)", page) == []
    assert "<style" not in page
    assert re.findall(r"\s(style|on\w+)=", page) == []


def test_text_never_becomes_markup() -> None:
    for name, text in texts().items():
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b", text), name


@pytest.mark.parametrize("path", [path.replace("{name}", "a%2Fb") for path, _ in PAGES])
async def test_every_address_of_the_page_is_answered_with_it_without_a_key(path: str) -> None:
    app = KeyedApp()
    await app.make("root", "admin")
    told = await app.send("GET", path)
    assert (told.status, told.body) == (200, assets()[INDEX].body)
    assert "default-src 'self'" in told.headers["content-security-policy"]
    assert "unsafe" not in told.headers["content-security-policy"]


async def test_browser_that_has_a_file_is_not_sent_it_again() -> None:
    app = KeyedApp()
    told = await app.send("GET", "/page/app.js")
    assert told.status == 200
    again = await app.send("GET", "/page/app.js", if_none_match=told.headers["etag"])
    assert (again.status, again.body) == (304, b"")
    other = await app.send("GET", "/page/app.js", if_none_match='"other"')
    assert other.status == 200


@pytest.mark.parametrize("name", ["nothing.js", "assets.py", "__init__.py", "..%2Fassets.py", "%2e%2e%2f__init__.py"])
async def test_only_files_of_the_page_are_given(name: str) -> None:
    told = await KeyedApp().send("GET", f"/page/{name}")
    assert told.status in (400, 404)
