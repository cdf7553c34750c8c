"""One command-line flag per setting, generated from the model, the same for every command that reads settings.

A command asks for the settings in its signature and gets the flags with them:

    @app.command()
    @with_settings
    def show(loaded: Loaded, output: OutputOption = Format.TABLE) -> None: …

On its command line stand then `-c/--config FILE`, `--profile NAME` and a flag for every other key. Values are
handed on as they were written: `load` judges them, and a wrong flag is listed together with all other faults.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from forebay.config.keys import KEYS, Key
from forebay.config.layers import CONFIG_VARIABLE, flag_aliases
from forebay.config.load import load

SETTINGS_PARAMETER = "loaded"
CONFIG_PARAMETER = "config_file"


def with_settings(command: Callable[..., None]) -> Callable[..., None]:
    """Replace the command's parameter `loaded` by the flags, and load the settings before it runs."""
    parameters = {_parameter_name(key): key for key in KEYS.values()}
    aliases = flag_aliases(KEYS)

    def run(**given: Any) -> None:
        file = given.pop(CONFIG_PARAMETER)
        written = {key.name: given.pop(name) for name, key in parameters.items()}
        written |= {flag: given.pop(_alias_name(flag)) for flag in aliases}
        flags = {name: value for name, value in written.items() if value is not None}
        command(**given, **{SETTINGS_PARAMETER: load(file=file, environ=os.environ, flags=flags)})

    own = inspect.signature(command, eval_str=True).parameters.values()
    options = [_optional(CONFIG_PARAMETER, Path, _config_option())]
    options += [parameter for parameter in own if parameter.name != SETTINGS_PARAMETER]
    options += [_optional(name, bool if key.is_switch else str, _option(key)) for name, key in parameters.items()]
    options += [_optional(_alias_name(flag), str, typer.Option(flag, hidden=True)) for flag in aliases]
    keyword_only = [option.replace(kind=inspect.Parameter.KEYWORD_ONLY) for option in options]
    run.__name__, run.__doc__, run.__module__ = command.__name__, command.__doc__, command.__module__
    run.__signature__ = inspect.Signature(keyword_only)  # type: ignore[attr-defined]
    run.__annotations__ = {option.name: option.annotation for option in keyword_only}
    return run


def _parameter_name(key: Key) -> str:
    return "setting_" + key.name.replace(".", "_")


def _alias_name(flag: str) -> str:
    """The seeds' flags take a value where ours are switches (`-queue-enabled true`): each is a parameter of its own."""
    return "alias" + flag.replace("-", "_")


def _optional(name: str, kind: type, option: Any) -> inspect.Parameter:
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[kind | None, option]
    )


def _config_option() -> Any:
    return typer.Option(
        "-c", "--config", metavar="FILE", help=f"The YAML file to read; without it, the one {CONFIG_VARIABLE} names."
    )


def _option(key: Key) -> Any:
    spelling = f"{key.flag}/{key.off_flag}" if key.is_switch else key.flag
    return typer.Option(
        spelling,
        metavar="" if key.is_switch else "|".join(key.choices) or key.type_name.upper(),
        help=f"{key.description} Default: {key.default}",
        show_default=False,
    )
