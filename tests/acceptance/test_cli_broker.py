"""The commands that talk to a server, as a user types them."""

from __future__ import annotations

import json
import os
import pty
import re
import socket
import subprocess
import sys
import time
from pathlib import Path

from fixtures.command_line import typed
from fixtures.running_stores import module_server as server
from forebay.cli.starting_server import WAIT_SECONDS_MAX
from forebay.client import Client
from forebay.testing.running_server import RunningServer

__all__ = ["server"]


def forebay(server: RunningServer, *words: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    return typed(*words, "--url", server.url, text=stdin)


def test_push_pop_and_tail(server: RunningServer) -> None:
    done = forebay(server, "push", "orders", '{"id": 7}')
    assert (done.returncode, done.stdout) == (0, "queued: seq 1, receipt log\n")
    assert forebay(server, "push", "orders", stdin='{"id": 8}\n\n{"id":9}\n').stdout == "pushed 2 messages\n"
    tail = forebay(server, "tail", "orders", "-n", "2", "-o", "json")
    assert [json.loads(line)["data"]["id"] for line in tail.stdout.splitlines()] == [8, 9]
    assert forebay(server, "pop", "orders@billing", "--batch", "2").stdout == '{"id": 7}\n{"id": 8}\n'
    (left,) = json.loads(forebay(server, "pop", "orders@billing", "--no-ack", "-o", "json").stdout)
    assert left["data"] == {"id": 9}
    assert forebay(server, "pop", "orders@billing").stdout == ""


def test_server_that_is_just_starting_is_waited_for(tmp_path: Path, server: RunningServer) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    forebay_here, url = f"{sys.executable} -m forebay", f"http://127.0.0.1:{port}"
    script = f"""
        {forebay_here} serve --port {port} --data-dir {tmp_path / "data"} >/dev/null 2>&1 &
        {forebay_here} push orders 1 --url {url}
        status=$?
        kill $! && wait $!
        exit $status
    """
    done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=False, timeout=120)
    assert (done.returncode, done.stdout) == (0, "queued: seq 1, receipt log\n"), done.stderr
    # Another one that runs is not on the way up, so nothing is waited for.
    began = time.monotonic()
    refused = subprocess.run(
        [sys.executable, "-m", "forebay", "queues", "--url", url], capture_output=True, text=True, check=False
    )
    assert (refused.returncode, time.monotonic() - began < WAIT_SECONDS_MAX / 2) == (1, True)
    assert "Start one with `forebay serve`" in refused.stderr
    assert "waiting" not in refused.stderr
    assert server.pid


def test_bytes_are_printed_as_base64(server: RunningServer) -> None:
    with Client(server.url) as client:
        client.push_many("raw", [b"\xff\0", b"\xff\0"])
    assert forebay(server, "pop", "raw").stdout == "/wA=\n"
    (shown,) = json.loads(forebay(server, "pop", "raw", "-o", "json").stdout)
    assert (shown["data"], shown["encoding"]) == ("/wA=", "base64")


def test_pop_says_why_there_is_nothing(server: RunningServer) -> None:
    assert forebay(server, "pop", "unknown@g").stderr == (
        "nothing: there is no queue 'unknown'; the first push makes it\n"
    )
    forebay(server, "push", "leased", stdin="1\n2\n")
    assert forebay(server, "pop", "leased@g", "--no-ack").stdout == "1\n"
    why = forebay(server, "pop", "leased@g").stderr
    assert re.fullmatch(r"nothing now: 2 wait for group 'g', 1 of them leased; some may come at \S+Z, in \d+ s\n", why)
    forebay(server, "pop", "leased", "--batch", "9")
    assert forebay(server, "pop", "leased").stderr == (
        "nothing: no message of 'leased' waits for the queue's own group\n"
    )


def test_leased_messages_are_finished_by_their_lease(server: RunningServer) -> None:
    forebay(server, "push", "slow", "1")
    told = forebay(server, "pop", "slow@g", "--no-ack").stderr
    lease = re.fullmatch(r"leased for 300 s, then delivered again. To finish: forebay ack (\S+)\n", told)
    assert lease is not None
    assert forebay(server, "ack", lease[1]).stdout == "acknowledged 1\n"
    again = forebay(server, "ack", lease[1])
    assert (again.returncode, "no such lease" in again.stderr) == (1, True)


def test_keyboard_is_told_that_it_is_read(server: RunningServer) -> None:
    keyboard, terminal = pty.openpty()
    try:
        os.write(keyboard, b"1\n2\n\x04")
        command = [sys.executable, "-m", "forebay", "push", "typed", "--url", server.url]
        done = subprocess.run(command, stdin=terminal, capture_output=True, text=True, check=False, timeout=60)
    finally:
        os.close(keyboard)
        os.close(terminal)
    assert (done.returncode, done.stdout) == (0, "pushed 2 messages\n")
    assert "reading one message per line from the keyboard; end with Ctrl-D" in done.stderr


def test_a_file_of_lines_is_pushed_and_a_bad_line_is_named(server: RunningServer, tmp_path: Path) -> None:
    file = tmp_path / "events.ndjson"
    file.write_text("".join(f'{{"n": {n}}}\n' for n in range(2500)))
    assert json.loads(forebay(server, "push", "events/p", "--file", str(file), "-o", "json").stdout) == {
        "pushed": 2500,
        "duplicates": 0,
    }
    file.write_text('{"n": 1}\n{"n": \n')
    done = forebay(server, "push", "events/p", "--file", str(file))
    assert done.returncode == 1
    assert "events.ndjson line 2 is not JSON" in done.stderr
    assert "Traceback" not in done.stderr
    assert forebay(server, "push", "words", "hello there", "--text").returncode == 0
    assert forebay(server, "pop", "words").stdout == '"hello there"\n'


def test_queues_and_groups_tell_what_waits(server: RunningServer) -> None:
    forebay(server, "push", "lagging", stdin="1\n2\n3\n")
    forebay(server, "pop", "lagging@slow")
    (queue,) = [q for q in json.loads(forebay(server, "queues", "-o", "json").stdout) if q["name"] == "lagging"]
    assert (queue["messages"]["total"], queue["messages"]["pending"]) == (3, 2)
    (group,) = [g for g in json.loads(forebay(server, "groups", "-o", "json").stdout) if g["name"] == "slow"]
    assert group["totalLag"] == 2
    shown = forebay(server, "queues")
    assert re.search(r"lagging .* for ever", shown.stdout)
    assert "forebay queues configure QUEUE completedRetentionSeconds=86400" in shown.stderr
    assert "slow" in forebay(server, "groups").stdout


def test_group_is_moved_and_what_that_skips_is_told_before(server: RunningServer) -> None:
    forebay(server, "push", "moved", stdin="1\n2\n3\n4\n")
    forebay(server, "pop", "moved@g")
    told = forebay(server, "groups", "seek", "moved@g", "--seq", "3", "--dry-run")
    assert (told.returncode, told.stderr) == (0, "")
    assert told.stdout == "group 'g' would go to seq 3 of 'moved': 1 skipped, 0 delivered again, 2 waiting\n"
    assert forebay(server, "pop", "moved@g").stdout == "2\n"
    done = json.loads(
        forebay(server, "groups", "seek", "moved@g", "--time", "2026-01-01T00:00:00Z", "-o", "json").stdout
    )
    assert (done["isDone"], done["fromSeq"], done["repeated"], done["skipped"]) == (True, 1, 2, 0)
    assert forebay(server, "pop", "moved@g", "--no-ack", "--batch", "2").stdout == "1\n2\n"
    leased = forebay(server, "groups", "seek", "moved@g", "--to-end")
    assert leased.stdout == "group 'g' goes to seq 5 of 'moved': 4 skipped, 0 delivered again, 0 waiting\n"
    assert "2 of its messages are leased" in leased.stderr
    assert forebay(server, "pop", "moved@g").stdout == ""
    assert "there was no such group" in forebay(server, "groups", "seek", "moved@other", "--to-end").stderr
    assert "no such partition" in forebay(server, "groups", "seek", "moved/nowhere@g", "--to-end").stderr
    for words, why in (
        ((), "exactly one of --seq, --time and --to-end"),
        (("--seq", "1", "--to-end"), "exactly one of --seq, --time and --to-end"),
        (("--time", "noon"), "2026-01-31T12:00:00Z"),
    ):
        refused = forebay(server, "groups", "seek", "moved@g", *words)
        assert (refused.returncode, why in refused.stderr) == (1, True)
    assert forebay(server, "groups", "seek", "unknown@g", "--to-end", "--dry-run").returncode == 1


def test_queue_is_made_changed_shown_and_deleted(server: RunningServer) -> None:
    made = forebay(
        server, "queues", "configure", "kept", "leaseTime=60", "deadLetterQueue=false", "--namespace", "shop"
    )
    assert (made.returncode, made.stderr) == (0, "")
    changed = forebay(server, "queues", "configure", "kept", "retryLimit=9", "-o", "json")
    answer = json.loads(changed.stdout)
    assert (answer["namespace"], answer["options"]["leaseTime"], answer["options"]["retryLimit"]) == ("shop", 60, 9)
    assert answer["options"]["deadLetterQueue"] is False
    forebay(server, "push", "kept/berlin", "1")
    shown = forebay(server, "queues", "show", "kept").stdout
    assert "kept: 1 messages, 1 bytes\n1 waiting, 0 leased, 0 dead; next seq 2\n" in shown
    assert re.search(r"leaseTime +60\b", shown)
    assert re.search(r"berlin +1 +1 ", shown)
    anew = json.loads(forebay(server, "queues", "configure", "kept", "retryLimit=2", "--reset", "-o", "json").stdout)
    assert (anew["options"]["leaseTime"], anew["options"]["retryLimit"], anew["namespace"]) == (300, 2, "shop")
    for words, why in (
        (("configure", "kept", "leaseTime=soon"), "Write OPTION=VALUE"),
        (("configure", "kept", "leaseTime"), "Write OPTION=VALUE"),
        (("configure", "kept", "leesTime=1"), "unknown"),
        (("delete", "unknown"), "there is no queue 'unknown'"),
        (("show", "unknown"), "unknown"),
    ):
        refused = forebay(server, "queues", *words)
        assert (refused.returncode, why in refused.stderr) == (1, True), refused.stderr
    assert forebay(server, "queues", "delete", "kept", stdin="n\n").returncode != 0
    assert forebay(server, "queues", "show", "kept").returncode == 0
    assert forebay(server, "queues", "delete", "kept", "--yes").stdout == "queue kept is deleted\n"
    assert forebay(server, "queues", "show", "kept").returncode == 1


def test_group_is_forgotten(server: RunningServer) -> None:
    forebay(server, "push", "remembered", "1")
    assert forebay(server, "pop", "remembered@g").stdout == "1\n"
    for words, why in (
        (("remembered",), "QUEUE@GROUP"),
        (("remembered/p@g",), "QUEUE@GROUP"),
        (("remembered@h",), "no group 'h'"),
    ):
        refused = forebay(server, "groups", "delete", *words, "--yes")
        assert (refused.returncode, why in refused.stderr) == (1, True), refused.stderr
    assert forebay(server, "groups", "delete", "remembered@g", "--yes").stdout == "group g is forgotten on remembered\n"
    assert forebay(server, "pop", "remembered@g").stdout == "1\n"


def test_maintenance_holds_pushes_and_pops(server: RunningServer) -> None:
    forebay(server, "push", "held", "1")
    try:
        assert "pop maintenance:  on" in forebay(server, "maintenance", "on", "--pop").stdout
        assert "push maintenance: off" in forebay(server, "maintenance", "show").stdout
        assert forebay(server, "pop", "held").stdout == ""
        both = json.loads(forebay(server, "maintenance", "on", "-o", "json").stdout)
        assert (both["maintenanceMode"], both["popMaintenanceMode"]) == (True, True)
        assert "receipt buffer" in forebay(server, "push", "held", "2").stdout
    finally:
        ended = forebay(server, "maintenance", "off")
    assert "push maintenance: off\npop maintenance:  off\n" in ended.stdout
    assert forebay(server, "pop", "held").stdout == "1\n"
    assert forebay(server, "pop", "held", "--wait", "30").stdout == "2\n"


def test_groups_that_list_do_so_when_they_are_named_alone(server: RunningServer) -> None:
    forebay(server, "push", "listed", "1")
    forebay(server, "pop", "listed@g")
    for command in ("queues", "groups"):
        for words in ((), ("list",), ("-o", "json"), ("list", "-output", "json")):
            done = forebay(server, command, *words)
            assert (done.returncode, "listed" in done.stdout) == (0, True), done.stderr
        explained = subprocess.run(
            [sys.executable, "-m", "forebay", command, "--help"], capture_output=True, text=True, check=True
        )
        assert "delete" in explained.stdout


def test_internal_queues_are_listed_when_asked_for(server: RunningServer) -> None:
    forebay(server, "push", ".export.hidden", stdin="1\n2\n")
    forebay(server, "pop", ".export.hidden@inner")
    for command in ("queues", "groups"):
        assert ".export.hidden" not in forebay(server, command).stdout
        assert ".export.hidden" in forebay(server, command, "--internal").stdout


def test_dead_letters_are_listed_replayed_and_purged(server: RunningServer) -> None:
    forebay(server, "push", "fragile", "1")
    for _ in range(2):
        (message,) = json.loads(forebay(server, "pop", "fragile", "--no-ack", "-o", "json").stdout)
        answer = {name: message[name] for name in ("transactionId", "partitionId", "leaseId")}
        body = json.dumps({**answer, "status": "dlq", "error": "too fragile"})
        subprocess.run(
            ["curl", "-sf", "-X", "POST", f"{server.url}/api/v1/ack", "-d", body], check=True, capture_output=True
        )
        listed = forebay(server, "dlq", "list", "--queue", "fragile")
        assert "too fragile" in listed.stdout
        assert "1 of 1 dead letters" in listed.stdout
        refused = forebay(server, "dlq", "replay")
        assert refused.returncode == 1
        assert "--all" in refused.stderr
        assert forebay(server, "dlq", "replay", "--queue", "fragile").stdout == (
            "replayed 1, each for the group in which it died\n"
        )
    assert forebay(server, "dlq", "purge", "--all").stdout == "purged 0\n"


def test_all_dead_letters_of_all_queues_are_replayed_for_their_group_or_for_all(server: RunningServer) -> None:
    queues = ["frail", "frailer", "frailest"]
    for words, told in (
        (("--all",), "replayed 6, each for the group in which it died\n"),
        (("--all", "--to-all-groups"), "replayed 6, for every group\n"),
    ):
        with Client(server.url) as client:
            for queue in queues:
                client.push_many(queue, ["a", "b"])
                client.pop(f"{queue}@other", batch=9, auto_ack=True)
                for message in client.pop(f"{queue}@g", batch=9):
                    client.ack(message, "dlq", error="too frail")
        assert "6 of 6 dead letters" in forebay(server, "dlq", "list").stdout
        assert forebay(server, "dlq", "replay", *words).stdout == told
        assert "0 of 0 dead letters" in forebay(server, "dlq", "list").stdout
        with Client(server.url) as client:
            for queue in queues:
                others = client.pop(f"{queue}@other", batch=9, auto_ack=True)
                assert [message.data for message in others] == (["a", "b"] if "--to-all-groups" in words else [])
                own = client.pop(f"{queue}@g", batch=9, auto_ack=True)
                assert [message.data for message in own] == ["a", "b"]


def test_a_server_that_is_not_there_is_named(server: RunningServer) -> None:
    command = [sys.executable, "-m", "forebay", "queues", "--url", "http://127.0.0.1:9"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 1
    assert "http://127.0.0.1:9" in done.stderr
    assert "Traceback" not in done.stderr
