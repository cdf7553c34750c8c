"""Whether receivers lead somewhere: to a queue, or to a destination that is in the file."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from forebay.config.export_model import ReceiverSettings, ReceiversSettings
from forebay.errors import SettingFault

PROTOCOLS = ("otlp_http", "otlp_grpc", "remote_write")


def listening(settings: ReceiversSettings) -> Iterator[tuple[str, ReceiverSettings]]:
    """The receivers that are on."""
    for name in PROTOCOLS:
        receiver: ReceiverSettings = getattr(settings, name)
        if receiver.listen:
            yield name, receiver


def receiver_faults(settings: ReceiversSettings, destinations: Collection[str]) -> Iterator[SettingFault]:
    """What is wrong with `to` and `listen` of receivers that are on."""
    for name, receiver in listening(settings):
        kind, _, target = receiver.to.partition(":")
        is_destination = kind == "destination" and target in destinations
        if not is_destination and (kind != "queue" or not target):
            known = ", ".join(f"destination:{known}" for known in sorted(destinations)) or "no destination is defined"
            yield SettingFault(f"receivers.{name}.to", receiver.to, f"queue:NAME or {known}", "settings")
        port = receiver.listen.rpartition(":")[2]
        if not port.isdigit() or int(port) > 65_535:
            yield SettingFault(f"receivers.{name}.listen", receiver.listen, "host:port", "settings")
