"""`forebay serve`: the broker over HTTP, until it is told to stop.

One line on stdout says that it is ready and where; nothing is accepted before that. SIGTERM and Ctrl-C stop it
cleanly: see `forebay.api.server`. SIGHUP reads the log level, the keys and the certificate again.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import ssl
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from forebay.api.browsers import is_loopback
from forebay.api.service import Service
from forebay.assemble import api_service, broker_store, buffer_directory
from forebay.broker.store import Store
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
InsecureOption = Annotated[
    bool, typer.Option("--insecure", help="Listen without API keys on an address that others can reach.")
]


class ListensToEverybody(Permanent):
    """Whoever reaches this address could read and delete everything. Give the server keys, or say that you mean it."""


@with_settings
def serve(
    loaded: Loaded,
    host: HostOption = None,
    port: PortOption = None,
    store: StoreOption = None,
    insecure: InsecureOption = False,
) -> None:
    """Serve queues over HTTP until SIGTERM or Ctrl-C."""
    settings = _overridden(loaded.settings, {"host": host, "port": port, "store": store})
    refuse_strangers(settings.server, is_insecure=insecure)
    start_log(settings.server.log_level)
    raise_limit()
    listening = _listen(settings.server)
    try:
        with _kept_nowhere(settings) as kept:
            _run(kept, listening, loaded)
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
    values: dict[str, object] = {}
    for name, value in given.items():
        if value is None:
            continue
        key = KEYS[f"server.{name}"]
        try:
            values[name] = key.read(value)
        except ValueRefused:
            faults.append(SettingFault(key.name, value, key.allowed, f"flag --{name}"))
    if faults:
        raise SettingsRefused(faults)
    return settings.model_copy(update={"server": settings.server.model_copy(update=values)})


def refuse_strangers(server: ServerSettings, *, is_insecure: bool) -> None:
    """Without keys, only this machine may connect."""
    if server.keys or is_insecure or is_loopback(server.host):
        return
    raise ListensToEverybody(
        f"{server.host} can be reached by others, and there are no API keys",
        remedy="Name a file of keys with --server-keys, listen on 127.0.0.1, or say --insecure",
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


def _run(settings: Settings, listening: socket.socket, loaded: Loaded) -> None:
    import uvloop

    from forebay.api.server import Listening, serve, tls_context

    if settings.server.store == "embedded":
        writable_directory(settings.data_dir, "data_dir")
    writable_directory(buffer_directory(settings), "buffer.dir" if settings.buffer.dir else "data_dir")
    store, store_name = _store(settings)
    server = settings.server
    where = Listening(
        listening,
        tls_context(_file(server.certificate), _file(server.certificate_key)),
        server.stop_time.total_seconds(),
        server.stop_delay.total_seconds(),
    )

    def ready(service: Service) -> None:
        away = "" if service.is_db_healthy else ", which is away: pushes are buffered"
        output.say(f"forebay: serving {where.url} (store: {store_name}{away})")
        output.finish()

    async def main() -> None:
        service = api_service(
            settings, store, store_name=store_name, destinations=loaded.destinations, exports=loaded.exports
        )
        await serve(service, where, lambda: ready(service), lambda: _reload(loaded, service, where.tls))

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())


def _reload(loaded: Loaded, service: Service, tls: ssl.SSLContext | None) -> None:
    """SIGHUP: log level, keys and certificate as they are now. What cannot be used changes nothing."""
    from forebay.api.server import load_certificate

    try:
        settings = loaded.load_again().settings if loaded.load_again else loaded.settings
        server = settings.server
        change_level(server.log_level)
        service.follow_keys(in_any_case=True)
        if tls is not None and server.certificate:
            load_certificate(tls, _file(server.certificate), _file(server.certificate_key))
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
