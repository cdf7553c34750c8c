"""Queueing systems as their own clients drive them, all behind one protocol (`system`).

Each module is one system, used as its documentation says. Clients are imported where they are used: only the load
process of a system needs them, and Forebay runs without them.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Collection

from forebay.bench.broker.systems.system import System
from forebay.errors import Permanent

_MODULES = {
    "forebay": "forebay_client.ForebayClient",
    "commitlog": "commit_log.BareLog",
    "valkey": "valkey_streams.ValkeyStreams",
    "postgres": "postgres_table.PostgresTable",
    "nats": "jetstream.JetStream",
    "rabbitmq": "rabbitmq.RabbitQueue",
}


_LIBRARIES = {
    "valkey": ("valkey", "libvalkey"),
    "nats": ("nats",),
    "rabbitmq": ("aio_pika",),
    "postgres": ("psycopg_pool",),
}


def check_clients(without: Collection[str]) -> None:
    """Raise for a client library that is wanted and missing: at once, not when its turn comes."""
    for system, libraries in _LIBRARIES.items():
        for library in libraries if system not in without else ():
            if importlib.util.find_spec(library) is None:
                raise Permanent(
                    f"the Python package {library} is not installed, and {system} is driven through it",
                    remedy=f"Run `pip install 'forebay[bench]'`, or leave it out with --without {system}",
                )


def system_named(name: str) -> System:
    module, _, kind = _MODULES[name].partition(".")
    made: System = getattr(importlib.import_module(f"{__name__}.{module}"), kind)()
    return made


__all__ = ["System", "check_clients", "system_named"]
