"""What is in `deploy/` fits the code: its commands, settings, routes, ports, and how long a stop takes."""

from __future__ import annotations

import configparser
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from forebay.api.routes import API_ROUTES
from forebay.api.routing import Scope
from forebay.cli import app as cli
from forebay.config.keys import KEYS
from forebay.config.load import load
from forebay.config.model import Settings
from forebay.config.units import parse_duration

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
UNITS = sorted((DEPLOY / "systemd").glob("*.service"))
MANIFESTS = sorted((DEPLOY / "kubernetes").glob("*.yaml"))
DOCKERFILE = (DEPLOY / "docker" / "Dockerfile").read_text()
COMPOSE = yaml.safe_load((DEPLOY / "docker" / "compose.yaml").read_text())
DEFAULT_PORT = Settings().server.port
# Closing the store comes on top, and whoever stops it must not be the one that is too early.
CLOSING = timedelta(seconds=15)
BESIDE_SETTINGS = {"FOREBAY_CONFIG", "FOREBAY_URL", "FOREBAY_API_KEY", "FOREBAY_ENCRYPTION_KEY"}


class Unit(configparser.RawConfigParser):
    """systemd's files repeat keys, and care for case."""

    def __init__(self, path: Path) -> None:
        super().__init__(strict=False, comment_prefixes=("#",), interpolation=None)
        self.optionxform = str  # type: ignore[assignment,method-assign]
        self.read_string(path.read_text())


def resources() -> Iterator[dict[str, Any]]:
    for path in MANIFESTS:
        yield from (document for document in yaml.safe_load_all(path.read_text()) if document)


def of_kind(kind: str) -> list[dict[str, Any]]:
    return [resource for resource in resources() if resource["kind"] == kind]


def stop_takes(settings: Settings) -> timedelta:
    server = settings.server
    return server.stop_delay + server.stop_time + settings.exporter.queue.drain_timeout


def settings_of(text: str, tmp_path: Path) -> Settings:
    path = tmp_path / "forebay.yaml"
    path.write_text(text)
    return load(file=path, environ={}, flags={}).settings


def assert_is_command(words: list[str]) -> None:
    assert cli.run([*words, "--help"]) == 0, words


def test_every_command_is_one_of_forebay(capsys: pytest.CaptureFixture[str]) -> None:
    starts = [shlex.split(Unit(unit)["Service"]["ExecStart"]) for unit in UNITS]
    assert len(starts) == 2
    for program, *words in starts:
        assert Path(program).name == "forebay"
        assert_is_command(words)
    assert re.search(r'^ENTRYPOINT \["forebay"\]$', DOCKERFILE, re.MULTILINE)
    assert_is_command(["serve"])
    for name in ("server", "worker"):
        assert_is_command(COMPOSE["services"][name]["command"])
    pods = [resource["spec"]["template"]["spec"] for resource in of_kind("StatefulSet")]
    assert len(pods) == 2
    for container in (container for pod in pods for container in pod["containers"]):
        assert "command" not in container  # the image's entry point
        assert_is_command(container["args"])
    capsys.readouterr()


@pytest.mark.parametrize("path", sorted(file for file in DEPLOY.rglob("*") if file.is_file()), ids=lambda p: p.name)
def test_every_variable_is_one_that_is_read(path: Path) -> None:
    known = {key.environment for key in KEYS.values()} | BESIDE_SETTINGS
    assert set(re.findall(r"\bFOREBAY_[A-Z0-9_]+", path.read_text())) <= known


def test_the_first_key_is_made_where_no_server_runs_yet() -> None:
    lines = [
        line
        for path in sorted(file for file in DEPLOY.rglob("*") if file.is_file())
        for line in path.read_text().replace("\\\n#", " ").splitlines()
        if "keys create" in line
    ]
    assert len(lines) == 2
    assert all(" -c " in line or " --store " in line for line in lines)


def test_settings_are_accepted_and_a_stop_has_the_time_that_they_give_it(tmp_path: Path) -> None:
    for unit in UNITS:
        given = timedelta(seconds=int(Unit(unit)["Service"]["TimeoutStopSec"]))
        assert given >= stop_takes(Settings()) + CLOSING, unit.name
    composed = settings_of((DEPLOY / "docker" / "forebay.yaml").read_text(), tmp_path)
    for name in ("server", "worker"):
        assert parse_duration(COMPOSE["services"][name]["stop_grace_period"]) >= stop_takes(composed) + CLOSING
    (config,) = of_kind("ConfigMap")
    settings = settings_of(config["data"]["forebay.yaml"], tmp_path)
    assert settings.server.stop_delay > timedelta(0), "a stopping server has to be seen as not ready"
    for resource in of_kind("StatefulSet"):
        pod = resource["spec"]["template"]["spec"]
        assert timedelta(seconds=pod["terminationGracePeriodSeconds"]) >= stop_takes(settings) + CLOSING
        for container in pod["containers"]:
            if ready := container.get("readinessProbe"):
                noticed = timedelta(seconds=ready["periodSeconds"] * ready["failureThreshold"])
                assert noticed < settings.server.stop_delay


def test_probes_ask_routes_that_need_no_key_on_the_port_that_is_served() -> None:
    is_open = {route.path for route in API_ROUTES if route.method == "GET" and route.scope is Scope.OPEN}
    (server,) = [s for s in of_kind("StatefulSet") if s["metadata"]["name"] == "forebay"]
    (container,) = server["spec"]["template"]["spec"]["containers"]
    assert container["ports"] == [{"name": "http", "containerPort": DEFAULT_PORT}]
    probes = {kind: container[f"{kind}Probe"]["httpGet"] for kind in ("liveness", "readiness")}
    assert probes == {kind: {"path": path, "port": "http"} for kind, path in
                      (("liveness", "/healthz"), ("readiness", "/readyz"))}  # fmt: skip
    annotations = server["spec"]["template"]["metadata"]["annotations"]
    assert annotations["prometheus.io/port"] == str(DEFAULT_PORT)
    asked = {probe["path"] for probe in probes.values()} | {annotations["prometheus.io/path"]}
    (checked,) = re.findall(rf"http://127\.0\.0\.1:{DEFAULT_PORT}(/\w+)", DOCKERFILE)
    assert asked | {checked} <= is_open
    assert f"EXPOSE {DEFAULT_PORT}\n" in DOCKERFILE
    assert COMPOSE["services"]["server"]["ports"] == [f"{DEFAULT_PORT}:{DEFAULT_PORT}"]
    for service in of_kind("Service"):
        assert service["spec"]["ports"] == [{"name": "http", "port": DEFAULT_PORT, "targetPort": "http"}]


def test_selectors_find_pods_and_mounts_find_volumes() -> None:
    pods = {}
    services = {service["metadata"]["name"] for service in of_kind("Service")}
    configs = {config["metadata"]["name"] for config in of_kind("ConfigMap")}
    for resource in of_kind("StatefulSet"):
        spec, template = resource["spec"], resource["spec"]["template"]
        pods[resource["metadata"]["name"]] = template["metadata"]["labels"]
        assert spec["selector"]["matchLabels"].items() <= template["metadata"]["labels"].items()
        assert spec["serviceName"] in services
        volumes = {volume["name"] for volume in template["spec"]["volumes"]}
        volumes |= {claim["metadata"]["name"] for claim in spec["volumeClaimTemplates"]}
        for volume in template["spec"]["volumes"]:
            assert volume.get("configMap", {}).get("name") in {None, *configs}
        for container in template["spec"]["containers"]:
            mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
            assert mounts.keys() == volumes
            assert f"FOREBAY_DATA_DIR={mounts['data']} " in DOCKERFILE.replace("\\", "")
            assert container["securityContext"]["allowPrivilegeEscalation"] is False
        assert f"USER {template['spec']['securityContext']['runAsUser']}:" in DOCKERFILE
    budgets = of_kind("PodDisruptionBudget")
    selectors = [budget["spec"]["selector"]["matchLabels"] for budget in budgets]
    selectors += [service["spec"]["selector"] for service in of_kind("Service")]
    assert len(budgets) == 1
    for selector in selectors:
        assert [name for name, labels in pods.items() if selector.items() <= labels.items()] == ["forebay"]


def test_the_image_is_built_from_files_that_are_there_and_are_sent() -> None:
    ignored = (DEPLOY / "docker" / "Dockerfile.dockerignore").read_text().splitlines()
    copied = [
        word for words in re.findall(r"^COPY (?!--)(.*) \S+$", DOCKERFILE, re.MULTILINE) for word in words.split()
    ]
    assert copied == ["requirements.lock", "pyproject.toml", "README.md", "LICENSE", "src"]
    assert {f"!{name}" for name in copied} <= set(ignored)
    assert all((ROOT / name).exists() for name in copied)


def test_units_are_hardened_and_systemd_understands_them(tmp_path: Path) -> None:
    for unit in UNITS:
        service = Unit(unit)["Service"]
        for switch in ("NoNewPrivileges", "PrivateTmp", "PrivateDevices", "ProtectHome", "RestrictSUIDSGID"):
            assert service[switch] == "yes", f"{unit.name}: {switch}"
        assert (service["ProtectSystem"], service["CapabilityBoundingSet"]) == ("strict", "")
        assert (service["KillSignal"], service["User"]) == ("SIGTERM", "forebay")
        state = service["StateDirectory"]
        assert f"Environment=FOREBAY_DATA_DIR=/var/lib/{state}\n" in unit.read_text()
        # The program of the unit is not installed here.
        (tmp_path / unit.name).write_text(unit.read_text().replace("/opt/forebay/bin/forebay", "/bin/true"))
    # Of systemd's machines only; what is above holds anywhere.
    if analyze := shutil.which("systemd-analyze"):
        for unit in UNITS:
            command = [analyze, "verify", "--man=no", str(tmp_path / unit.name)]
            done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
            assert (done.returncode, [line for line in done.stderr.splitlines() if unit.name in line]) == (0, [])
