"""Where values come from: each source is read into a layer of entries, every entry knowing its origin.

A layer is only read here, not judged: unknown keys and wrong values travel on as entries, so that `load` can judge all
layers with the same rules and list all faults at once. The YAML file has a module of its own, `yaml_file`.

Environment names are looked up in the table of keys. Names that no table knows but that begin with `FOREBAY_` are most
likely slips and become entries under that name, which `load` refuses, with one exception: Kubernetes puts the addresses
of a service called `forebay` into every container as `FOREBAY_SERVICE_HOST`, `FOREBAY_PORT=tcp://…` and the like. They
are no slip of the user and are left alone. An empty variable counts as not set, as it does in the shell's `${NAME:-…}`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType

from forebay.config.keys import ENVIRONMENT_PREFIX, Key
from forebay.config.profiles import PROFILES

CONFIG_VARIABLE = "FOREBAY_CONFIG"
NO_SETTINGS = frozenset(
    {CONFIG_VARIABLE, "FOREBAY_URL", "FOREBAY_API_KEY", "FOREBAY_CA_FILE", "FOREBAY_ENCRYPTION_KEY"}
)
"""Variables of ours that are no settings: where to find them, how clients connect, and secrets."""
TESTS_PREFIX = "FOREBAY_TEST_"
"""Names the YAML file when no flag does. Not a key: a file cannot name itself."""


class Layer(StrEnum):
    """The sources in the order in which they override each other, the weakest first."""

    DEFAULT = "default"
    PROFILE = "profile"
    FILE = "file"
    ENVIRONMENT = "environment"
    FLAG = "flag"


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a value came from, as a person would look it up: `forebay.yaml line 3`, `flag --log-segment-size`."""

    layer: Layer
    text: str

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True)
class Entry:
    """One value that was written: for which key, and where."""

    key: str
    value: object
    origin: Origin


@dataclass(frozen=True, slots=True)
class Alias:
    """A key's foreign environment name. `suffix` is the unit which that name implies: `ms` for `…_MS=100`."""

    key: str
    suffix: str = ""


ALIASES: Mapping[str, Alias] = MappingProxyType(
    {
        "FILE_BUFFER_DIR": Alias("buffer.dir"),
        "FILE_BUFFER_FLUSH_MS": Alias("buffer.flush_time", "ms"),
        "FILE_BUFFER_MAX_BATCH": Alias("buffer.max_batch"),
    }
)
"""Environment names of other systems that are understood as well. Forebay's own name wins where both are set."""

KEY_ALIASES: Mapping[str, str] = MappingProxyType(
    {
        "exporter.queue.type": "exporter.queue.mode",
        "exporter.queue.global_send_limit": "exporter.global_send_limit",
    }
)
"""Other names of keys, as the seeds' examples write them."""


def flag_aliases(keys: Mapping[str, Key]) -> Mapping[str, str]:
    """The seeds' names of flags, and the keys that they set: `--queue-max-size` is `exporter.queue.max_size`."""
    found = {
        "--queue-" + name.removeprefix("exporter.queue.").replace(".", "-").replace("_", "-"): name
        for name in keys
        if name.startswith("exporter.queue.")
    }
    return found | {
        "--queue-type": "exporter.queue.mode",
        "--queue-global-send-limit": "exporter.global_send_limit",
        "--queue-meta-sync": "exporter.queue.meta_sync_interval",
        "--queue-stale-flush": "exporter.queue.stale_flush_interval",
        "--memory-limit-ratio": "exporter.memory_limit_ratio",
    }


DEFAULT = Origin(Layer.DEFAULT, "default")

_SERVICE_ADDRESS = re.compile(
    rf"{ENVIRONMENT_PREFIX}(\w+_)?(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)"
)
_SERVICE_URL = re.compile(r"(tcp|udp|sctp)://")


def profile_layer(name: str) -> list[Entry]:
    """The values of a profile; none for a name that is no profile, which is a fault of the layer that chose it."""
    origin = Origin(Layer.PROFILE, f"profile {name}")
    return [Entry(key, value, origin) for key, value in PROFILES.get(name, {}).items()]


def environment_layer(
    environ: Mapping[str, str], keys: Mapping[str, Key], aliases: Mapping[str, Alias] = ALIASES
) -> list[Entry]:
    """The values that environment variables set. Foreign names come first, so that Forebay's own override them."""
    foreign = [
        Entry(alias.key, environ[name] + alias.suffix, _variable(name))
        for name, alias in aliases.items()
        if environ.get(name)
    ]
    names = {key.environment: key.name for key in keys.values()}
    own = [
        Entry(names.get(name, name), value, _variable(name))
        for name, value in sorted(environ.items())
        if value and _is_ours(name, value, names)
    ]
    return foreign + own


def flag_layer(flags: Mapping[str, object], keys: Mapping[str, Key]) -> list[Entry]:
    """The values given on the command line, by dotted key or by one of the seeds' flags."""
    aliases = flag_aliases(keys)
    return [
        Entry(aliases.get(name, name), value, Origin(Layer.FLAG, f"flag {keys[name].flag if name in keys else name}"))
        for name, value in flags.items()
    ]


def _variable(name: str) -> Origin:
    return Origin(Layer.ENVIRONMENT, f"environment {name}")


def _is_ours(name: str, value: str, known: Mapping[str, str]) -> bool:
    if name in known:
        return True
    if not name.startswith(ENVIRONMENT_PREFIX) or name in NO_SETTINGS or name.startswith(TESTS_PREFIX):
        return False
    linked = _SERVICE_ADDRESS.fullmatch(name) or (name.endswith("_PORT") and _SERVICE_URL.match(value))
    return not linked
