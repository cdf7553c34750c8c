"""Loads the settings: reads all layers, judges every value in every layer, and gives each key its value and origin.

    defaults  <  profile  <  YAML file  <  environment  <  flags

Every value is judged, also one that a stronger layer overrides: a wrong line in a file is wrong whether or not a user
works around it today. All faults of all layers are raised at once as `SettingsRefused`; there are no partial settings.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

from forebay.config.keys import KEYS, Key, ValueRefused, resembling, sections_of
from forebay.config.layers import (
    ALIASES,
    CONFIG_VARIABLE,
    DEFAULT,
    KEY_ALIASES,
    Alias,
    Entry,
    Layer,
    Origin,
    environment_layer,
    flag_layer,
    profile_layer,
)
from forebay.config.lists import LISTS, DestinationSettings, ExportSettings, read_lists
from forebay.config.masking import masked
from forebay.config.model import Settings
from forebay.config.receiver_targets import receiver_faults
from forebay.config.yaml_file import read_yaml
from forebay.errors import SettingFault, SettingsRefused

VALUE_SHOWN_MAX = 80
"""Longer values are cut in faults: the beginning is enough to recognise one."""

SECTIONS = sections_of(KEYS)
FLOWS_KEY = "flows"
"""Stands in the same file and is no setting: definitions of flows, which `forebay.flows` reads and judges."""
NO_KEYS = frozenset({FLOWS_KEY, *LISTS})
"""Lists of the file: each has a reader of its own."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """The settings in effect, and for every dotted key where its value came from."""

    settings: Settings
    origins: Mapping[str, Origin]
    file: Path | None = None
    """The YAML file that was read."""
    destinations: Sequence[DestinationSettings] = ()
    exports: Sequence[ExportSettings] = ()
    load_again: Callable[[], Loaded] | None = None
    """Reads the same file, environment and flags as they are then. Raises SettingsRefused."""

    def values(self) -> dict[str, object]:
        """Every key with its value the way it is written in YAML: `512Mi`, `30s`, True."""
        return dict(_flat(self.settings.model_dump(mode="json"), ""))


def load(
    *,
    file: Path | None = None,
    file_named_by: str = "flag --config",
    environ: Mapping[str, str] = MappingProxyType({}),
    flags: Mapping[str, object] = MappingProxyType({}),
    aliases: Mapping[str, Alias] = ALIASES,
) -> Loaded:
    """Load the settings from a YAML file, the environment and flags (by dotted key). Raises SettingsRefused.

    Without `file`, the variable FOREBAY_CONFIG in `environ` may name one.
    """
    if file is None and environ.get(CONFIG_VARIABLE):
        file, file_named_by = Path(environ[CONFIG_VARIABLE]), f"environment {CONFIG_VARIABLE}"
    entries, faults = read_yaml(file, file_named_by, SECTIONS) if file is not None else ([], [])
    entries += environment_layer(environ, KEYS, aliases)
    entries += flag_layer(flags, KEYS)

    chosen = _judge(entries, faults)
    profile = str(chosen["profile"][0]) if "profile" in chosen else Settings().profile
    values = _judge(profile_layer(profile), faults) | chosen
    if faults:
        raise SettingsRefused(faults)
    settings = _settings(values)
    destinations, exports = read_lists(file, settings.exporter.queue, faults) if file is not None else ((), ())
    origins = {key: values[key][1] if key in values else DEFAULT for key in KEYS}
    targets = {destination.name for destination in destinations}
    faults += [] if faults else [_placed(fault, origins) for fault in receiver_faults(settings.receivers, targets)]
    if faults:
        raise SettingsRefused(faults)
    again = partial(load, file=file, file_named_by=file_named_by, environ=environ, flags=flags, aliases=aliases)
    return Loaded(settings, MappingProxyType(origins), file, destinations, exports, again)


def _settings(values: Mapping[str, tuple[object, Origin]]) -> Settings:
    settings = Settings.model_validate(_nested({key: value for key, (value, _) in values.items()}))
    key = "exporter.queue.max_bytes"
    if key not in values or values[key][1].layer is not Layer.PROFILE:
        return settings
    exporter = settings.exporter
    queue = exporter.queue.with_max_bytes_written(False)
    return settings.model_copy(update={"exporter": exporter.model_copy(update={"queue": queue})})


def _placed(fault: SettingFault, origins: Mapping[str, Origin]) -> SettingFault:
    return SettingFault(fault.key, fault.value, fault.allowed, origins[fault.key].text)


def count_in_file(loaded: Loaded) -> int:
    """How many keys have their value from the YAML file."""
    return sum(origin.layer is Layer.FILE for origin in loaded.origins.values())


def _judge(entries: Iterable[Entry], faults: list[SettingFault]) -> dict[str, tuple[object, Origin]]:
    """Read every entry by its key's rules; later entries override earlier ones. What is refused goes to `faults`."""
    values: dict[str, tuple[object, Origin]] = {}
    for entry in entries:
        key = KEYS.get(KEY_ALIASES.get(entry.key, entry.key))
        if entry.key in NO_KEYS and entry.origin.layer is Layer.FILE:
            continue
        if key is None:
            faults.append(_fault(entry, _what_exists(entry)))
            continue
        try:
            value = key.read(entry.value)
        except ValueRefused as refused:
            faults.append(_fault(entry, _what_is_allowed(key, str(refused))))
            continue
        if key.name in values and _contradicts(values[key.name], value, entry.origin):
            faults.append(_fault(entry, f"one value for {key.name}: {values[key.name][1]} has another one"))
        values[key.name] = value, entry.origin
    return values


def _contradicts(earlier: tuple[object, Origin], value: object, origin: Origin) -> bool:
    """Whether a key was given twice in one place, by two of its names, with different values: neither can be meant.

    In the environment a foreign name is there for another program, and Forebay's own name wins.
    """
    is_same_place = earlier[1].layer is origin.layer and origin.layer is not Layer.ENVIRONMENT
    return is_same_place and earlier[0] != value


def _fault(entry: Entry, allowed: str) -> SettingFault:
    shown: object = entry.value
    if isinstance(shown, str):
        shown = masked(shown)
    elif isinstance(shown, dict):
        shown = "{…}"  # where a value is expected; what it holds may be secret
    if len(repr(shown)) > VALUE_SHOWN_MAX:
        shown = str(shown)[: VALUE_SHOWN_MAX - 1] + "…"
    return SettingFault(entry.key, shown, allowed, entry.origin.text)


def _what_is_allowed(key: Key, hint: str) -> str:
    return f"{key.allowed} ({hint})" if hint else key.allowed


def _what_exists(entry: Entry) -> str:
    """The answer to an unknown key: the names that exist there, those that look like it first."""
    if entry.key in SECTIONS:
        return f"a section with the keys {', '.join(_below(entry.key))}"
    if entry.origin.layer is Layer.ENVIRONMENT:
        known = [*(key.environment for key in KEYS.values()), CONFIG_VARIABLE]
    else:
        section = entry.key.rpartition(".")[0]
        known = [f"{section}.{name}" for name in _below(section)] if section in SECTIONS else list(KEYS)
    close = resembling(entry.key, known)
    meant = f" (did you mean {close[0]}?)" if close else ""
    return f"a known key{meant}: {', '.join(close + [name for name in known if name not in close])}"


def _below(section: str) -> list[str]:
    return [name.removeprefix(section + ".") for name in KEYS if name.startswith(section + ".")]


def _nested(values: Mapping[str, object]) -> dict[str, Any]:
    nested: dict[str, Any] = {}
    for key, value in values.items():
        *sections, name = key.split(".")
        place = nested
        for section in sections:
            place = place.setdefault(section, {})
        place[name] = value
    return nested


def _flat(values: Mapping[str, Any], prefix: str) -> Iterable[tuple[str, object]]:
    for name, value in values.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value
