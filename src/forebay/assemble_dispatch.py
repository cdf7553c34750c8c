"""The wiring of dispatch: from its settings to its limits and its warm tier."""

from __future__ import annotations

from forebay.broker.store import Store
from forebay.clock import Clock
from forebay.config.dispatch_model import DispatchSettings
from forebay.config.masking import masked
from forebay.dispatch.dispatcher import Dispatcher
from forebay.dispatch.limits import DispatchLimits
from forebay.dispatch.warm import WarmTier
from forebay.dispatch.warms.embedded import EmbeddedWarm
from forebay.errors import SettingFault, SettingsRefused

EMBEDDED = "embedded"


def dispatcher(settings: DispatchSettings, store: Store, clock: Clock) -> Dispatcher:
    """All of dispatch. Has to be called on the event loop that it will run on."""
    return Dispatcher(store, warm_tier(settings), dispatch_limits(settings), clock)


def dispatch_limits(settings: DispatchSettings) -> DispatchLimits:
    """How much may wait warm, how long leases last, and how often dispatch looks."""
    lease_seconds = settings.lease_time.total_seconds()
    return DispatchLimits(
        in_memory_queue_size=settings.in_memory_queue_size,
        lease_seconds=lease_seconds,
        heartbeat_seconds=min(settings.heartbeat_time.total_seconds(), lease_seconds / 2),
        stale_seconds=settings.stale_time.total_seconds(),
        cold_to_warm_seconds=settings.cold_to_warm_interval.total_seconds(),
        sizes_seconds=settings.sizes_interval.total_seconds(),
        metrics_seconds=settings.metrics_time.total_seconds(),
        finished_retention_seconds=settings.finished_retention.total_seconds(),
    )


def warm_tier(settings: DispatchSettings) -> WarmTier:
    """The warm tier that the settings name. It connects when it is first used."""
    url = settings.warm
    if url == EMBEDDED:
        return EmbeddedWarm()
    if url.startswith(("valkey://", "valkeys://")):
        from forebay.dispatch.warms.valkey import ValkeyWarm

        try:
            return ValkeyWarm(url)
        except ValueError as error:
            allowed = f"a URL such as valkey://127.0.0.1:6379/0 ({error})"
            raise SettingsRefused([SettingFault("dispatch.warm", masked(url), allowed, "settings")]) from error
    allowed = "embedded, or a URL that begins with valkey:// or valkeys://"
    raise SettingsRefused([SettingFault("dispatch.warm", masked(url), allowed, "settings")])
