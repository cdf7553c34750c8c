"""Which requests of web pages are served, and which names of the server count."""

from __future__ import annotations

import pytest

from forebay.api.browsers import Browsers, browsers_for
from forebay.api.problems import Problem

LOCAL = browsers_for("127.0.0.1", "", has_keys=False)


def verdict(browsers: Browsers, method: str = "POST", *, changes: bool = True, **headers: str) -> str:
    given = tuple((name.replace("_", "-").encode(), value.encode()) for name, value in headers.items())
    try:
        browsers.check(given, method, changes=changes)
    except Problem as problem:
        return problem.code if problem.status == 403 else str(problem.status)
    return "served"


@pytest.mark.parametrize(
    "host", ["127.0.0.1:6632", "localhost", "LOCALHOST:80", "[::1]:6632", "127.1.2.3", "a.localhost:1", "localhost."]
)
def test_loopback_names_are_served(host: str) -> None:
    assert verdict(LOCAL, host=host) == "served"
    assert verdict(LOCAL, host=host) == "served"


@pytest.mark.parametrize(
    "host",
    ["evil.example", "127.0.0.1.evil.example", "localhost.evil.example:6632", "10.0.0.1", "[::2]", "[", "a@b", "@"],
)
def test_other_names_are_refused_even_for_questions(host: str) -> None:
    assert verdict(LOCAL, "GET", changes=False, host=host) == "wrong_host"
    assert verdict(LOCAL, "POST", host=host) == "wrong_host"


def test_client_that_names_no_host_is_no_browser() -> None:
    assert verdict(LOCAL) == "served"


def test_names_in_the_setting_are_served_beside_loopback_ones() -> None:
    named = browsers_for("0.0.0.0", "queue.example.com, other", has_keys=True)
    assert [verdict(named, host=host) for host in ("queue.example.com:443", "Other", "localhost", "third")] == [
        "served",
        "served",
        "served",
        "wrong_host",
    ]


def test_any_name_is_served_where_keys_or_the_address_make_it_so() -> None:
    for browsers in (
        browsers_for("127.0.0.1", "*", has_keys=False),
        browsers_for("127.0.0.1", "", has_keys=True),
        browsers_for("0.0.0.0", "", has_keys=False),
    ):
        assert verdict(browsers, host="evil.example") == "served"


@pytest.mark.parametrize("site", ["cross-site", "same-site", "none", "odd"])
def test_get_that_changes_something_is_for_own_pages_only(site: str) -> None:
    assert verdict(LOCAL, "GET", sec_fetch_site=site) == "foreign_page"
    assert verdict(LOCAL, "GET", sec_fetch_site="same-origin") == "served"


@pytest.mark.parametrize("site", ["cross-site", "same-site", "odd"])
def test_change_from_another_site_is_refused(site: str) -> None:
    assert verdict(LOCAL, sec_fetch_site=site, host="localhost:1", origin="http://localhost:1") == "foreign_page"
    assert verdict(Browsers(), sec_fetch_site=site) == "foreign_page"


def test_question_from_another_site_is_answered_because_its_page_cannot_read_it() -> None:
    assert verdict(LOCAL, "GET", changes=False, sec_fetch_site="cross-site", origin="http://evil") == "served"


@pytest.mark.parametrize("origin", ["null", "http://evil.example", "http://localhost:2", "http://localhost"])
def test_browser_that_sends_no_site_is_judged_by_its_origin(origin: str) -> None:
    assert verdict(LOCAL, host="localhost:1", origin=origin) == "foreign_page"
    assert verdict(LOCAL, host="localhost:1", origin="http://LOCALHOST:1") == "served"


def test_own_page_behind_a_proxy_that_renames_the_host_is_served() -> None:
    assert (
        verdict(Browsers(), host="10.0.0.1:6632", origin="https://queue.example", sec_fetch_site="same-origin")
        == "served"
    )
