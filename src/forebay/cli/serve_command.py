"""`forebay serve`: the broker over HTTP, until it is stopped.

One line on stdout says that it is ready and where; nothing is accepted before that. SIGTERM and Ctrl-C stop it
cleanly: see `forebay.api.server`. SIGHUP reads the log level, the keys and the certificate again.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from forebay.api.browsers import is_loopback
from forebay.api.certificates import Certificates
from forebay.api.service import Service
from forebay.assemble import api_service, broker_store, buffer_directory
from forebay.broker.store import Store
from forebay.broker.stores.embedded.data_directory import is_data_directory
from forebay.cli import output
from forebay.cli.file_handles import raise_limit
from forebay.cli.port_owner import port_owner
from forebay.cli.server_log import change_level, start_log
from forebay.cli.settings_flags import with_settings
from forebay.cli.usable_paths import writable_directory
from forebay.config.keys import KEYS, ValueRefused
from forebay.config.load import Loaded
from forebay.config.model import ServerSettings, Settings
from forebay.errors import ForebayError, Permanent, SettingFault, SettingsRefused

_log = logging.getLogger("forebay.cli")
MEMORY_URL = "memory://"

HostOption = Annotated[str | None, typer.Option("--host", help="The same as --server-host.", show_default=False)]
PortOption = Annotated[str | None, typer.Option("--port", help="The same as --server-port.", show_default=False)]
StoreOption = Annotated[
    str | None,
    typer.Option("--store", help="The same as --server-store. memory:// keeps nothing, for tests.", show_default=False),
]
WarmOption = Annotated[
    str | None,
    typer.Option("--warm", help="The same as --dispatch-warm: embedded, or valkey://…", show_default=False),
]
InsecureOption = Annotated[
    bool, typer.Option("--insecure", help="Listen without API keys on an address that others can reach.")
]


class OpenToNetwork(Permanent):
    """Any client of this address could read and delete everything. Give the server keys, or say that you mean it."""


@with_settings
def serve(
    loaded: Loaded,
    host: HostOption = None,
    port: PortOption = None,
    store: StoreOption = None,
    warm: WarmOption = None,
    insecure: InsecureOption = False,
) -> None:
    """Serve queues over HTTP until SIGTERM or Ctrl-C."""
    settings = _overridden(
        loaded.settings,
        {"server.host": host, "server.port": port, "server.store": store, "dispatch.warm": warm},
    )
    is_key_required = not (insecure or is_loopback(settings.server.host))
    if is_key_required and not _may_have_keys(settings):
        raise _open_to_network(settings.server.host)
    start_log(settings.server.log_level, settings.logging.format)
    raise_limit()
    listening = _listen(settings.server)
    try:
        with _kept_nowhere(settings) as kept:
            _run(kept, listening, loaded, is_key_required=is_key_required)
    finally:
        listening.close()


@contextmanager
def _kept_nowhere(settings: Settings) -> Iterator[Settings]:
    """A store that keeps nothing must not leave buffer files behind either."""
    if settings.server.store != MEMORY_URL or settings.buffer.dir:
        yield settings
        return
    with tempfile.TemporaryDirectory(prefix="forebay-buffers-") as folder:
        yield settings.model_copy(update={"buffer": settings.buffer.model_copy(update={"dir": folder})})


def _overridden(settings: Settings, given: dict[str, str | None]) -> Settings:
    """The short flags, judged like the long ones."""
    faults: list[SettingFault] = []
    sections: dict[str, dict[str, object]] = {}
    for dotted, value in given.items():
        if value is None:
            continue
        key = KEYS[dotted]
        section, name = dotted.split(".")
        try:
            sections.setdefault(section, {})[name] = key.read(value)
        except ValueRefused:
            faults.append(SettingFault(key.name, value, key.allowed, f"flag --{name}"))
    if faults:
        raise SettingsRefused(faults)
    updated = {name: getattr(settings, name).model_copy(update=values) for name, values in sections.items()}
    return settings.model_copy(update=updated)


def _may_have_keys(settings: Settings) -> bool:
    """False where there are none for sure: whether an existing store has keys is known when it is open."""
    server = settings.server
    if server.keys:
        return True
    if server.store == "embedded":
        return is_data_directory(settings.data_dir)
    return server.store != MEMORY_URL


def _open_to_network(host: str) -> OpenToNetwork:
    return OpenToNetwork(
        f"{host} can be reached by others, and there are no API keys",
        remedy="Make one with `forebay keys create`, name a file with --server-keys, listen on 127.0.0.1, "
        "or say --insecure",
    )


def _listen(server: ServerSettings) -> socket.socket:
    from forebay.api.server import AddressTaken, bound_socket

    try:
        return bound_socket(server.host, server.port)
    except OSError as error:
        where = f"{server.host}:{server.port}"
        if error.errno != errno.EADDRINUSE:
            raise ForebayError(f"cannot listen on {where}: {error.strerror or error}") from error
        owner = port_owner(server.port)
        raise AddressTaken(
            f"{where} is taken by {owner or 'another process'}", remedy="Stop it, or choose another --port"
        ) from error


def _run(settings: Settings, listening: socket.socket, loaded: Loaded, *, is_key_required: bool) -> None:
    import uvloop

    from forebay.api.certificates import certificates
    from forebay.api.server import Listening, serve

    if settings.server.store == "embedded":
        writable_directory(settings.data_dir, "data_dir")
    writable_directory(buffer_directory(settings), "buffer.dir" if settings.buffer.dir else "data_dir")
    store, store_name = _store(settings)
    server = settings.server
    where = Listening(
        listening,
        certificates(_file(server.certificate), _file(server.certificate_key), _file(server.client_ca_file)),
        server.stop_time.total_seconds(),
        server.stop_delay.total_seconds(),
    )

    def ready(service: Service) -> None:
        if is_key_required and not service.keyring.is_behind and not service.keyring.has_keys:
            raise _open_to_network(server.host)
        away = "" if service.is_db_healthy else ", which is away: pushes are buffered"
        output.say(f"forebay: serving {where.url} (store: {store_name}{away})")
        output.finish()

    async def main() -> None:
        service = api_service(
            settings,
            store,
            store_name=store_name,
            destinations=loaded.destinations,
            exports=loaded.exports,
            is_key_required=is_key_required,
        )
        await serve(service, where, lambda: ready(service), lambda: _reload(loaded, service, where.certificates))

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())


def _reload(loaded: Loaded, service: Service, certificates: Certificates | None) -> None:
    """SIGHUP: log level, keys and certificate as they are now. What cannot be used changes nothing."""
    try:
        settings = loaded.load_again().settings if loaded.load_again else loaded.settings
        server = settings.server
        change_level(server.log_level)
        service.keyring.follow_here(in_any_case=True)
        if certificates is not None:
            certificates.reload()
    except ForebayError as error:
        _log.error("not all is read again: %s", error, extra={"action": "reload_failed"})
    else:
        _log.info("log level, keys and certificate are read again", extra={"action": "reloaded"})


def _store(settings: Settings) -> tuple[Store, str]:
    if settings.server.store == MEMORY_URL:
        from forebay.testing.memory_store import MemoryStore

        return MemoryStore(), "memory, nothing is kept"
    return broker_store(settings)


def _file(name: str) -> str:
    if name and not Path(name).is_file():
        raise ForebayError(f"{name}: there is no such file")
    return name
