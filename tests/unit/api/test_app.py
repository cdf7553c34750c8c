"""What a request ends in, whatever happens below: without a socket."""

from __future__ import annotations

import asyncio
import errno
import json
import logging
import uuid
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fixtures.intakes import intake_of
from fixtures.scripted_dispatcher import ScriptedDispatcher
from forebay.api.app import App
from forebay.api.exchange import Request, Response
from forebay.api.problems import STATUSES, TITLES, without_paths
from forebay.api.responses import iso, message_id
from forebay.api.service import Service
from forebay.broker.messages import Pushed
from forebay.broker.waiting import WaitingRoom
from forebay.errors import (
    AppendFailed,
    DamagedRange,
    DiskFull,
    ForebayError,
    InvariantBroken,
    LogClosed,
    LogNotAccessible,
    PayloadInClear,
    QueueFull,
    SegmentDamaged,
    StoreUnavailable,
    UnknownQueue,
)
from forebay.model.message import CREATED_US_MAX
from forebay.model.push_run import PushRun, run_of_one
from forebay.model.queue import Queue, QueueOptions
from forebay.testing.fake_clock import FakeClock
from forebay.testing.memory_store import MemoryStore


class BrokenStore(MemoryStore):
    """To push and to configure ends in the same error. Of a push, some become a failover."""

    def __init__(self, error: Exception) -> None:
        super().__init__(FakeClock())
        self._error = error

    async def push(self, runs: Sequence[PushRun]) -> list[Pushed]:
        raise self._error

    async def configure(self, queue: str, options: QueueOptions, namespace: str, task: str) -> Queue:
        raise self._error


def told(
    store: MemoryStore, method: str, path: str, body: bytes = b"", folders: tuple[str, ...] = ()
) -> tuple[int, dict[bytes, bytes], bytes]:
    """One request from beginning to end."""

    async def run() -> Response:
        waiting = WaitingRoom(asyncio.get_running_loop())
        clock, intake = FakeClock(), intake_of(store, FakeClock())
        app = App(
            Service(store, waiting, clock, intake, is_started=True, folders=folders, dispatcher=ScriptedDispatcher())
        )
        raw_path, _, query = path.encode().partition(b"?")
        request = Request(method, raw_path, query)
        request.stream.feed(body)
        request.stream.end()
        answer = await app.answer(request)
        assert isinstance(answer, Response)
        return answer

    status, text, content_type, headers, _ = asyncio.run(run())
    return status, {b"content-type": content_type, **dict(headers)}, text


DAMAGE = DamagedRange("00.seg", 0, 8, 1, 1, "checksum")
PUSH = b'{"items":[{"queue":"q","payload":1}]}'
CONFIGURE = b'{"queue":"q"}'


@pytest.mark.parametrize(
    ("error", "status", "is_retried"),
    [
        (QueueFull("q", 5, 5), 429, True),
        (StoreUnavailable("the database is away"), 503, True),
        (DiskFull(Path("data"), "0 bytes left"), 507, True),
        (AppendFailed(Path("data"), "the write failed"), 503, True),
        (LogClosed(Path("data")), 503, False),
        (PayloadInClear("q"), 503, False),
        (UnknownQueue("q"), 404, False),
        (ForebayError("refused"), 500, False),
        (SegmentDamaged(Path("log"), DAMAGE), 500, False),
        (LogNotAccessible(Path("log"), "Permission denied"), 503, False),
    ],
)
def test_error_of_the_store_has_its_status(error: Exception, status: int, is_retried: bool) -> None:
    found, headers, body = told(BrokenStore(error), "POST", "/api/v1/configure", CONFIGURE)
    assert found == status
    assert (b"retry-after" in headers) is is_retried
    assert headers[b"content-type"] == b"application/problem+json"
    document = json.loads(body)
    assert (document["status"], document["error"]) == (status, str(error))


@pytest.mark.parametrize("error", [InvariantBroken("2 and 2 are 5"), ZeroDivisionError("secret")])
def test_bug_is_500_and_its_text_stays_in_the_log(error: Exception, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    status, _, body = told(BrokenStore(error), "POST", "/api/v1/push", PUSH)
    assert status == 500
    assert b"secret" not in body
    assert str(error) in caplog.text


def test_every_error_has_a_title_and_the_special_comes_before_the_general() -> None:
    for place, (kind, status, _) in enumerate(STATUSES):
        assert status in TITLES
        assert not any(issubclass(kind, earlier) for earlier, _, _ in STATUSES[:place])


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (SegmentDamaged(Path("/srv/data/log"), DAMAGE), 500, "damaged"),
        (LogNotAccessible(Path("/srv/data/log"), "Permission denied"), 503, "log_unusable"),
        (LogNotAccessible(Path("here/log"), "Permission denied"), 503, "log_unusable"),
        (DiskFull(Path("/srv/data/log/00.seg"), "no space left on device"), 507, "disk_full"),
        (StoreUnavailable("/srv/data/broker.sqlite: disk I/O error"), 503, "store_unavailable"),
        (OSError(errno.EROFS, "Read-only file system", "/srv/data/stages/1"), 503, "system"),
        (OSError(errno.EMFILE, "Too many open files", "/srv/data/stages/1"), 503, "system"),
        (OSError(errno.ENOSPC, "No space left on device", "/srv/data/stages/1"), 507, "disk_full"),
    ],
)
def test_fault_of_the_server_is_5xx_and_its_place_is_in_the_log_alone(
    error: Exception, status: int, code: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    found, _, body = told(BrokenStore(error), "POST", "/api/v1/configure", CONFIGURE, folders=("here", "/opt/here"))
    assert (found, json.loads(body)["code"]) == (status, code)
    assert b"/srv" not in body
    assert b"here" not in body
    (record,) = caplog.records
    assert str(error) in record.getMessage()
    assert getattr(record, "action", "") == f"request_{code}"


def test_names_of_queues_are_no_paths() -> None:
    detail = "queue '/a/b' is damaged, see https://example.org/a/b, at 1/2 of /srv/x/y"
    assert without_paths(detail, []) == "queue 'b' is damaged, see https://example.org/a/b, at 1/2 of y"


def test_refusal_that_the_request_is_to_blame_for_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "forebay")
    assert told(BrokenStore(UnknownQueue("q")), "POST", "/api/v1/push", PUSH)[0] == 404
    assert not [record for record in caplog.records if record.name.startswith("forebay")]


def test_push_and_pop_of_several_queues_in_one_request() -> None:
    store = MemoryStore(FakeClock())
    items = [{"queue": f"q{n % 2}", "payload": n} for n in range(4)]
    status, _, body = told(store, "POST", "/api/v1/push", json.dumps({"items": items}).encode())
    assert status == 201
    assert [entry["seq"] for entry in json.loads(body)] == [1, 1, 2, 2]
    status, _, body = told(store, "GET", "/api/v1/pop/queue/q1?batch=10&autopilot=true")
    assert [message["data"] for message in json.loads(body)["messages"]] == [1, 3]
    assert json.loads(body)["autopilot"] == {"batch": 10, "partitions": 1}


def test_binary_payload_is_answered_as_base64() -> None:
    store = MemoryStore(FakeClock())
    asyncio.run(store.push([run_of_one("q", "Default", b"\xff\x00", "t", is_binary=True)]))
    _, _, body = told(store, "GET", "/api/v1/pop/queue/q")
    (message,) = json.loads(body)["messages"]
    assert (message["data"], message["encoding"]) == ("/wA=", "base64")


@given(st.text(min_size=1, max_size=255), st.integers(1, 2**60 - 1))
def test_message_id_is_a_uuid_that_tells_the_seq(queue: str, seq: int) -> None:
    queue = queue.encode(errors="replace").decode()
    found = uuid.UUID(message_id(queue, seq))
    assert (found.version, found.variant) == (8, uuid.RFC_4122)
    assert found.int & (2**60 - 1) == seq
    assert message_id(queue, seq) != message_id(queue + "x", seq)


def test_times_are_written_to_the_microsecond() -> None:
    assert iso(1_767_225_600_000_001) == "2026-01-01T00:00:00.000001Z"
    assert iso(CREATED_US_MAX) == "9999-12-31T23:59:59.999999Z"


def test_summaries_are_plain_json() -> None:
    status, headers, body = told(MemoryStore(FakeClock()), "GET", "/api/v1/status")
    assert (status, headers[b"content-type"]) == (200, b"application/json")
    assert msgspec.json.decode(body)["queues"] == []
