"""`forebay maintenance`: holding pushes and pops of all servers of a store, and letting them go on."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from forebay.cli import output
from forebay.cli.output import Format, OutputOption
from forebay.cli.server_option import DEFAULT_URL, KeyOption, UrlOption, connected

app = typer.Typer(help="Hold pushes or pops of all servers of a store, and let them go on.")

PATH = "/api/v1/system/maintenance"

PushOption = Annotated[bool, typer.Option("--push", help="Only pushes.")]
PopOption = Annotated[bool, typer.Option("--pop", help="Only pops.")]


@app.command()
def show(url: UrlOption = DEFAULT_URL, api_key: KeyOption = None, output_format: OutputOption = Format.TABLE) -> None:
    """Tell which maintenance is on, and how many pushes wait in buffer files."""
    with connected(url, api_key) as client:
        _show(client.get(PATH), output_format)


@app.command()
def on(
    push: PushOption = False,
    pop: PopOption = False,
    url: UrlOption = DEFAULT_URL,
    api_key: KeyOption = None,
    output_format: OutputOption = Format.TABLE,
) -> None:
    """Begin: pushes are buffered (receipt `buffer`), pops find nothing. Both, unless one is named."""
    _switch(url, api_key, output_format, is_on=True, push=push, pop=pop)


@app.command()
def off(
    push: PushOption = False,
    pop: PopOption = False,
    url: UrlOption = DEFAULT_URL,
    api_key: KeyOption = None,
    output_format: OutputOption = Format.TABLE,
) -> None:
    """End: what was buffered is stored, and pops deliver again. Both, unless one is named."""
    _switch(url, api_key, output_format, is_on=False, push=push, pop=pop)


def _switch(url: str, api_key: str | None, output_format: Format, *, is_on: bool, push: bool, pop: bool) -> None:
    is_both = push == pop
    paths = [path for path, chosen in ((PATH, push), (f"{PATH}/pop", pop)) if chosen or is_both]
    with connected(url, api_key) as client:
        answers = [client.post(path, {"enabled": is_on}) for path in paths]
    _show(answers[-1], output_format)


def _show(state: dict[str, Any], output_format: Format) -> None:
    if output_format is Format.JSON:
        output.show_json(state)
        return
    output.say(f"push maintenance: {_on_or_off(state['maintenanceMode'])}")
    output.say(f"pop maintenance:  {_on_or_off(state['popMaintenanceMode'])}")
    output.say(f"buffered:         {state['bufferedMessages']:,} messages")


def _on_or_off(switch: bool) -> str:
    return "on" if switch else "off"
