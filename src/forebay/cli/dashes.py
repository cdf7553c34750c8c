"""Long options with one dash or two: `-profile performance` means `--profile performance`.

Many queues and collectors that Forebay stands in for have Go's flags, and the habits and scripts that go with them.
Typer knows two dashes only, so the words of a command line are respelled before it sees them. This is a pure function
of the words and of the options that the command has; knowing these, it never touches a value that looks like an option.

| written | becomes | because |
|---|---|---|
| `-profile=minimal`, `-profile minimal` | `--profile=minimal`, `--profile minimal` | one dash, known long option |
| `-log-roll-daily=false` | `--no-log-roll-daily` | a switch takes a value in Go |
| `-log-roll-daily=true` | `--log-roll-daily` | |
| `-c=FILE` | `-c FILE` | a short option takes `=` in Go |
| `-o json`, `-ojson`, `-h` | unchanged | short options |
| `-5`, `-`, `-- -profile` | unchanged | not options |
| `--profile -x`, `--profile=-x` | unchanged | `-x` is a value |
| `-unknwon` | `--unknwon` | so that the refusal can name what was meant |
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

# What Go's flag package takes for true and false.
_TRUE = {"1", "t", "true"}
_FALSE = {"0", "f", "false"}


@dataclass(frozen=True, slots=True)
class Options:
    """What one command understands, every option with its dashes.

    `valued` gives for each option that takes values how many words these are; `switches` gives for each switch the
    option that turns it off, or None where it can only be left out.
    """

    valued: Mapping[str, int]
    switches: Mapping[str, str | None]

    def __contains__(self, option: str) -> bool:
        return option in self.valued or option in self.switches


def respell(words: Sequence[str], options: Options, *, up_to_argument: bool) -> tuple[list[str], list[str]]:
    """Respell a command's options; returns the words done and the words left.

    With `up_to_argument` it stops at the first word that is no option: what follows belongs to a sub-command with
    options of its own. It always stops at `--`, behind which nothing is an option.
    """
    done: list[str] = []
    left = list(words)
    while left:
        if left[0] == "--" or (up_to_argument and not _is_option(left[0])):
            break
        word = left.pop(0)
        if not _is_option(word):
            done.append(word)
            continue
        spelled = _respell_option(word, options)
        done += spelled
        values = options.valued.get(spelled[0], 0) if len(spelled) == 1 else 0
        done += left[:values]
        left = left[values:]
    return done, left


def _is_option(word: str) -> bool:
    return word.startswith("-") and word.lstrip("-")[:1].isalpha() and not word.startswith("---")


def _respell_option(word: str, options: Options) -> list[str]:
    name, equals, value = word.partition("=")
    if not name.startswith("--") and len(name) > 2:
        if "-" + name not in options and name[:2] in options:
            return [word]
        name = "-" + name
    if not equals:
        return [name]
    if name in options.switches and value.lower() in _TRUE:
        return [name]
    if name in options.switches and value.lower() in _FALSE:
        off = options.switches[name]
        return [off] if off else []
    if not name.startswith("--") and name in options.valued:
        return [name, value]
    return [f"{name}={value}"]
