"""`forebay keys`: make, list, rotate and revoke API keys, at a server (`key_stores`) or in a store (`stored_keys`)."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from forebay.access.scopes import NAMES
from forebay.access.values import NewKey
from forebay.cli import output
from forebay.cli.key_stores import Document, KeyStore, ServerKeys
from forebay.cli.output import Format, OutputOption
from forebay.cli.server_option import DEFAULT_URL, KeyOption, UrlOption, checked_text
from forebay.config.load import load
from forebay.config.units import parse_duration
from forebay.errors import Permanent

if TYPE_CHECKING:
    from forebay.cli.stored_keys import StoredKeys

app = typer.Typer(help="Make, list, rotate and revoke API keys: at a server, or in a store (--data-dir, --store).")

DirectoryOption = Annotated[
    Path | None, typer.Option("--data-dir", help="Work on this data directory itself, while no server runs on it.")
]
StoreOption = Annotated[str | None, typer.Option("--store", help="Work on this database itself, postgresql://…")]
ConfigOption = Annotated[
    Path | None, typer.Option("-c", "--config", metavar="FILE", help="Work on the store that this file names.")
]
WhichArgument = Annotated[str, typer.Argument(metavar="KEY", help="The id of the key, or its name.")]


def _key_store(url: str, api_key: str | None, data_dir: Path | None, store: str | None, file: Path | None) -> KeyStore:
    if data_dir is None and store is None and file is None:
        return ServerKeys(url, api_key)
    return _stored_keys(data_dir, store, file)


def _stored_keys(data_dir: Path | None, store: str | None, file: Path | None) -> StoredKeys:
    from forebay.cli.stored_keys import StoredKeys

    flags: dict[str, object] = {} if data_dir is None else {"data_dir": str(data_dir)}
    if store is not None:
        flags["server.store"] = store
    return StoredKeys(load(file=file, environ=os.environ, flags=flags).settings)


@app.command()
def create(
    name: Annotated[str, typer.Argument(help="What to call it; no two keys have the same name.")],
    scopes: Annotated[
        list[str],
        typer.Option("--scope", "--scopes", help="read, write, consume or admin; several times, or with commas."),
    ],
    queues: Annotated[
        list[str] | None,
        typer.Option("--queues", help="Only for queues that fit this pattern, such as 'orders.*'; may be repeated."),
    ] = None,
    expires: Annotated[
        str | None, typer.Option("--expires", metavar="TIME", help="When it ends, from now: 30d, 12h. Never if absent.")
    ] = None,
    url: UrlOption = DEFAULT_URL,
    api_key: KeyOption = None,
    data_dir: DirectoryOption = None,
    store: StoreOption = None,
    config_file: ConfigOption = None,
    output_format: OutputOption = Format.TABLE,
) -> None:
    """Make a key and print it: it is shown this once. The first one has to be admin of all queues."""
    lasts_seconds = None if expires is None else _seconds(expires, "--expires")
    wanted = NewKey(checked_text(name), _words(scopes), _words(queues or ()), lasts_seconds, "command line")
    unknown = [scope for scope in wanted.scopes if scope not in NAMES]
    if unknown:
        raise Permanent(f"--scope {unknown[0]!r} is none of {', '.join(NAMES)}")
    _show(_key_store(url, api_key, data_dir, store, config_file).create(wanted), output_format)


@app.command("list")
def list_keys(
    revoked: Annotated[bool, typer.Option("--revoked", help="Also those that are revoked.")] = False,
    url: UrlOption = DEFAULT_URL,
    api_key: KeyOption = None,
    data_dir: DirectoryOption = None,
    store: StoreOption = None,
    config_file: ConfigOption = None,
    output_format: OutputOption = Format.TABLE,
) -> None:
    """List keys, without their texts: those are kept nowhere."""
    found = _key_store(url, api_key, data_dir, store, config_file).listed(revoked=revoked)
    if output_format is Format.JSON:
        output.show_json(found)
        return
    rows = [
        (
            key["id"],
            key["name"],
            ", ".join(key["scopes"]),
            ", ".join(key["queues"]) or "all",
            key["state"],
            _time(key["expiresAt"]) or "never",
            _time(key["lastUsedAt"]) or "never",
            key["madeBy"],
        )
        for key in found
    ]
    output.show_table(("id", "name", "scopes", "queues", "state", "expires", "last used", "made by"), rows)


@app.command()
def rotate(
    which: WhichArgument,
    grace: Annotated[
        str, typer.Option("--grace", metavar="TIME", help="How long the old text still counts: 1h, 7d, 0.")
    ] = "1h",
    url: UrlOption = DEFAULT_URL,
    api_key: KeyOption = None,
    data_dir: DirectoryOption = None,
    store: StoreOption = None,
    config_file: ConfigOption = None,
    output_format: OutputOption = Format.TABLE,
) -> None:
    """Give a key another text and print it. The old one counts until the grace time is over."""
    seconds = _seconds(grace, "--grace")
    kept = _key_store(url, api_key, data_dir, store, config_file)
    _show(kept.rotate(_id_of(kept, which), seconds), output_format)


@app.command()
def revoke(
    which: WhichArgument,
    url: UrlOption = DEFAULT_URL,
    api_key: KeyOption = None,
    data_dir: DirectoryOption = None,
    store: StoreOption = None,
    config_file: ConfigOption = None,
) -> None:
    """End a key, and what was signed in with it. Servers of the store notice within two seconds."""
    kept = _key_store(url, api_key, data_dir, store, config_file)
    kept.revoke(_id_of(kept, which))
    output.say(f"revoked {which}")


@app.command()
def disable(data_dir: DirectoryOption = None, store: StoreOption = None, config_file: ConfigOption = None) -> None:
    """Remove all keys of a store: every client that can connect may then do everything again."""
    if data_dir is None and store is None and config_file is None:
        raise Permanent("no store was named", remedy="Say which with --data-dir, --store or --config")
    output.say(f"removed {_stored_keys(data_dir, store, config_file).disable()} keys; keys are not in force any more")


def _id_of(kept: KeyStore, which: str) -> str:
    """By id, or by the name that one key alone has that is not revoked."""
    for key in kept.listed(revoked=False):
        if which in (key["id"], key["name"]):
            return str(key["id"])
    raise Permanent(f"no key {which!r}", remedy="`forebay keys list` shows which there are")


def _show(made: Document, output_format: Format) -> None:
    """The key alone on stdout, so that a script can take it; the rest is for people."""
    if output_format is Format.JSON:
        output.show_json(made)
        return
    info: dict[str, Any] = made["info"]
    output.say(made["key"])
    queues = ", ".join(info["queues"]) or "all queues"
    ends = f", until {_time(info['expiresAt'])}" if info["expiresAt"] else ""
    output.tell(f"key {info['name']} ({info['id']}): {', '.join(info['scopes'])} on {queues}{ends}")
    if info["oldKeyUntil"]:
        output.tell(f"the old text counts until {_time(info['oldKeyUntil'])}")
    output.tell("Keep it: it is shown this once, and only its digest is stored.")


def _words(given: list[str] | tuple[str, ...]) -> tuple[str, ...]:
    words = [word.strip() for text in given for word in checked_text(text).split(",")]
    return tuple(dict.fromkeys(word for word in words if word))


def _seconds(text: str, option: str) -> float:
    try:
        return parse_duration(text).total_seconds()
    except ValueError as wrong:
        raise Permanent(f"{option} {text!r}: {wrong}", remedy="Write it like 30d, 12h or 90m") from None


def _time(text: str | None) -> str:
    return f"{text[:19]}Z" if text else ""
