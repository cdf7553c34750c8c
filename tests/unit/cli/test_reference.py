"""The CLI reference is what the commands say."""

from __future__ import annotations

from pathlib import Path

from forebay.cli.app import COMMANDS
from forebay.cli.output import ExitCode
from forebay.cli.reference import EXIT_CODES, reference

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "cli.md"


def test_page_on_disk_is_the_generated_text() -> None:
    assert PAGE.read_text(encoding="utf-8") == reference(), (
        "regenerate it: python -m forebay.cli.reference > docs/reference/cli.md"
    )


def test_page_has_every_command_and_every_exit_code() -> None:
    headings = {line for line in reference().splitlines() if line.startswith("### ")}
    assert {f"### `forebay {command.name}`" for command in COMMANDS} <= headings
    assert {"### `forebay queues configure`", "### `forebay exports dead purge`"} <= headings
    assert EXIT_CODES.keys() == set(ExitCode)


def test_settings_are_left_to_their_own_page() -> None:
    assert "--log-segment-size" not in reference()
    assert "And a flag for every [setting](settings.md)" in reference()
