"""The web page beside a running `forebay up`: flows on parcels and a streaming query, with the worker that has them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from fixtures.fix_page import VIEWS, Watched
from fixtures.fix_spark import Queues
from fixtures.running_stores import Http
from fixtures.waiting import wait_until
from integration.spark.test_examples_parcels import up

if TYPE_CHECKING:
    from playwright.sync_api import Page

SECONDS_MAX = 240.0
SETTINGS = """
flows:
  - name: clicks
    source: {queue: clicks, payloadAs: json, schema: "user STRING, ms INT", startingOffsets: earliest}
    actions:
      - {name: slow, sql: "SELECT did, user, ms FROM input WHERE ms > 10"}
    sink: {queue: slow-clicks}
  - name: watched
    mode: stream
    source: {queue: clicks, payloadAs: json, schema: "user STRING, ms INT", startingOffsets: earliest}
    actions:
      - {name: all, sql: "SELECT user, ms FROM input"}
    sink: {queue: watched-clicks}
"""


def test_flows_and_workers_are_seen_and_paused_beside_forebay_up(browser_page: Page, tmp_path: Path) -> None:
    settings = tmp_path / "forebay.yaml"
    settings.write_text(SETTINGS)
    with up(settings) as server:
        queues = Queues(server)
        with Http(server.url) as http:
            http.push("clicks", *[{"user": "ann", "ms": number} for number in range(21)])
        watched = Watched(browser_page, server.url)
        page = watched.open("/")
        wait_until(lambda: queues.size("slow-clicks") == 10 and queues.size("watched-clicks") == 21, SECONDS_MAX)
        for view in VIEWS:
            watched.open(view.replace("orders", "clicks"))
            watched.shot(f"up-{view}")
        page = watched.open("/flows")
        on_parcels = page.locator("[aria-label='Flows on parcels'] tbody tr")
        assert on_parcels.locator("td").first.inner_text() == "clicks"
        streaming = page.locator("[aria-label='Streaming queries'] tbody tr")
        assert streaming.locator("td").first.inner_text() == "watched"
        assert page.locator("[aria-label=Workers] tbody tr").count() >= 1
        page.get_by_role("button", name="Pause watched").click()
        page.get_by_role("dialog").get_by_role("button", name="Pause", exact=True).click()
        page.wait_for_selector("[aria-label='Resume watched']")
        wait_until(lambda: queues.ask("GET", "/api/v1/flows/watched")["report"]["state"] == "paused", SECONDS_MAX)
        page = watched.open("/parcels?flow=clicks&state=COMPLETE")
        page.locator("[aria-label=Parcels] tbody a").first.click()
        page.wait_for_url("**/parcels/*")
        watched.ready()
        assert "slow" in page.locator("[aria-label=History]").inner_text()
        assert watched.faults == []
