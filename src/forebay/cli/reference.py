"""Writes the page `docs/reference/cli.md` from the commands themselves.

    python -m forebay.cli.reference > docs/reference/cli.md

A test compares the file with this text, so the reference cannot drift from the commands.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import Any, get_args

from typer.core import TyperGroup

from forebay.cli.app import COMMANDS, load_command
from forebay.cli.listing import ListingGroup
from forebay.cli.output import ExitCode
from forebay.config.keys import KEYS

OPENING = """# Command line

<!-- Generated from the commands by `python -m forebay.cli.reference`. Change the commands, not this file. -->

`forebay COMMAND --help` says the same in a terminal. Long options work with one dash or two. Commands that talk to a
server take its address from `--url` or `FOREBAY_URL` and a key from `--api-key` or `FOREBAY_API_KEY`. Commands that
read settings take a flag for each of them: see [Settings](settings.md).
"""
EXIT_CODES = {
    ExitCode.DONE: "It is done.",
    ExitCode.REFUSED: "It was refused, and the message says why and what to do.",
    ExitCode.USAGE: "The command line is wrong.",
    ExitCode.BUG: "A fault of Forebay.",
    ExitCode.INTERRUPTED: "Ctrl-C, or a question that was answered with no.",
    ExitCode.READER_GONE: "The program that read the output has closed it.",
}


def reference() -> str:
    """The whole page as Markdown."""
    parts = [OPENING]
    for group in dict.fromkeys(command.group for command in COMMANDS):
        parts.append(f"## {group}\n")
        for command in COMMANDS:
            if command.group == group:
                parts += _described(load_command(command), f"forebay {command.name}")
    parts.append("## Exit codes\n")
    parts.append(
        "\n".join(["| code | meaning |", "|---|---|", *(f"| {c:d} | {text} |" for c, text in EXIT_CODES.items())])
    )
    return "\n".join(parts) + "\n"


def _described(command: Any, path: str) -> Iterator[str]:
    yield f"### `{path}`\n"
    yield inspect.cleandoc(command.help or "") + "\n"
    if isinstance(command, TyperGroup):
        if isinstance(command, ListingGroup):
            yield f"Without a command: `{path} {command.command_alone}`.\n"
        for name, below in command.commands.items():
            yield from _described(below, f"{path} {name}")
        return
    arguments = [_metavar(each) for each in command.params if each.param_type_name == "argument"]
    yield f"```text\n{' '.join([path, '[OPTIONS]', *arguments])}\n```\n"
    shown = [parameter for parameter in command.params if not _is_setting(parameter)]
    rows = [_row(parameter) for parameter in shown if not getattr(parameter, "hidden", False)]
    if rows:
        yield "\n".join(["| argument or option | default | meaning |", "|---|---|---|", *rows, ""])
    if len(shown) < len(command.params):
        yield "And a flag for every [setting](settings.md); a flag wins over the file.\n"


def _is_setting(parameter: Any) -> bool:
    """A flag that stands in the reference of settings, or another spelling of it."""
    flags = {flag for key in KEYS.values() for flag in (key.flag, key.off_flag)}
    return bool(flags & {*parameter.opts})


def _row(parameter: Any) -> str:
    if parameter.param_type_name == "argument":
        name, default = f"`{_metavar(parameter)}`", ""
    else:
        spelled = [*parameter.opts, *parameter.secondary_opts]
        value = "" if parameter.is_flag or parameter.count else f" {_metavar(parameter)}"
        name = ", ".join(f"`{option}{value}`" for option in spelled)
        default = _default(parameter)
    variable = f" Or `{parameter.envvar}` of the environment." if getattr(parameter, "envvar", None) else ""
    return f"| {_cell(name)} | {_cell(default)} | {_cell((parameter.help or '') + variable)} |"


def _metavar(parameter: Any) -> str:
    """What stands for the value."""
    if parameter.metavar:
        return str(parameter.metavar)
    if parameter.param_type_name == "argument":
        return str(parameter.name).upper()
    kind = parameter.type_descriptor.annotation
    kind = get_args(kind)[0] if get_args(kind) else kind
    if issubclass(kind, Enum):
        return "|".join(str(choice.value) for choice in kind)
    return {str: "TEXT", int: "N", float: "NUMBER", Path: "PATH"}.get(kind, str(kind.__name__).upper())


def _default(parameter: Any) -> str:
    default = parameter.default
    if parameter.required:
        return "required"
    if default is None or default is False or default == () or callable(default):
        return ""
    return f"`{getattr(default, 'value', default)}`"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


if __name__ == "__main__":
    sys.stdout.write(reference())
