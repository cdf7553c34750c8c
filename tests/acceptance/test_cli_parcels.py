"""`forebay parcels` and the part of `forebay flows` that is about dispatch, as a user types them, from any machine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fixtures.command_line import typed
from fixtures.running_stores import fresh
from fixtures.running_stores import module_server as server
from fixtures.waiting import wait_until
from forebay.client import Client, ParcelOutcome
from forebay.testing.running_server import RunningServer

__all__ = ["server"]


def forebay(server: RunningServer, *words: str, code: int = 0) -> str:
    """What a command prints, from a directory that knows nothing of the server."""
    done = typed(*words, "--url", server.url, folder="/")
    assert done.returncode == code, done.stderr or done.stdout
    return done.stdout if code == 0 else done.stderr


def shown(server: RunningServer, *words: str) -> Any:
    return json.loads(forebay(server, *words, "-o", "json"))


class Flow:
    def __init__(self, server: RunningServer, client: Client, folder: Path) -> None:
        self.name, self.queue, self.action_class = fresh("flow"), fresh("in"), fresh("class")
        self.client = client
        self.file = folder / "flow.yaml"
        self.file.write_text(
            f"name: {self.name}\n"
            f"source: {{queue: {self.queue}, parcelMessages: 2, parcelWaitSeconds: 0.05}}\n"
            f"steps:\n- {{action: geocode, actionClass: {self.action_class}, retry: {{maxAttempts: 1}}}}\n"
        )
        self.told = forebay(server, "flows", "define", str(self.file))

    def push(self, count: int) -> None:
        self.client.push_many(self.queue, range(count))
        wait_until(lambda: sum(one["messages"] for one in self.client.parcels(flow=self.name)) == count)

    def work(self, **outcome: Any) -> list[str]:
        lease = self.client.lease("worker-9", [self.action_class], wait=10)
        assert lease is not None
        outcomes = [ParcelOutcome(did=parcel.did, **{"state": "COMPLETE", **outcome}) for parcel in lease.parcels]
        self.client.complete(lease, outcomes)
        return [parcel.did for parcel in lease.parcels]


@pytest.fixture
def flow(server: RunningServer, client: Client, tmp_path: Path) -> Flow:
    return Flow(server, client, tmp_path)


def test_a_flow_is_defined_listed_shown_paused_stopped_and_resumed(server: RunningServer, flow: Flow) -> None:
    assert flow.told == f"{flow.name}: version 1, RUNNING\n"
    assert forebay(server, "flows", "define", str(flow.file)) == flow.told
    assert flow.name in forebay(server, "flows", "list")
    (listed,) = [one for one in shown(server, "flows", "list") if one["name"] == flow.name]
    assert (listed["kind"], listed["state"]) == ("dispatch", "RUNNING")
    assert forebay(server, "flows", "pause", flow.name) == f"{flow.name}: to be paused\n"
    assert shown(server, "flows", "show", flow.name)["state"] == "PAUSED"
    assert forebay(server, "flows", "stop", flow.name) == f"{flow.name}: stopped\n"
    assert shown(server, "flows", "show", flow.name)["state"] == "STOPPED"
    forebay(server, "flows", "resume", flow.name)
    page = forebay(server, "flows", "show", flow.name)
    assert "RUNNING" in page
    assert "actionClass" in page
    assert forebay(server, "flows", "forget", flow.name) == f"{flow.name}: forgotten\n"
    assert "no flow" in forebay(server, "flows", "show", flow.name, code=1)


def test_a_flow_is_named_on_the_command_line_or_in_its_file(server: RunningServer, flow: Flow, tmp_path: Path) -> None:
    name, file = fresh("flow"), tmp_path / "unnamed.json"
    file.write_text(json.dumps({"source": {"queue": "q"}, "steps": [{"action": "a", "actionClass": "c"}]}))
    assert forebay(server, "flows", "define", name, str(file)) == f"{name}: version 1, RUNNING\n"
    assert "name" in forebay(server, "flows", "define", name, str(flow.file), code=1), "the file has another name"
    file.write_text("[]")
    forebay(server, "flows", "define", name, str(file), code=1)
    forebay(server, "flows", "define", "a", "b", str(file), code=2)


def test_several_flows_come_from_one_file(server: RunningServer, tmp_path: Path) -> None:
    names = [fresh("flow"), fresh("flow")]
    steps = [{"action": "a", "actionClass": "c"}]
    flows = [{"name": name, "source": {"queue": "q"}, "steps": steps} for name in names]
    (tmp_path / "flows.json").write_text(json.dumps(flows))
    told = forebay(server, "flows", "define", str(tmp_path / "flows.json"))
    assert told.splitlines() == [f"{name}: version 1, RUNNING" for name in names]


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("", "is empty"),
        ("a: [", "neither YAML nor JSON"),
        ("source: {}", "has no name"),
        ("- 1", "has no name"),
        ("name: x\nsource: {queue: q}\nsteps: []", "steps"),
        ("name: x\nsource: {queue: q}\nsteps: [{action: a}]", "steps[0].actionClass"),
    ],
)
def test_a_file_that_is_no_flow_is_refused(server: RunningServer, tmp_path: Path, text: str, cause: str) -> None:
    file = tmp_path / "flow.yaml"
    file.write_text(text)
    assert cause in forebay(server, "flows", "define", str(file), code=1)
    assert "cannot be read" in forebay(server, "flows", "define", str(tmp_path / "none"), code=1)


def test_policies_are_set_listed_and_removed(server: RunningServer, tmp_path: Path) -> None:
    name = fresh("policy")
    file = tmp_path / "policy.yaml"
    file.write_text(f"name: {name}\nerrorText: connection refused\nmaxAttempts: 5\ndelaySeconds: 30\n")
    assert forebay(server, "flows", "policies", "set", str(file)) == f"{name}: priority 100\n"
    (policy,) = [one for one in shown(server, "flows", "policies", "list") if one["name"] == name]
    assert (policy["maxAttempts"], policy["delaySeconds"]) == (5, 30)
    assert "connection refused" in forebay(server, "flows", "policies", "list")
    assert forebay(server, "flows", "policies", "remove", name) == f"{name}: removed\n"
    assert name in forebay(server, "flows", "policies", "remove", name, code=1)


def test_parcels_are_listed_and_shown_with_their_history(server: RunningServer, flow: Flow) -> None:
    flow.push(4)
    dids = flow.work(rows_in=2, rows_out=1, filtered=1, annotations={"city": "Bern"})
    assert [one["did"] for one in shown(server, "parcels", "list", "--flow", flow.name)] == dids[::-1]
    page = forebay(server, "parcels", "list", "--flow", flow.name, "--state", "COMPLETE")
    assert all(did in page for did in dids)
    assert len(shown(server, "parcels", "list", "--flow", flow.name, "--limit", "1")) == 1
    assert shown(server, "parcels", "list", "--flow", flow.name, "--before", "2020-01-01") == []
    page = forebay(server, "parcels", "show", dids[0])
    assert f"flow        {flow.name}, version 1\n" in page
    assert "city=Bern" in page
    assert "worker-9" in page
    history = shown(server, "parcels", "show", dids[0])
    assert history["parcel"]["state"] == "COMPLETE"
    assert "no parcel" in forebay(server, "parcels", "show", "none", code=1)


def test_errors_are_resumed_replayed_and_cancelled(server: RunningServer, flow: Flow) -> None:
    flow.push(6)
    first, second, third = flow.work(state="ERROR", error="no such place\nat all")
    page = forebay(server, "parcels", "list", "--flow", flow.name, "--error", "such place")
    assert page.count("no such place") == 3
    assert "error: no such place" in forebay(server, "parcels", "show", first)
    assert forebay(server, "parcels", "resume", first) == "resumed 1\n"
    assert forebay(server, "parcels", "cancel", second) == "cancelled 1\n"
    assert forebay(server, "parcels", "resume", "--flow", flow.name, "--error", "place") == "resumed 1\n"
    assert flow.work() == [first, third]
    new = forebay(server, "parcels", "replay", second).removeprefix("replayed as ").strip()
    assert flow.work() == [new]
    states = {one["did"]: one["state"] for one in shown(server, "parcels", "list", "--flow", flow.name)}
    assert states == {first: "COMPLETE", second: "CANCELLED", third: "COMPLETE", new: "COMPLETE"}


def test_a_parcel_is_annotated(server: RunningServer, flow: Flow) -> None:
    flow.push(2)
    (did,) = [one["did"] for one in shown(server, "parcels", "list", "--flow", flow.name)]
    assert forebay(server, "parcels", "annotate", did, "b=2", "a=x=y") == "a=x=y b=2\n"
    assert "annotation" in forebay(server, "parcels", "annotate", did, "a=other", code=1)
    assert forebay(server, "parcels", "annotate", did, "a=other", "--overwrite") == "a=other b=2\n"
    assert "KEY=VALUE" in forebay(server, "parcels", "annotate", did, "no-sign", code=1)


def test_a_forgotten_choice_does_not_mean_everything(server: RunningServer) -> None:
    for word in ("resume", "cancel"):
        assert "no parcel was named" in forebay(server, "parcels", word, code=1)
    assert "is no time" in forebay(server, "parcels", "list", "--since", "soon", code=1)
    assert "BROKEN" in forebay(server, "parcels", "list", "--state", "BROKEN", code=1)
