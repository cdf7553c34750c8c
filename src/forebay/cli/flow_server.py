"""A worker's word to the servers: in a thread of its own, so that a flow which takes long to start holds up nothing.

About once a second all that is new is reported and orders are fetched. While no server answers, what was fetched last
holds, and what there is to tell waits.
"""

from __future__ import annotations

import hashlib
import socket
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from urllib.parse import quote

import msgspec

from forebay.cli.server_option import connected_to
from forebay.client import Client
from forebay.errors import ForebayError
from forebay.flows.flow_report import FlowReport
from forebay.flows.supervision import Wish

REPORT_SECONDS = 1.0
STOP_SECONDS_MAX = 5.0
"""How long the last word may take."""


class _Order(msgspec.Struct, rename="camel"):
    name: str
    is_paused: bool
    resumes: int
    runs_at: str
    known: FlowReport | None


class _Orders(msgspec.Struct):
    flows: list[_Order]


def worker_name(data_dir: Path) -> str:
    """The same for every worker of a data directory: one that is killed and started again has its flows at once."""
    place = str(data_dir.resolve())
    return f"{socket.gethostname()}:{hashlib.sha256(place.encode()).hexdigest()[:12]}"


class FlowServer:
    """The servers as the worker sees them (`FlowControl`). A context manager: leaving it tells the last word."""

    def __init__(
        self,
        urls: Sequence[str],
        api_key: str | None,
        worker: str,
        names: Sequence[str],
        *,
        tell: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._client = connected_to(urls, api_key, attempts=1)
        self._worker = worker
        self._names = list(names)
        self._tell = tell
        self._reports: dict[str, FlowReport] = {}
        self._parcel_reports: dict[str, FlowReport] = {}
        self._known: dict[str, FlowReport | None] = {}
        self._wishes: dict[str, Wish] = {}
        self._is_over = threading.Event()
        self._is_away = False
        self._thread = threading.Thread(target=self._run, name="forebay-flow-reports", daemon=True)

    def known(self, name: str) -> FlowReport | None:
        return self._known.get(name)

    def wish(self, name: str) -> Wish | None:
        return self._wishes.get(name)

    def pause(self, name: str) -> None:
        pause(self._client, name, is_paused=True, is_new=True)

    def report(self, reports: Sequence[FlowReport]) -> None:
        self._reports = {report.name: report for report in reports}

    def report_parcels(self, reports: Sequence[FlowReport]) -> None:
        """Hand over how flows on parcels stand, which need no leave to run."""
        self._parcel_reports = {report.name: report for report in reports}

    def __enter__(self) -> FlowServer:
        self._exchange()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join(STOP_SECONDS_MAX)
        self._exchange()
        self._client.close()

    def _run(self) -> None:
        while not self._is_over.wait(REPORT_SECONDS):
            self._exchange()

    def _exchange(self) -> None:
        """Tell and hear, if a server answers."""
        body = {
            "worker": self._worker,
            "names": self._names,
            "flows": [*self._reports.values(), *self._parcel_reports.values()],
        }
        try:
            answer = self._client.post("/api/v1/flows/reports", msgspec.to_builtins(body))
            orders = msgspec.convert(answer, _Orders)
        except (ForebayError, msgspec.ValidationError) as fault:
            if not self._is_away:
                self._tell(f"forebay: no server takes reports of flows: {fault}")
            self._is_away = True
            return
        if self._is_away:
            self._tell("forebay: a server takes reports of flows again")
        self._is_away = False
        for order in orders.flows:
            self._known.setdefault(order.name, order.known)
            self._wishes[order.name] = Wish(order.is_paused, order.resumes, order.runs_at)


def pause(client: Client, name: str, *, is_paused: bool, is_new: bool) -> None:
    """Have a flow paused or resumed; `is_new`: also one that no worker has reported yet."""
    word = "pause" if is_paused else "resume"
    client.post(f"/api/v1/flows/{quote(name, safe='')}/{word}{'?new=true' if is_new else ''}", {})
