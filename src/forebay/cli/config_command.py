"""`forebay config`: is this settings file right, and what is in effect?

`check` judges one file by itself, whatever the environment of the moment says, so that it answers the same in a build
as on the machine that runs Forebay. `show` answers for here and now: file, environment, profile and flags together.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated

import typer

from forebay.cli import output
from forebay.cli.output import ExitCode, Format, OutputOption
from forebay.cli.settings_flags import with_settings
from forebay.config.listing import listed
from forebay.config.load import Loaded, count_in_file, load
from forebay.config.masking import masked
from forebay.config.units import format_size
from forebay.errors import SettingFault, SettingsRefused
from forebay.sendqueue.sizing import memory_limit_bytes, share_bytes

app = typer.Typer(help="Check a settings file; show the settings in effect and where each came from.")


@app.command()
def check(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The YAML file to check.")],
    output_format: OutputOption = Format.TABLE,
) -> None:
    """Check a settings file and list all its faults. Exits with 1 if there are any."""
    try:
        loaded = load(file=file, file_named_by="argument FILE")
    except SettingsRefused as refused:
        _show_faults(file, refused.faults, output_format)
        raise typer.Exit(ExitCode.REFUSED) from refused
    if output_format is Format.JSON:
        output.show_json({"ok": True, "faults": []})
    else:
        output.say(f"{file}: ok, {_counted(count_in_file(loaded), 'setting')}")


@app.command()
@with_settings
def show(loaded: Loaded, output_format: OutputOption = Format.TABLE) -> None:
    """Show every setting in effect, destinations and exports too, and where each value came from.

    The weakest first: defaults, profile, YAML file, environment, flags.
    """
    shown: dict[str, tuple[object, object]] = {
        key: (masked(value) if isinstance(value, str) else value, loaded.origins[key])
        for key, value in loaded.values().items()
    }
    shown |= {key: (value, origin) for key, value, origin in listed(loaded.file, loaded.destinations, loaded.exports)}
    shown |= {key: (value, origin) for key, value, origin in _shares_of_memory(loaded)}
    if output_format is Format.JSON:
        output.show_json({key: {"value": value, "origin": str(origin)} for key, (value, origin) in shown.items()})
    else:
        rows = [(key, _as_yaml(value), origin) for key, (value, origin) in shown.items()]
        output.show_table(("key", "value", "origin"), rows)


def _shares_of_memory(loaded: Loaded) -> Iterator[tuple[str, object, str]]:
    """`max_bytes` of send queues where `memory_percent` is in force: what it comes to here."""
    base = loaded.settings.exporter.queue
    queues = {"exporter.queue": base}
    for one in loaded.destinations:
        is_as_base = one.queue.is_share_of_memory == base.is_share_of_memory
        if not is_as_base or one.queue.memory_percent != base.memory_percent:
            queues[f"destinations.{one.name}.queue"] = one.queue
    for section, queue in queues.items():
        if queue.is_share_of_memory:
            origin = f"memory_percent {queue.memory_percent:g} of {format_size(memory_limit_bytes())}"
            yield f"{section}.max_bytes", format_size(share_bytes(queue.memory_percent)), origin


def _show_faults(file: Path, faults: Sequence[SettingFault], output_format: Format) -> None:
    if output_format is Format.JSON:
        listed = [
            {"key": fault.key, "value": fault.value, "allowed": fault.allowed, "origin": fault.origin}
            for fault in faults
        ]
        output.show_json({"ok": False, "faults": listed})
        return
    output.say(f"{file}: {_counted(len(faults), 'fault')}")
    for fault in faults:
        output.say(f"  {fault}")


def _as_yaml(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"
