"""A web page of another site, in the browser of a user of this machine: it gets nothing and changes nothing."""

from __future__ import annotations

import json
import threading
import urllib.request
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import pytest

from forebay.testing.running_server import RunningServer

if TYPE_CHECKING:
    from playwright.sync_api import Page


class Empty(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/html")
        self.end_headers()
        self.wfile.write(b"<!doctype html><title>another site</title>")

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def other_site() -> Iterator[str]:
    site = ThreadingHTTPServer(("127.0.0.1", 0), Empty)
    thread = threading.Thread(target=site.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{site.server_address[1]}"
    finally:
        site.shutdown()
        thread.join()
        site.server_close()


def pushed(server: RunningServer, payload: str) -> None:
    body = json.dumps({"items": [{"queue": "orders", "payload": payload}]}).encode()
    with urllib.request.urlopen(urllib.request.Request(f"{server.url}/api/v1/push", body), timeout=60):
        pass


def kept(server: RunningServer) -> list[Any]:
    with urllib.request.urlopen(f"{server.url}/api/v1/messages?queue=orders", timeout=60) as answer:
        return [message["data"] for message in json.load(answer)["messages"]]


SEND = """async ([method, url, body]) => {
    const answer = await fetch(url, {method, body, mode: "no-cors"}).catch(error => ({status: -1, type: "error"}))
    return [answer.type, answer.status]
}"""
SHOW = """url => new Promise(done => {
    const image = new Image()
    image.onload = image.onerror = () => done(null)
    image.src = url
})"""
ASK = """async ([method, url, body]) => {
    const answer = await fetch(url, {method, body})
    return [answer.status, answer.status == 204 ? null : await answer.json()]
}"""

WITHIN = """() => {
    const script = document.createElement("script")
    script.text = "x = 1"
    document.body.append(script)
}"""
OWN = """async ([method, url, body]) => (await fetch(url, {method, body, headers: {"X-Forebay": "1"}})).status"""


def test_page_of_another_site_neither_pushes_nor_pops(
    server: RunningServer, other_site: str, browser_page: Page
) -> None:
    pushed(server, "kept")
    body = json.dumps({"items": [{"queue": "orders", "payload": "forged"}]})
    browser_page.goto(other_site)
    assert browser_page.evaluate(SEND, ["POST", f"{server.url}/api/v1/push", body])[0] == "opaque"
    browser_page.evaluate(SHOW, f"{server.url}/api/v1/pop/queue/orders?autoAck=true")
    browser_page.evaluate(SEND, ["GET", f"{server.url}/api/v1/pop/queue/orders?autoAck=true", None])
    assert kept(server) == ["kept"]
    browser_page.goto(f"{server.url}/docs")
    status, popped = browser_page.evaluate(ASK, ["GET", "/api/v1/pop/queue/orders?autoAck=true", None])
    assert (status, popped["messages"][0]["data"]) == (200, "kept")


def test_own_page_pushes_and_reads(server: RunningServer, browser_page: Page) -> None:
    browser_page.goto(f"{server.url}/docs")
    assert "Forebay" in browser_page.title()
    body = json.dumps({"items": [{"queue": "orders", "payload": 1}]})
    assert browser_page.evaluate(ASK, ["POST", "/api/v1/push", body])[0] == 201
    assert browser_page.evaluate(ASK, ["GET", "/openapi.json", None])[0] == 200


def test_page_of_ours_loads_nothing_from_elsewhere_and_is_in_no_frame(
    server: RunningServer, other_site: str, browser_page: Page
) -> None:
    complaints: list[str] = []
    browser_page.on("console", lambda message: complaints.append(message.text))
    answer = browser_page.goto(f"{server.url}/docs")
    assert answer is not None
    policy = answer.headers["content-security-policy"]
    assert "default-src 'self'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy
    assert (answer.headers["x-content-type-options"], answer.headers["referrer-policy"]) == ("nosniff", "no-referrer")
    assert browser_page.evaluate("getComputedStyle(document.body).maxWidth") == "960px", "its own style counts"
    assert not [text for text in complaints if "Content Security Policy" in text]
    browser_page.evaluate(WITHIN)
    assert browser_page.evaluate("typeof x") == "undefined"
    browser_page.goto(other_site)
    browser_page.set_content(f"<iframe src='{server.url}/docs'></iframe>")
    frame = browser_page.frames[-1]
    assert "Forebay" not in frame.content()


def test_page_signs_in_and_out(server: RunningServer, browser_page: Page) -> None:
    made = json.dumps({"name": "root", "scopes": ["admin"]}).encode()
    with urllib.request.urlopen(urllib.request.Request(f"{server.url}/api/v1/keys", made), timeout=60) as answer:
        key = json.load(answer)["key"]
    browser_page.goto(f"{server.url}/docs")
    assert browser_page.evaluate(ASK, ["GET", "/api/v1/session", None])[1]["signedIn"] is False
    assert browser_page.evaluate(ASK, ["GET", "/api/v1/resources/queues", None])[0] == 401
    assert browser_page.evaluate(ASK, ["POST", "/api/v1/session", json.dumps({"key": key})])[0] == 200
    assert browser_page.evaluate("document.cookie") == ""
    assert browser_page.evaluate(ASK, ["GET", "/api/v1/resources/queues", None])[0] == 200
    body = json.dumps({"items": [{"queue": "orders", "payload": 1}]})
    assert browser_page.evaluate(ASK, ["POST", "/api/v1/push", body])[0] == 403
    assert browser_page.evaluate(OWN, ["POST", "/api/v1/push", body]) == 201
    assert browser_page.evaluate(OWN, ["DELETE", "/api/v1/session", None]) == 200
    assert browser_page.evaluate(ASK, ["GET", "/api/v1/resources/queues", None])[0] == 401


def test_address_that_a_user_types_or_a_link_leads_to_does_not_pop(server: RunningServer, browser_page: Page) -> None:
    pushed(server, "kept")
    answer = browser_page.goto(f"{server.url}/api/v1/pop/queue/orders?autoAck=true")
    assert answer is not None
    assert answer.status == 403


def test_name_of_another_site_that_leads_here_is_not_served(server: RunningServer) -> None:
    request = urllib.request.Request(f"{server.url}/api/v1/resources/queues", headers={"Host": "evil.example:6632"})
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(request, timeout=60)
    with refused.value as answer:
        assert (answer.status, json.load(answer)["code"]) == (403, "wrong_host")
