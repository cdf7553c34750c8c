"""`forebay config`, `--version` and `--help` as a user meets them: a started process, its words and its exit code."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import forebay

FIVE_FAULTS = """\
profile: fast
log:
  segment_size: 5 apples
  segmnt_size: 1Gi
  roll_daily: maybe
colour: blue
"""


def start(*words: str, cwd: Path | None = None, **environ: str) -> subprocess.CompletedProcess[str]:
    """Run the command in an environment without any setting but those given."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("FOREBAY_")}
    return subprocess.run(
        [sys.executable, "-m", "forebay", *words],
        cwd=cwd,
        env=clean | environ,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_version_is_printed_without_loading_what_commands_need() -> None:
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "forebay", "--version"], capture_output=True, text=True, check=True
    )
    assert done.stdout == f"forebay {forebay.__version__}\n"
    loaded = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert "forebay.cli.app" in loaded
    assert loaded.isdisjoint({"pydantic", "pyarrow", "rich", "yaml", "forebay.config"})


def test_help_says_what_it_is_and_what_to_try_without_loading_commands() -> None:
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "forebay", "-h"], capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith("Forebay: a durable, tiered queue")
    assert "forebay config check forebay.yaml" in done.stdout
    loaded = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert loaded.isdisjoint({"pydantic", "pyarrow", "rich", "forebay.config", "forebay.cli.config_command"})


def test_right_file_is_ok_with_the_number_of_its_settings(tmp_path: Path) -> None:
    (tmp_path / "forebay.yaml").write_text("profile: minimal\nlog:\n  segment_size: 32Mi\n")
    done = start("config", "check", "forebay.yaml", cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "forebay.yaml: ok, 2 settings\n", "")


def test_check_judges_the_file_whatever_the_environment_says(tmp_path: Path) -> None:
    (tmp_path / "forebay.yaml").write_text("profile: minimal\n")
    done = start("config", "check", "forebay.yaml", cwd=tmp_path, FOREBAY_PROFILE="nonsense")
    assert (done.returncode, done.stdout) == (0, "forebay.yaml: ok, 1 setting\n")


def test_all_faults_are_listed_one_per_line(tmp_path: Path) -> None:
    (tmp_path / "forebay.yaml").write_text(FIVE_FAULTS)
    done = start("config", "check", "forebay.yaml", cwd=tmp_path)
    heading, *lines = done.stdout.splitlines()
    assert (done.returncode, done.stderr, heading) == (1, "", "forebay.yaml: 5 faults")
    assert [line.split(";")[0] for line in lines] == [
        "  profile: 'fast' is refused (forebay.yaml line 1)",
        "  log.segment_size: '5 apples' is refused (forebay.yaml line 3)",
        "  log.segmnt_size: '1Gi' is refused (forebay.yaml line 4)",
        "  log.roll_daily: 'maybe' is refused (forebay.yaml line 5)",
        "  colour: 'blue' is refused (forebay.yaml line 6)",
    ]
    assert all("; allowed: " in line for line in lines)


def test_faults_as_json_carry_key_value_allowed_and_origin(tmp_path: Path) -> None:
    (tmp_path / "forebay.yaml").write_text(FIVE_FAULTS)
    done = start("config", "check", "forebay.yaml", "-o", "json", cwd=tmp_path)
    answer = json.loads(done.stdout)
    assert (done.returncode, answer["ok"], len(answer["faults"])) == (1, False, 5)
    assert answer["faults"][3] == {
        "key": "log.roll_daily",
        "value": "maybe",
        "allowed": "true or false",
        "origin": "forebay.yaml line 5",
    }


def test_right_file_as_json_is_ok_without_faults(tmp_path: Path) -> None:
    (tmp_path / "forebay.yaml").write_text("")
    done = start("config", "check", "forebay.yaml", "-o", "json", cwd=tmp_path)
    assert (done.returncode, json.loads(done.stdout)) == (0, {"ok": True, "faults": []})


def test_show_gives_every_key_its_value_and_origin(tmp_path: Path) -> None:
    (tmp_path / "forebay.yaml").write_text("profile: performance\nlog:\n  segment_size: 8Mi\n")
    done = start(
        *("config", "show", "-c", "forebay.yaml", "-log-roll-daily=false", "-data-dir", "there"),
        cwd=tmp_path,
        FOREBAY_LOG_READ_CHUNK="2Mi",
    )
    assert (done.returncode, done.stderr) == (0, "")
    heads, _, *rows = [line.split(maxsplit=2) for line in done.stdout.splitlines()]
    assert heads == ["key", "value", "origin"]
    assert ["spark.master", "local[*]", "default"] in rows
    assert [row for row in rows if row[0] in ("profile", "data_dir") or row[0].startswith("log.")] == [
        ["profile", "performance", "forebay.yaml line 1"],
        ["data_dir", "there", "flag --data-dir"],
        ["log.segment_size", "8Mi", "forebay.yaml line 3"],
        ["log.roll_daily", "false", "flag --log-roll-daily"],
        ["log.read_chunk", "2Mi", "environment FOREBAY_LOG_READ_CHUNK"],
        ["log.compression", "never", "profile performance"],
    ]


def test_one_dash_means_the_same_as_two_and_json_the_same_as_the_table() -> None:
    words = ["-profile", "minimal", "-output=json", "-no-log-roll-daily"]
    one = start("config", "show", *words)
    two = start("config", "show", *("-" + word if word.startswith("-") else word for word in words))
    assert (one.returncode, one.stdout) == (0, two.stdout)
    shown = json.loads(one.stdout)
    assert shown["log.segment_size"] == {"value": "64Mi", "origin": "profile minimal"}
    assert shown["log.roll_daily"] == {"value": False, "origin": "flag --log-roll-daily"}


def test_wrong_flags_environment_and_file_are_refused_together() -> None:
    done = start("config", "show", "-c", "nowhere.yaml", "--log-segment-size", "5", FOREBAY_LOG_ROLL_DALY="true")
    assert (done.returncode, done.stdout) == (1, "")
    heading, *lines = done.stderr.splitlines()
    assert heading == "forebay: error: 3 faults in the settings:"
    assert "config: 'nowhere.yaml' is refused (flag --config)" in lines[0]
    assert "did you mean FOREBAY_LOG_ROLL_DAILY?" in lines[1]
    assert "log.segment_size: '5' is refused (flag --log-segment-size)" in lines[2]


def test_unknown_option_is_a_usage_error_that_names_the_nearest() -> None:
    done = start("config", "show", "-profil", "minimal")
    assert (done.returncode, done.stdout) == (2, "")
    assert "--profile" in done.stderr
    assert "Help: forebay config show --help" in done.stderr


def test_reader_that_goes_away_ends_the_command_quietly() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [sys.executable, "-m", "forebay", "config", "show"], stdout=writer, stderr=subprocess.PIPE, check=False
    )
    os.close(writer)
    assert (done.returncode, done.stderr) == (141, b"")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_full_disk_behind_stdout_is_said() -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "forebay", "--version"], stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert (done.returncode, done.stderr) == (
        1,
        "forebay: error: cannot write the output: No space left on device\n",
    )


def test_value_that_the_encoding_lacks_is_shown_escaped() -> None:
    done = start("config", "show", "--data-dir", "übung", PYTHONIOENCODING="ascii", PYTHONUTF8="0")
    assert done.returncode == 0
    assert r"\xfcbung" in done.stdout


def test_closed_stdout_ends_nothing() -> None:
    script = f'exec "{sys.executable}" -m forebay config show >&-'
    done = subprocess.run(["sh", "-c", script], stderr=subprocess.PIPE, check=False)
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.parametrize("words", [[], ["--output", "json"]])
@pytest.mark.parametrize("url", ["postgresql://me:secret@db/x", "postgresql://db/x?user=me&password=secret"])
def test_show_shows_no_password(url: str, words: list[str]) -> None:
    command = [sys.executable, "-m", "forebay", "config", "show", "--server-store", url, *words]
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert "db/x" in shown
    assert "secret" not in shown
