"""The web page behind keys, and when its server goes away."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from fixtures.fix_page import SCREENS, Watched, grave_faults, holds, names_of_queues
from fixtures.running_stores import Http
from fixtures.waiting import wait_until
from forebay.testing.running_server import FOREBAY, RunningServer

if TYPE_CHECKING:
    from playwright.sync_api import Page


class Keyed:
    """A server with keys, by name."""

    def __init__(self, server: RunningServer, root: str) -> None:
        self.server = server
        self.keys = {"root": root}

    def make(self, name: str, *scopes: str, queues: tuple[str, ...] = ()) -> str:
        with Http(self.server.url) as http:
            body = {"name": name, "scopes": list(scopes), "queues": list(queues)}
            told = http.send("POST", "/api/v1/keys", body, Authorization=f"Bearer {self.keys['root']}")
            assert told.status == 201, told
            self.keys[name] = told.json["key"]
            return self.keys[name]


@pytest.fixture(scope="module")
def keyed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Keyed]:
    folder = tmp_path_factory.mktemp("keyed")
    words = [*FOREBAY, "keys", "create", "root", "--scope", "admin", "--data-dir", str(folder / "data")]
    root = subprocess.run(words, capture_output=True, text=True, check=True, timeout=60).stdout.strip()
    with RunningServer(folder / "data") as server:
        with Http(server.url) as http:
            items = [{"queue": name, "payload": 1} for name in ("orders", "invoices")]
            http.send("POST", "/api/v1/push", {"items": items}, Authorization=f"Bearer {root}")
            listed = partial(http.send, "GET", "/api/v1/journey/queues", Authorization=f"Bearer {root}")
            wait_until(lambda: len(listed().json["queues"]) == 2)  # lists are counted now and then
        yield Keyed(server, root)


@pytest.fixture
def watched(keyed: Keyed, shared_browser_page: Page) -> Watched:
    return Watched(shared_browser_page, keyed.server.url)


def sign_in(watched: Watched, key: str, path: str = "/") -> Page:
    page = watched.page
    page.goto(watched.url + path)
    page.get_by_label("API key").fill(key)
    page.get_by_role("button", name="Sign in").click()
    return watched.ready()


@pytest.mark.parametrize("screen", SCREENS)
def test_admin_signs_in_and_out_and_nothing_is_shown_without_a_key(watched: Watched, keyed: Keyed, screen: str) -> None:
    page = watched.page
    watched.on(SCREENS[screen])
    page.goto(watched.url + "/queues")
    page.get_by_label("API key").fill("forebay_wrong")
    page.get_by_role("button", name="Sign in").click()
    page.get_by_text("the key is not known").wait_for()
    assert "orders" not in page.content()
    page.get_by_label("API key").fill(keyed.keys["root"])
    page.get_by_role("button", name="Sign in").click()
    watched.ready()
    page.get_by_role("link", name="orders").wait_for()
    assert page.locator(".signed-in").inner_text().startswith("root")
    cookie = next(each for each in page.context.cookies() if each["name"] == "forebay_session")
    assert (cookie["httpOnly"], cookie["sameSite"]) == (True, "Strict")
    assert keyed.keys["root"] not in page.content()
    page.reload()
    watched.ready()
    page.get_by_role("button", name="Sign out").click()
    page.get_by_label("API key").wait_for()
    page.goto(watched.url + "/queues")
    page.get_by_label("API key").wait_for()
    assert watched.faults == []


def test_key_that_reads_sees_and_has_no_buttons(watched: Watched, keyed: Keyed) -> None:
    page = sign_in(watched, keyed.make("reader", "read"), "/queues/orders")
    assert page.locator("[aria-label=Messages] tbody tr").count() == 1
    for name in ("Push a test message…", "Seek…", "Delete…", "Delete the queue…"):
        assert page.get_by_role("button", name=name).count() == 0
    page.goto(watched.url + "/access")
    watched.ready()
    assert page.get_by_text("shown to admins of all queues").is_visible()
    assert watched.faults == []


def test_key_for_some_queues_sees_those_alone(watched: Watched, keyed: Keyed) -> None:
    page = sign_in(watched, keyed.make("shop", "read", queues=("orders*",)), "/queues")
    page.get_by_role("link", name="orders").wait_for()
    assert page.get_by_role("link", name="invoices").count() == 0
    for path in ("/flows", "/parcels", "/queue-metrics", "/destinations", "/buffers"):
        page.goto(watched.url + path)
        watched.ready()
    page.goto(watched.url + "/")
    page.get_by_text("is for queues orders*").wait_for()
    assert watched.faults == []


def test_key_is_made_shown_once_and_revoked_on_the_page(watched: Watched, keyed: Keyed) -> None:
    page = sign_in(watched, keyed.keys["root"], "/access")
    page.get_by_role("button", name="New key…").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Name").fill("made-here")
    dialog.get_by_label("write").check()
    dialog.get_by_role("button", name="Make it").click()
    page.wait_for_selector("#new-key")
    key = page.locator("#new-key").inner_text()
    page.get_by_role("button", name="I have it").click()
    with Http(keyed.server.url) as http:
        body = {"items": [{"queue": "of-the-new-key", "payload": 2}]}
        assert http.send("POST", "/api/v1/push", body, Authorization=f"Bearer {key}").status == 201
        page.get_by_role("button", name="Revoke made-here").click()
        page.get_by_role("dialog").get_by_role("button", name="Revoke").click()
        page.wait_for_selector("#notices >> text=Key made-here is revoked.")
        assert http.send("POST", "/api/v1/push", body, Authorization=f"Bearer {key}").status == 401
    assert key not in page.content()
    assert "made-here" in page.locator("[aria-label='Audit log']").inner_text()


def test_key_is_rotated_on_the_page_and_its_old_text_counts_until_the_grace_time_is_over(
    watched: Watched, keyed: Keyed
) -> None:
    old = keyed.make("turned", "read")
    page = sign_in(watched, keyed.keys["root"], "/access")
    with Http(keyed.server.url) as http:

        def status_with(key: str) -> int:
            return http.send("GET", "/api/v1/journey", Authorization=f"Bearer {key}").status

        def rotated(minutes: int) -> str:
            page.get_by_role("button", name="Rotate turned").click()
            dialog = page.get_by_role("dialog")
            dialog.get_by_label("Grace time (minutes)").fill(str(minutes))
            dialog.get_by_role("button", name="Rotate").click()
            page.wait_for_selector("#new-key")
            key = page.locator("#new-key").inner_text()
            page.get_by_role("button", name="I have it").click()
            page.wait_for_selector("#new-key", state="detached")
            return key

        second = rotated(60)
        assert [status_with(key) for key in (old, second)] == [200, 200]
        third = rotated(0)
        assert [status_with(key) for key in (second, third)] == [401, 200]
    assert third not in page.content()
    assert watched.faults == []


def test_axe_finds_no_serious_fault_in_the_sign_in_in_tables_of_keys_and_where_a_key_is_shown(
    watched: Watched, keyed: Keyed
) -> None:
    page = watched.page
    page.goto(watched.url + "/access")
    page.get_by_label("API key").fill("forebay_wrong")
    page.get_by_role("button", name="Sign in").click()
    page.get_by_text("the key is not known").wait_for()
    found = {"sign-in": grave_faults(page)}
    watched.shot("sign-in")
    keyed.make("seen", "read", queues=("orders*",))
    sign_in(watched, keyed.keys["root"], "/access")
    for label in ("Keys", "Audit log"):
        assert page.locator(f"[aria-label='{label}'] tbody tr").count() > 0
    watched.shot("access-with-keys")
    found["tables"] = grave_faults(page)
    page.get_by_role("button", name="New key…").click()
    dialog = page.get_by_role("dialog")
    found["new key"] = grave_faults(page)
    dialog.get_by_label("Name").fill("looked-at")
    dialog.get_by_role("button", name="Make it").click()
    page.wait_for_selector("#new-key")
    watched.shot("key-shown-once")
    found["shown once"] = grave_faults(page)
    assert {place: faults for place, faults in found.items() if faults} == {}


def test_session_that_ends_asks_for_a_key_again(watched: Watched, keyed: Keyed) -> None:
    page = sign_in(watched, keyed.make("short", "read"), "/queues")
    with Http(keyed.server.url) as http:
        root = {"Authorization": f"Bearer {keyed.keys['root']}"}
        own = next(key for key in http.send("GET", "/api/v1/keys", headers=root).json["keys"] if key["name"] == "short")
        assert http.send("DELETE", f"/api/v1/keys/{own['id']}", headers=root).status == 200
    page.get_by_label("API key").wait_for()
    assert "orders" not in page.locator("main").inner_text()


def test_figures_are_marked_stale_when_the_server_is_gone_and_live_when_it_is_back(
    tmp_path: Path, shared_browser_page: Page
) -> None:
    with RunningServer(tmp_path / "data") as server:
        with Http(server.url) as http:
            http.push("orders", 1)
            wait_until(lambda: "orders" in names_of_queues(http))
        watched = Watched(shared_browser_page, server.url)
        page = watched.open("/queues")
        page.get_by_role("link", name="orders").wait_for()
        server.kill()
        look_again(page)
        page.get_by_text("These figures are old: the server cannot be reached.").wait_for()
        later(page, seconds=10)
        look_again(page)
        assert page.locator("#freshness").inner_text() == "live", "for a quarter of a minute"
        later(page, seconds=10)
        holds(page, "document.querySelector('#freshness').textContent.startsWith('stale')")
        assert page.get_by_role("link", name="orders").is_visible(), "what was known is still shown"
        watched.shot("stale")
        server.start()
        look_again(page)
        watched.ready()
        assert page.locator("main .banner[role=alert]").count() == 0


def look_again(page: Page) -> None:
    """What a tab does when it is seen again: it does not wait for its next turn."""
    page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")


def later(page: Page, seconds: int) -> None:
    """The page's clock goes on by so much."""
    page.evaluate("(ms) => { const now = Date.now; Date.now = () => now() + ms; }", seconds * 1000)
