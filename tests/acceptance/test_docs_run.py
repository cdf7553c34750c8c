"""Every command and request that a page shows is run, and answers as the page says.

A reader pastes what stands on a page, so a page that is wrong is a fault of the product that no other test sees. The
shell blocks of all pages below `docs/` (those of the generated reference aside) are taken apart into commands, and run
in the order of the page by a shell, in a directory of their own, against servers that hold what the page speaks of:
queues with dead letters, a flow with a parcel in ERROR, a destination that refuses. A command has to end with 0, or as
`CODES` says. What a page shows behind it has to come, line by line and in that order, with other numbers, ids and
widths.

Three things are replaced in a command, because the machine of a test is not that of the page: the address of the
server, directories such as `/var/lib/forebay`, and words that stand for an id (`DID`). `forebay serve` gets a port and,
where it names none, a directory of its own; it has to become ready, and to end with 0 when it is told to.

What cannot run here stands in `NOT_RUN` with the reason. Whatever is not in that table is run, so a command that
somebody writes into a page is run from then on, or has to be given a reason.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import textwrap
import threading
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from fixtures.certificates import make_authority, make_certificate
from fixtures.waiting import wait_until
from forebay.client import Client, ParcelOutcome
from forebay.testing.running_server import READY, RunningServer
from forebay.testing.servers import PostgresServer
from forebay.testing.servers.machine import free_port

DOCS = Path(__file__).parents[2] / "docs"

NEEDED = ("curl", "jq", "openssl")
"""Programs that the pages call and that are not ours."""

NOT_RUN = {
    ("quickstart.md", "make setup"): "it makes the virtual environment that this test runs in",
    ("quickstart.md", "source .venv/bin/activate"): "the test's PATH begins with that directory instead",
    ("quickstart.md", "forebay demo"): "takes minutes and starts Spark; test_cli_demo runs it",
    ("quickstart.md", "forebay push orders"): "test_pasted_snippets runs this block, and compares more than a shape",
    ("quickstart.md", "forebay pop orders@billing --batch 10"): "the same block",
    ("quickstart.md", "forebay tail orders"): "the same block",
    ("quickstart.md", "forebay queues"): "the same block",
    ("quickstart.md", "forebay groups"): "the same block",
    ("quickstart.md", "forebay dlq list"): "the same block",
    ("quickstart.md", "curl -sS"): "test_pasted_snippets runs this block, and compares more than a shape",
    ("quickstart.md", "lease="): "the same block",
    ("quickstart.md", "forebay bench"): "takes minutes; test_cli_bench runs it in small",
    ("guides/benchmarks.md", "make bench"): "takes an hour and installs a package",
    (
        "guides/benchmarks.md",
        "forebay bench",
    ): "takes minutes; test_cli_bench and its neighbours run the suites in small",
    ("guides/buffering.md", "HTTP/1.1 507"): "an answer without its request: test_full_disks sees it",
    ("guides/dispatch.md", "forebay serve --store postgresql://…"): "an address that stands for the reader's; "
    "test_dispatch_servers_killed runs servers on PostgreSQL and Valkey",
    ("guides/flows.md", "forebay flows check"): "starts Spark; test_docs_of_flows checks the YAML of the page",
    ("guides/flows.md", "forebay up"): "starts Spark and does not end; test_cli_flows runs it",
    ("guides/operating.md", "python3 -m venv /opt/forebay"): "writes to /opt; test_wheel installs the wheel",
    ("guides/operating.md", "/opt/forebay/bin/pip"): "the same",
    ("guides/operating.md", "useradd"): "makes a user of the machine",
    ("guides/operating.md", "install -d"): "needs that user",
    ("guides/operating.md", "sudo -u forebay"): "needs that user; the same command without sudo is on security.md",
    ("guides/operating.md", "systemctl"): "a service of the machine",
    ("guides/operating.md", "tar"): "between a stop and a start of the server: test_backup runs it",
    ("guides/operating.md", "pg_dump"): "test_backup runs it on a database of its own",
    ("guides/operating.md", "pg_restore"): "test_backup runs it on a database of its own",
    ("guides/operating.md", "FOREBAY_DATA_DIR=/var/lib/forebay uvicorn"): "does not end; a test below runs it",
    ("guides/spark.md", "spark-submit"): "needs a cluster",
}
"""Page and how the command begins, and why it is not run."""

CODES = {("guides/configuration.md", "forebay config check broken.yaml"): 1}
"""Commands that the page says to end with something else than 0."""

OTHER_LANGUAGES = {"python", "yaml", "json", "sql", "dockerfile", "text"}
SHELL = {"sh", "bash", "console", "shell"}
COMMAND = re.compile(r"(?:\$ |forebay |curl |make |python3? |source )")
"""How a line of an untagged block begins that is a command; others are drawings and what a file holds."""


@dataclass
class Command:
    text: str
    shown: list[str] = field(default_factory=list)
    """What the page shows behind it."""


@dataclass
class Block:
    page: str
    line: int
    commands: list[Command]

    def __str__(self) -> str:
        return f"docs/{self.page}:{self.line}"


def fences(page: Path) -> Iterator[tuple[int, str, str]]:
    text = page.read_text()
    for found in re.finditer(r"^( *)```([^\n]*)\n(.*?)^\1```$", text, re.MULTILINE | re.DOTALL):
        yield text.count("\n", 0, found.start()) + 1, (found[2].split() or [""])[0], textwrap.dedent(found[3])


def written_commands(text: str, *, has_prompts: bool) -> Iterator[Command]:
    """In a block with prompts the other lines are what is printed; without, each line begins a command.

    An answer that stands alone comes as a command without a text.
    """
    lines = text.splitlines()
    command: Command | None = None
    until: str | None = None  # the end of a here-document
    for line in lines:
        if command is not None and (until is not None or command.text.endswith("\\")):
            command.text += f"\n{line}"
            until = None if line == until else until
        elif has_prompts and not line.startswith("$ "):
            if command is None:
                command = Command("")
            command.shown.append(line)
        elif line.strip():
            if command is not None:
                yield command
            command = Command(line.removeprefix("$ "))
            heredoc = re.search(r"<<'(\w+)'", line)
            until = heredoc[1] if heredoc else None
    if command is not None:
        yield command


def blocks_of(page: str) -> list[Block]:
    found = []
    for line, language, text in fences(DOCS / page):
        if language in SHELL or (not language and any(COMMAND.match(each) for each in text.splitlines())):
            has_prompts = language == "console" or "$ " in {each[:2] for each in text.splitlines()}
            found.append(Block(page, line, list(written_commands(text, has_prompts=has_prompts))))
    return found


def entry(page: str, command: Command) -> tuple[str, str] | None:
    """The line of `NOT_RUN` that holds for it."""
    text = command.text or command.shown[0]
    return next((key for key in NOT_RUN if key[0] == page and text.startswith(key[1])), None)


PAGES = [
    page
    for path in sorted(DOCS.rglob("*.md"))
    if not (page := str(path.relative_to(DOCS))).startswith("reference/") and blocks_of(page)
]
ON_THEIR_OWN = ("guides/buffering.md", "guides/damage.md", "guides/security.md")
"""Pages with a test of their own, because what they show needs another server."""


@dataclass
class Served:
    """A `forebay serve` of a page. Several start side by side, so nobody waits for one before the page ends."""

    where: str
    process: subprocess.Popen[str]
    shown: list[str]
    _ready: str = ""

    @property
    def port(self) -> int:
        assert self.process.stdout is not None
        self._ready = self._ready or self.process.stdout.readline()
        assert self._ready.startswith(READY), f"{self.where}: {self.process.communicate()[1]}"
        return int(self._ready.removeprefix(READY).split()[0].rpartition(":")[2])

    def assert_it_served(self) -> None:
        assert self.port > 0
        self.process.send_signal(signal.SIGTERM)
        _, errors = self.process.communicate(timeout=60)
        assert self.process.returncode == 0, f"{self.where}: {errors}"
        for line in self.shown:
            assert any(keys(line) == keys(each) for each in errors.splitlines()), f"{self.where}: {errors}"


@dataclass
class Place:
    """Where the commands of a page run: a directory, a server, and what stands for the words of the page."""

    folder: Path
    url: str = ""
    environment: dict[str, str] = field(default_factory=dict)
    words: dict[str, str] = field(default_factory=dict)
    serving: list[Served] = field(default_factory=list)
    printed: list[str] = field(default_factory=list)
    """What the commands have printed so far, one after the other."""

    def command(self, text: str) -> str:
        address = self.url.removeprefix("http://")
        text = re.sub(r"(localhost|127\.0\.0\.1):6632", address, text)
        for word, stands_for in self.words.items():
            text = re.sub(rf"(?<![\w-]){re.escape(word)}(?![\w-])", stands_for, text)
        return text

    def variables(self) -> Mapping[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("FOREBAY_")}
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        return {**kept, "PATH": path, "COLUMNS": "250", "FOREBAY_URL": self.url, **self.environment}

    def run(self, block: Block) -> None:
        waiting: list[Command] = []
        for command in block.commands:
            if entry(block.page, command) is not None:
                continue
            if re.match(r"(\w+=\S+ )*forebay serve\b", command.text):
                self._run_in_shell(block, waiting)
                waiting = []
                self._serve(block, command)
            else:
                waiting.append(command)
        self._run_in_shell(block, waiting)

    def _run_in_shell(self, block: Block, commands: list[Command]) -> None:
        """One shell for them, because one may set a variable for the next."""
        mark = "=====ended="
        script = "exec 2>&1\n"
        for command in commands:
            assert command.text, f"{block}: an answer without its command needs a reason in NOT_RUN"
            script += f"{self.command(command.text)}\nprintf '\\n{mark}%s\\n' $?\n"
        done = subprocess.run(
            ["sh", "-u", "-c", script],
            cwd=self.folder,
            env=self.variables(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, f"{block}: {done.stdout}"
        parts = re.split(rf"\n{mark}(\d+)\n", done.stdout)
        assert len(parts) == 2 * len(commands) + 1, f"{block}: {done.stdout}"
        for command, printed, code in zip(commands, parts[::2], parts[1::2], strict=False):
            begins = command.text.split(" #")[0].strip()
            assert int(code) == CODES.get((block.page, begins), 0), f"{block}: {begins}: {printed}"
            assert_shown(f"{block}: {begins}", command.shown, printed.splitlines())
            self.printed.append(printed)

    def _serve(self, block: Block, command: Command) -> None:
        words = shlex.split(self.command(command.text))
        variables = {}
        while "=" in words[0]:
            name, _, value = words.pop(0).partition("=")
            variables[name] = value
        words += ["--port", "0"]
        if "--data-dir" not in words:
            words += ["--data-dir", str(self.folder / f"served-{len(self.serving)}")]
        environment = {**self.variables(), **variables, "FOREBAY_SERVER_LOG_LEVEL": "info"}
        process = subprocess.Popen(
            [str(Path(sys.executable).parent / words[0]), *words[1:]],
            cwd=self.folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.serving.append(Served(f"{block}: {command.text}", process, command.shown))
        if not self.url:
            self.url = f"http://127.0.0.1:{self.serving[-1].port}"

    def stop(self) -> None:
        """Each server became ready, ends as it should, and has logged what the page shows."""
        try:
            while self.serving:
                self.serving[0].assert_it_served()
                del self.serving[0]
        finally:
            for served in self.serving:
                served.process.kill()
                served.process.communicate()
            self.serving.clear()


def keys(line: str) -> list[str]:
    return re.findall(r'"(\w+)":', line)


TEXT = r'"(?:[^"\\]|\\.)*"'


def shape(line: str) -> list[str]:
    """What two lines have in common that say the same of other numbers, ids, reasons and widths."""
    line = re.sub(r"forebay_[\w-]{43}", "KEY", line)
    if line.startswith(("{", "[")):
        line = re.sub(rf'"(transactionId|partitionId|id|reason)":{TEXT}', r'"\1":"…"', line)
        found = re.findall(rf'"\w+":(?:{TEXT}|[\w.]+)?', line)
    else:
        found = re.sub("─+", "─", line).split()
    return [re.sub(r"\d+(\.\d+)?", "0", each) for each in found]


def comes(wanted: list[str], found: list[str]) -> bool:
    """All that is wanted is found, in that order; more may stand between."""
    rest = iter(found)
    return all(each in rest for each in wanted)


def assert_shown(where: str, wanted: list[str], printed: list[str]) -> None:
    rest = iter(printed)
    for line in wanted:
        if line.strip() in ("", "…"):
            continue
        is_elided = "…" in line
        expected = [each for each in shape(line) if each != "…"]
        for found in rest:
            if comes(expected, shape(found)) if is_elided else expected == shape(found):
                break
        else:
            raise AssertionError(f"{where}: not printed: {line}\n" + "\n".join(printed))


class Refusing(BaseHTTPRequestHandler):
    """A destination that takes nothing."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(400)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Not into the test's output."""


SETTINGS = """\
receivers:
  otlp_http: {{listen: "127.0.0.1:{receiver}", to: "destination:prometheus"}}
  buffer: {{flush_interval: 0s}}
exporter:
  queue: {{retry_interval: 10ms, max_attempts: 2}}
destinations:
  - {{name: prometheus, type: otlp_http, url: "http://127.0.0.1:{sink}", compression: none}}
"""


LOCATE = """\
from forebay.flows import DataFrameAction


class Locate(DataFrameAction):
    def transform(self, frame, context):
        return frame
"""


@pytest.fixture(scope="module")
def receiver() -> int:
    return free_port()


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, receiver: int) -> Iterator[Place]:
    """The server of most pages, and a directory with the files that they name."""
    folder = tmp_path_factory.mktemp("docs")
    sink = ThreadingHTTPServer(("127.0.0.1", 0), Refusing)
    threading.Thread(target=sink.serve_forever, daemon=True).start()
    settings = folder / "server.yaml"
    settings.write_text(SETTINGS.format(receiver=receiver, sink=sink.server_address[1]))
    data = folder / "forebay-data"
    with RunningServer(data, arguments=("-c", str(settings))) as server:
        yield Place(folder, server.url, words={"/var/lib/forebay": str(data)})
    sink.shutdown()
    sink.server_close()


def snippet(page: str, language: str, holds: str) -> str:
    (found,) = [text for _, each, text in fences(DOCS / page) if each == language and holds in text]
    return found


def make_orders(client: Client) -> None:
    """A queue whose group has had a message, has one as a dead letter, and has one to come."""
    client.delete_queue("orders")
    client.configure("orders", {"retryLimit": 0, "retryDelay": 0})
    client.push_many("orders", [{"id": 7}, {"id": 8}, {"id": 9}])
    assert client.ack(client.pop("orders@billing"))
    assert client.ack(client.pop("orders@billing"), "failed", error="broken")


def make_failed_parcel(client: Client) -> str:
    client.push_many("images", [{"id": 7}])
    lease = client.lease("worker", ["images.Shrink"], wait=10)
    assert lease is not None
    (parcel,) = lease.parcels
    client.complete(lease, [ParcelOutcome(did=parcel.did, state="ERROR", error="broken")])
    return parcel.did


def make_dead_letter(url: str, receiver: int) -> str:
    point = {"timeUnixNano": "1", "asInt": "1"}
    metric = {"name": "m", "gauge": {"dataPoints": [point]}}
    body = json.dumps({"resourceMetrics": [{"scopeMetrics": [{"metrics": [metric]}]}]}).encode()
    headers = {"Content-Type": "application/json"}
    urllib.request.urlopen(
        urllib.request.Request(f"http://127.0.0.1:{receiver}/v1/metrics", body, headers), timeout=60
    ).close()

    def letters() -> list[dict[str, Any]]:
        with urllib.request.urlopen(f"{url}/api/v1/exports/prometheus/dead-letters", timeout=60) as answer:
            found: list[dict[str, Any]] = json.load(answer)["letters"]
        return found

    wait_until(lambda: bool(letters()))
    identifier: str = letters()[0]["id"]
    return identifier


def buffers(url: str) -> dict[str, Any]:
    with urllib.request.urlopen(f"{url}/api/v1/status/buffers", timeout=60) as answer:
        found: dict[str, Any] = json.load(answer)
    return found


def prepare(place: Place, block: Block, receiver: int) -> None:
    """What the commands of this block find."""
    text = "\n".join(command.text for command in block.commands)
    with Client(place.url) as client:
        if "orders" in text or "audit" in text:
            make_orders(client)
        if " DID" in text:
            place.words["DID"] = make_failed_parcel(client)
    if "exports dead" in text:
        place.words["ID"] = make_dead_letter(place.url, receiver)
    if "clicks-log" in text and not (place.folder / "clicks-log").exists():
        program = snippet("quickstart.md", "python", "clicks-log")
        subprocess.run([sys.executable, "-c", program], cwd=place.folder, check=True, capture_output=True, timeout=60)
    settings = snippet("guides/configuration.md", "yaml", "# forebay.yaml")
    if block.page == "guides/flows.md":
        settings = snippet(block.page, "yaml", "- name: clicks\n")
        (place.folder / "shop").mkdir()
        (place.folder / "shop" / "actions.py").write_text(LOCATE)
    (place.folder / "forebay.yaml").write_text(settings)
    (place.folder / "broken.yaml").write_text("profile: fast\nlog:\n  segmnt_size: 1Gi\n  read_chunk: 1Gi\n")


@pytest.fixture(scope="module", autouse=True)
def _programs_are_there() -> None:
    missing = [program for program in NEEDED if shutil.which(program) is None]
    assert missing == [], f"scripts/system-packages {' '.join(missing)} installs them"


@pytest.mark.parametrize("page", [page for page in PAGES if page not in ON_THEIR_OWN])
def test_commands_of_a_page_run_and_print_what_it_shows(page: str, place: Place, receiver: int) -> None:
    try:
        for block in blocks_of(page):
            prepare(place, block, receiver)
            place.run(block)
    finally:
        place.stop()


def test_first_key_opens_a_server_to_its_clients_and_its_stopped_directory_is_salvaged(tmp_path: Path) -> None:
    first, rights, certificates = blocks_of("guides/security.md")
    (damage,) = blocks_of("guides/damage.md")
    place = Place(tmp_path)
    make_certificate(tmp_path)
    (tmp_path / "clients.pem").write_bytes(make_authority(tmp_path, "clients")[0].read_bytes())
    try:
        place.run(first)
        key = place.printed[0].splitlines()[0]
        place.words |= {"https://queue.example.com:6632": place.url, "forebay_…": key}
        place.run(rights)
        with Client(place.url, api_key=key) as client:
            client.push("orders", {"id": 7})
        place.run(certificates)
    finally:
        place.stop()
    place.run(damage)


def test_an_outage_goes_as_the_page_of_buffering_shows(postgres_server: PostgresServer, tmp_path: Path) -> None:
    usual, away, qos0, auto_ack, looking, full, by_hand, audit = blocks_of("guides/buffering.md")
    assert entry(full.page, full.commands[0]) is not None
    away.commands[0].text = usual.commands[0].text  # "The same with PostgreSQL stopped"
    with RunningServer(tmp_path / "data", store=postgres_server.url) as server, Client(server.url) as client:
        place = Place(tmp_path, server.url)
        place.run(usual)
        postgres_server.stop()
        place.run(away)
        client.push("tasks", {"task": 2})
        place.run(looking)
        failed = tmp_path / "failed" / "failover_2026-01-02T03:04:05.000006.buf"
        failed.parent.mkdir()
        shutil.copy(tmp_path / "data" / "buffers" / "failover.buf", failed)
        postgres_server.start()
        wait_until(lambda: buffers(server.url)["pending"] == 0)
        for block in (qos0, auto_ack, by_hand):
            place.run(block)
        client.delete_queue("events")
        client.push("orders", {"id": 7})
        client.push_many("events", list(range(100)))
        assert client.ack(client.pop("events@g", batch=10))
        assert len(client.pop("events@g", batch=5)) == 5
        place.run(audit)


def test_command_of_an_asgi_server_serves_those_who_have_a_key(tmp_path: Path) -> None:
    (command,) = blocks_of("guides/operating.md")[-1].commands
    place = Place(tmp_path, words={"/var/lib/forebay": str(tmp_path / "data")})
    place.run(Block("", 0, [Command("forebay keys create root --scope admin --data-dir /var/lib/forebay")]))
    port = free_port()
    script = f"exec env {place.command(command.text)} --port {port}"
    with subprocess.Popen(["sh", "-c", script], env=place.variables(), stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            while "Uvicorn running on" not in (line := process.stderr.readline()):
                assert line, "it has ended"
            with Client(f"http://127.0.0.1:{port}", api_key=place.printed[0].splitlines()[0]) as client:
                assert client.push("orders", {"id": 7}).status == "queued"
        finally:
            process.terminate()
            process.communicate(timeout=60)


def test_every_command_is_run_or_has_a_reason() -> None:
    """What has none is run by the tests above; those of the pages on their own count the blocks of these."""
    assert set(ON_THEIR_OWN) < set(PAGES)
    commands = [(page, command) for page in PAGES for block in blocks_of(page) for command in block.commands]
    entries = [entry(page, command) for page, command in commands]
    assert entries.count(None) >= 60
    assert set(NOT_RUN) - set(entries) == set(), "reasons for commands that no page has any more"


def test_no_block_of_commands_hides_behind_another_language() -> None:
    pages = [path for path in DOCS.rglob("*.md") if "reference" not in path.relative_to(DOCS).parts]
    found = {(str(path.relative_to(DOCS)), line, language) for path in pages for line, language, _ in fences(path)}
    assert {each for each in found if each[2] not in SHELL | OTHER_LANGUAGES | {""}} == set()
    assert len(found) >= 120
