"""Settings files and flags of metrics-governor's send queue are taken as they are, and mean what they meant."""

from __future__ import annotations

from pathlib import Path

import pytest

from forebay.assemble_export import _limits
from forebay.config.load import Loaded, load
from forebay.errors import SettingsRefused
from forebay.sendqueue.sizing import memory_limit_bytes

MEMORY = """\
exporter:
  queue:
    mode: memory
    max_size: 10000
    max_bytes: 256Mi
"""
DISK = """\
exporter:
  queue:
    mode: disk
    path: ./queue
    max_size: 50000
    max_bytes: 1Gi
    inmemory_blocks: 2048
    chunk_size: 512Mi
"""
HYBRID = """\
exporter:
  queue:
    mode: hybrid
    max_size: 10000
    max_bytes: 512Mi
    hybrid_spillover_pct: 80
    path: ./queue
"""
REFERENCE = """\
exporter:
  queue:
    type: disk
    enabled: true
    path: ./queue
    max_size: 10000
    max_bytes: 1Gi
    full_behavior: drop_oldest
    inmemory_blocks: 2048
    chunk_size: 512Mi
    meta_sync_interval: 1s
    write_buffer_size: 256Ki
    compression: snappy
    always_queue: true
    workers: 0
    backoff:
      enabled: true
      multiplier: 2.0
    circuit_breaker:
      enabled: true
      threshold: 5
      reset_timeout: 30s
    pipeline_split:
      enabled: false
      preparer_count: 0
      sender_count: 0
      channel_size: 256
    adaptive_workers:
      enabled: false
      min_workers: 1
      max_workers: 0
"""
EXPECTED: dict[str, dict[str, object]] = {
    MEMORY: {"mode": "memory", "max_size": 10_000, "max_bytes": "256Mi"},
    DISK: {
        "mode": "disk",
        "path": "./queue",
        "max_size": 50_000,
        "max_bytes": "1Gi",
        "inmemory_blocks": 2048,
        "chunk_size": "512Mi",
    },
    HYBRID: {
        "mode": "hybrid",
        "max_size": 10_000,
        "max_bytes": "512Mi",
        "hybrid_spillover_pct": 80,
        "path": "./queue",
    },
    REFERENCE: {
        "mode": "disk",
        "enabled": True,
        "path": "./queue",
        "max_size": 10_000,
        "max_bytes": "1Gi",
        "full_behavior": "drop_oldest",
        "inmemory_blocks": 2048,
        "chunk_size": "512Mi",
        "meta_sync_interval": "1s",
        "write_buffer_size": "256Ki",
        "compression": "snappy",
        "always_queue": True,
        "workers": 0,
        "backoff.enabled": True,
        "backoff.multiplier": 2.0,
        "circuit_breaker.enabled": True,
        "circuit_breaker.threshold": 5,
        "circuit_breaker.reset_timeout": "30s",
        "pipeline_split.enabled": False,
        "pipeline_split.preparer_count": 0,
        "pipeline_split.sender_count": 0,
        "pipeline_split.channel_size": 256,
        "adaptive_workers.enabled": False,
        "adaptive_workers.min_workers": 1,
        "adaptive_workers.max_workers": 0,
    },
}


def loaded(text: str, folder: Path) -> Loaded:
    file = folder / "forebay.yaml"
    file.write_text(text)
    return load(file=file)


@pytest.mark.parametrize("text", EXPECTED, ids=["memory", "disk", "hybrid", "reference"])
def test_a_file_is_taken_as_it_is_and_every_key_of_it_counts(text: str, tmp_path: Path) -> None:
    found = loaded(text, tmp_path)
    values = found.values()
    expected = {f"exporter.queue.{key}": value for key, value in EXPECTED[text].items()}
    assert {key: values[key] for key in expected} == expected
    from_file = {key for key, origin in found.origins.items() if "forebay.yaml line" in str(origin)}
    assert from_file == set(expected)


def test_the_defaults_are_those_of_the_reference() -> None:
    values = load().values()
    other = {"mode": "memory", "max_bytes": "256Mi", "path": ""}
    for key, value in (EXPECTED[REFERENCE] | other).items():
        assert values[f"exporter.queue.{key}"] == value, key


@pytest.mark.parametrize(
    ("profile", "mode"), [("minimal", "memory"), ("balanced", "memory"), ("performance", "hybrid")]
)
def test_a_profile_has_its_mode(profile: str, mode: str) -> None:
    assert load(flags={"profile": profile}).settings.exporter.queue.mode == mode


def test_the_limit_of_all_sends_may_stand_beside_the_others_of_the_pipeline(tmp_path: Path) -> None:
    written = "exporter: {queue: {max_concurrent_sends: 2, global_send_limit: 64}}"
    found = loaded(written, tmp_path).values()
    assert (found["exporter.queue.max_concurrent_sends"], found["exporter.global_send_limit"]) == (2, 64)
    assert load(flags={"--queue-global-send-limit": "32"}).values()["exporter.global_send_limit"] == 32


TENTH = int(0.10 * memory_limit_bytes())
DEFAULT = 256 << 20


@pytest.mark.parametrize(
    ("flags", "bytes_max"),
    [
        ({}, DEFAULT),
        ({"--queue-memory-percent": "0.10"}, TENTH),
        ({"--queue-memory-percent": "0.10", "--queue-max-bytes": "1Gi"}, 1 << 30),
        ({"--queue-memory-percent": "0.10", "--queue-mode": "hybrid"}, TENTH),
        ({"--queue-memory-percent": "0.10", "--queue-mode": "disk"}, DEFAULT),
        ({"--queue-memory-percent": "0.10", "profile": "minimal"}, TENTH),
        ({"profile": "minimal"}, 64 << 20),
    ],
)
def test_a_share_of_memory_is_the_limit_where_none_is_written_and_never_of_a_disk(
    flags: dict[str, object], bytes_max: int
) -> None:
    assert _limits(load(flags=flags).settings.exporter.queue).bytes_max == bytes_max


@pytest.mark.parametrize(
    ("base", "own", "bytes_max"),
    [
        ("memory_percent: 0.10", "max_size: 5", TENTH),
        ("memory_percent: 0.10", "max_bytes: 1Gi", 1 << 30),
        ("memory_percent: 0.10", "mode: disk", DEFAULT),
        ("memory_percent: 0.10, mode: disk", "mode: memory", TENTH),
        ("max_bytes: 1Gi", "memory_percent: 0.10", TENTH),
        ("max_bytes: 1Gi, memory_percent: 0.20", "max_size: 5", 1 << 30),
        ("max_size: 5", "memory_percent: 0.10, max_bytes: 1Gi", 1 << 30),
    ],
)
def test_the_limit_that_stands_with_a_destination_is_nearer(
    base: str, own: str, bytes_max: int, tmp_path: Path
) -> None:
    written = f"exporter: {{queue: {{{base}}}}}\n"
    written += f"destinations: [{{name: d, type: http, url: 'http://d', queue: {{{own}}}}}]\n"
    [destination] = loaded(written, tmp_path).destinations
    assert _limits(destination.queue).bytes_max == bytes_max


def test_memory_is_limited_by_the_process_own_cgroup_and_those_above_it(tmp_path: Path) -> None:
    membership = tmp_path / "cgroup"
    membership.write_text("0::/system.slice/forebay.service\n")
    below = tmp_path / "fs" / "system.slice" / "forebay.service"
    below.mkdir(parents=True)
    (below / "memory.max").write_text("max\n")
    (below.parent / "memory.max").write_text("400000000\n")
    assert memory_limit_bytes(tmp_path / "fs", membership) == 400_000_000
    (below / "memory.max").write_text("300000000\n")
    assert memory_limit_bytes(tmp_path / "fs", membership) == 300_000_000


def test_memory_is_limited_by_a_cgroup_of_version_1(tmp_path: Path) -> None:
    membership = tmp_path / "cgroup"
    membership.write_text("9:cpu,cpuacct:/x\n7:memory:/docker/abc\n")
    below = tmp_path / "fs" / "memory" / "docker" / "abc"
    below.mkdir(parents=True)
    (below / "memory.limit_in_bytes").write_text("300000000\n")
    (below.parents[1] / "memory.limit_in_bytes").write_text("9223372036854771712\n")
    assert memory_limit_bytes(tmp_path / "fs", membership) == 300_000_000


@pytest.mark.parametrize("to", ["destination:nowhere", "nowhere", "queue:", ""])
def test_a_receiver_that_leads_nowhere_is_a_fault_of_its_line(to: str, tmp_path: Path) -> None:
    text = f'receivers:\n  otlp_http:\n    listen: "127.0.0.1:4318"\n    to: "{to}"\n'
    with pytest.raises(SettingsRefused) as refused:
        loaded(text, tmp_path)
    [fault] = refused.value.faults
    assert fault.key == "receivers.otlp_http.to"
    if to:
        assert fault.origin.endswith("forebay.yaml line 4")


def test_mode_and_type_that_differ_are_a_fault_and_both_alike_are_none(tmp_path: Path) -> None:
    queue = "{mode: memory, type: disk}"
    for written in (f"exporter: {{queue: {queue}}}", f"destinations: [{{{HTTP}, queue: {queue}}}]"):
        with pytest.raises(SettingsRefused, match="mode") as refused:
            loaded(written, tmp_path)
        [fault] = refused.value.faults
        assert (fault.key.rpartition(".")[2], fault.value) == ("type", "disk")
        assert fault.origin.endswith("forebay.yaml line 1")
        found = loaded(written.replace("type: disk", "type: memory"), tmp_path)
        assert found.settings.exporter.queue.mode == "memory"


def test_flags_that_name_two_modes_are_a_fault() -> None:
    with pytest.raises(SettingsRefused) as refused:
        load(flags={"--queue-mode": "hybrid", "--queue-type": "disk"})
    [fault] = refused.value.faults
    assert fault.allowed == "one value for exporter.queue.mode: flag --queue-mode has another one"
    assert load(flags={"--queue-mode": "disk", "--queue-type": "disk"}).settings.exporter.queue.mode == "disk"
    with pytest.raises(SettingsRefused):
        load(flags={"exporter.queue.mode": "memory", "--queue-type": "disk"})


def test_a_type_in_a_stronger_layer_overrides_a_mode(tmp_path: Path) -> None:
    file = tmp_path / "forebay.yaml"
    file.write_text("exporter: {queue: {mode: memory}}")
    assert load(file=file, flags={"--queue-type": "disk"}).settings.exporter.queue.mode == "disk"


HTTP = "name: d, type: http, url: 'http://d'"
