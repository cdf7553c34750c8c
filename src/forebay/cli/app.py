"""The `forebay` command: a table of sub-commands, each loaded when it is called and not before.

`--help` and `--version` come from this module and the table alone, so they answer at once: neither pydantic nor
pyarrow nor rich is imported for them. To add a command, write `cli/NAME_command.py` and add a line to `COMMANDS`.

`run` is the whole life of a process: respell the words (see `dashes`), let Typer call the command, and turn whatever
comes out of it into a message and an exit code (see `output`). No error that Forebay raises on purpose shows a
traceback, and no path that cannot be used (see `usable_paths`); every other exception does, and is called a bug.
"""

from __future__ import annotations

import functools
import importlib
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, cast

import typer
from typer.core import TyperCommand, TyperGroup

import forebay
from forebay.cli import output
from forebay.cli.dashes import Options, respell
from forebay.cli.listing import ListingGroup
from forebay.cli.output import ExitCode
from forebay.cli.usable_paths import as_unusable
from forebay.errors import ForebayError, InvariantBroken

# Typer exports BadParameter but not its parent, which moved between releases; the parent is what ends in exit code 2.
UsageError: Any = typer.BadParameter.__bases__[0]

SUMMARY = "Forebay: a durable, tiered queue in front of Spark data pipelines."
EXAMPLES = (
    ("forebay demo", "see it work, in a throw-away directory"),
    ("forebay serve", "queues on port 6632, data in forebay-data"),
    ("forebay push orders '{\"id\": 7}'", "then `forebay pop orders@billing`"),
    ("forebay up -c forebay.yaml", "the same, and the flows of the file on Spark"),
    ("forebay config show --profile performance", "what would be in effect, and why"),
    ("forebay config check forebay.yaml", "all faults of a settings file at once"),
    ("forebay log inspect orders --data-dir forebay-data", "what a queue's commit log holds"),
)
HELP = ("-h", "--help", "-help")
CLOSING = (
    "`forebay COMMAND --help` explains a command. Long options work with one dash or two.",
    "Documentation: docs/ in the source tree; begin with docs/quickstart.md.",
)


@dataclass(frozen=True, slots=True)
class Command:
    """A sub-command: where it lives as `module:attribute` (a Typer app, or a function), and its line in the help."""

    name: str
    target: str
    help: str
    group: str


COMMANDS = (
    Command("demo", "forebay.cli.demo_command:demo", "See Forebay work, in a throw-away directory.", "First steps"),
    Command("serve", "forebay.cli.serve_command:serve", "Serve queues over HTTP.", "First steps"),
    Command("up", "forebay.cli.up_command:up", "Serve queues and run flows: server and worker in one.", "First steps"),
    Command("push", "forebay.cli.push_command:push", "Push messages: one, from a pipe, or from a file.", "Messages"),
    Command("pop", "forebay.cli.pop_command:pop", "Take messages, print and acknowledge them.", "Messages"),
    Command("ack", "forebay.cli.pop_command:ack", "Finish what `pop --no-ack` has leased.", "Messages"),
    Command("tail", "forebay.cli.pop_command:tail", "Look at the last messages, and follow.", "Messages"),
    Command("queues", "forebay.cli.queues_command:app", "List, show, configure and delete queues.", "Messages"),
    Command("groups", "forebay.cli.groups_command:app", "List groups and their lag; seek and delete them.", "Messages"),
    Command("dlq", "forebay.cli.dlq_command:app", "List, replay and purge dead letters.", "Messages"),
    Command("flows", "forebay.cli.flows_command:app", "Check, define, list, run, pause and resume flows.", "Flows"),
    Command("parcels", "forebay.cli.parcels_command:app", "List, show, resume, replay and cancel parcels.", "Flows"),
    Command("worker", "forebay.cli.worker_command:worker", "Run flows on Spark.", "Flows"),
    Command(
        "config",
        "forebay.cli.config_command:app",
        "Check a settings file; show the settings in effect and where each came from.",
        "Operating",
    ),
    Command(
        "exports", "forebay.cli.exports_command:app", "List, pause and resume what leaves; its dead letters.", "Export"
    ),
    Command(
        "sendqueue",
        "forebay.cli.sendqueue_command:app",
        "Inspect, verify and salvage a send queue's directory.",
        "Export",
    ),
    Command("keys", "forebay.cli.keys_command:app", "Make, list, rotate and revoke API keys.", "Operating"),
    Command("maintenance", "forebay.cli.maintenance_command:app", "Hold pushes or pops, and let go on.", "Operating"),
    Command("log", "forebay.cli.log_command:app", "Inspect, verify and salvage a commit log.", "Operating"),
    Command("buffers", "forebay.cli.buffers_command:app", "List, show, retry and export buffer files.", "Operating"),
    Command("audit", "forebay.cli.audit_command:audit", "Recount every queue, and compare.", "Operating"),
    Command(
        "bench",
        "forebay.cli.bench_command:app",
        "Measure Forebay on this machine, beside its peers.",
        "Measuring",
    ),
)


class LazyGroup(TyperGroup):
    """Knows its sub-commands from a table; imports one when it is about to run."""

    table: Mapping[str, Command]

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        name, _, rest = super().resolve_command(ctx, args)
        return name, self.loaded(str(name)), rest

    def format_help(self, ctx: Any, formatter: Any) -> None:
        bold = sys.stdout.isatty() and "NO_COLOR" not in os.environ
        formatter.write(help_text(tuple(self.table.values()), bold=bold))

    def loaded(self, name: str) -> Any:
        """The sub-command itself, in the place of the placeholder that stands for it in the help."""
        return load_command(self.table[name]) if name in self.table else None


@functools.cache
def load_command(command: Command) -> Any:
    """Import a sub-command and build what Typer runs."""
    module, _, attribute = command.target.partition(":")
    target = getattr(importlib.import_module(module), attribute)
    is_group = isinstance(target, typer.Typer)
    app = target if is_group else typer.Typer(add_completion=False)
    # Plain help: rich's panels cut long option names on a terminal of 80 columns.
    app.rich_markup_mode = None
    if not is_group:
        app.command()(target)
    built: Any = typer.main.get_group(app) if is_group else typer.main.get_command(app)
    built.name = command.name
    return built


def help_text(commands: Sequence[Command] = COMMANDS, *, bold: bool = False) -> str:
    """The text of `forebay --help`."""

    def head(text: str) -> str:
        return f"\033[1m{text}\033[0m" if bold else text

    lines = [SUMMARY, "", f"{head('Usage:')} forebay COMMAND [OPTIONS] [ARGUMENTS]"]
    width = max(len(command.name) for command in commands)
    for group in dict.fromkeys(command.group for command in commands):
        lines += ["", head(f"{group}:")]
        lines += [f"  {command.name:<{width}}  {command.help}" for command in commands if command.group == group]
    lines += ["", head("Options:"), "  --version   Print the version.", "  -h, --help  Print this text."]
    width = max(len(example) for example, _ in EXAMPLES)
    lines += ["", head("Examples:"), *(f"  {example:<{width}}  # {why}" for example, why in EXAMPLES)]
    return "\n".join([*lines, "", *CLOSING, ""])


def root_command(commands: Sequence[Command] = COMMANDS) -> LazyGroup:
    """The command `forebay` itself, with nothing loaded below it."""
    app = typer.Typer(cls=LazyGroup, add_completion=False, context_settings={"help_option_names": ["-h", "--help"]})
    app.callback()(_root)
    root = cast(LazyGroup, typer.main.get_group(app))
    root.table = {command.name: command for command in commands}
    root.commands = {command.name: TyperCommand(command.name, help=command.help) for command in commands}
    return root


def run(words: Sequence[str], commands: Sequence[Command] = COMMANDS) -> int:
    """Run one command line and return its exit code."""
    output.print_anywhere()
    try:
        code = _run(words, commands)
        sys.stdout.flush()
    except BrokenPipeError:
        output.discard_stdout()
        return ExitCode.READER_GONE
    return code


def _run(words: Sequence[str], commands: Sequence[Command]) -> int:
    path = "forebay"
    try:
        root = root_command(commands)
        spelled, path = spelled_for(root, words)
        return _call(root, spelled)
    except UsageError as wrong:
        _explain_usage(wrong, path)
        return ExitCode.USAGE
    except (KeyboardInterrupt, typer.Abort):
        output.tell("forebay: interrupted")
        return ExitCode.INTERRUPTED
    except InvariantBroken as broken:
        output.report_bug(broken)
        return ExitCode.BUG
    except ForebayError as error:
        output.fail(error)
        return ExitCode.REFUSED
    except BrokenPipeError:
        raise
    except OSError as error:
        unusable = as_unusable(error)
        if unusable is None:
            output.report_bug(error)
            return ExitCode.BUG
        output.fail(unusable)
        return ExitCode.REFUSED
    except Exception as error:  # noqa: BLE001 - the last line of defence, and it says so
        output.report_bug(error)
        return ExitCode.BUG


def _call(root: LazyGroup, spelled: list[str]) -> int:
    code = int(ExitCode.DONE)
    try:
        with root.make_context("forebay", spelled) as context:
            root.invoke(context)
    except typer.Exit as ended:
        code = ended.exit_code
    output.finish()
    return code


def spelled_for(root: LazyGroup, words: Sequence[str]) -> tuple[list[str], str]:
    """Respell the words by the options of the commands they name; returns them and the path of the last command.

    A group that is named without a command gets `list` if it lists (`ListingGroup`), else `--help`.
    """
    command: Any = root
    path = ["forebay"]
    spelled: list[str] = []
    left = list(words)
    while True:
        is_group = isinstance(command, TyperGroup)
        left = _with_command(command, left)
        done, left = respell(left, _options_of(command), up_to_argument=is_group)
        spelled += done
        below = _below(command, left[0]) if is_group and left else None
        if below is None:
            break
        command = below
        path.append(left[0])
        spelled.append(left.pop(0))
    alone = is_group and not done and not left
    return [*spelled, *(["--help"] if alone else left)], " ".join(path)


def _with_command(command: Any, words: list[str]) -> list[str]:
    """A group that lists when it is named alone gets the command `list`, unless help is requested."""
    if not isinstance(command, ListingGroup) or (words and (words[0] in HELP or not words[0].startswith("-"))):
        return words
    return [command.command_alone, *words]


def _below(group: Any, name: str) -> Any:
    return group.loaded(name) if isinstance(group, LazyGroup) else group.commands.get(name)


def _root(
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=lambda is_wanted: _version(is_wanted))
    ] = False,
) -> None:
    """Typer calls this before every sub-command; the options that stand before it belong here."""


def _version(is_wanted: bool) -> None:
    if is_wanted:
        output.say(f"forebay {forebay.__version__}")
        raise typer.Exit


def _options_of(command: Any) -> Options:
    valued: dict[str, int] = {}
    switches: dict[str, str | None] = {"-h": None, "--help": None}
    for option in command.params:
        if option.param_type_name != "option":
            continue
        if not (option.is_flag or option.count):
            valued |= dict.fromkeys(option.opts, option.nargs)
            continue
        off = option.secondary_opts[0] if option.secondary_opts else None
        switches |= dict.fromkeys(option.opts, off) | dict.fromkeys(option.secondary_opts, option.opts[0])
    return Options(valued, switches)


def _explain_usage(wrong: Any, path: str) -> None:
    # Typer leaves the context out where an option lacks its value.
    usage = wrong.ctx.get_usage() if wrong.ctx else f"Usage: {path} [OPTIONS]"
    if message := wrong.format_message():
        output.fail_usage(message, usage=usage, help_command=f"{path} --help")
