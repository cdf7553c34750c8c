"""From settings to limits and to a warm tier."""

from __future__ import annotations

from datetime import timedelta

import pytest

from forebay.assemble_dispatch import dispatch_limits, warm_tier
from forebay.config.dispatch_model import DispatchSettings
from forebay.config.load import load
from forebay.dispatch.limits import DispatchLimits
from forebay.dispatch.warms.embedded import EmbeddedWarm
from forebay.dispatch.warms.valkey import ValkeyWarm
from forebay.errors import SettingsRefused


def test_the_settings_defaults_are_those_of_the_limits() -> None:
    assert dispatch_limits(DispatchSettings()) == DispatchLimits()


def test_a_heartbeat_is_never_as_rare_as_the_end_of_the_lease() -> None:
    settings = DispatchSettings(lease_time=timedelta(seconds=6), heartbeat_time=timedelta(seconds=10))
    assert dispatch_limits(settings).heartbeat_seconds == 3


async def test_the_warm_tier_is_chosen_by_its_url() -> None:
    assert isinstance(warm_tier(DispatchSettings()), EmbeddedWarm)
    tier = warm_tier(DispatchSettings(warm="valkey://127.0.0.1:1/0"))
    assert isinstance(tier, ValkeyWarm)
    await tier.close()


@pytest.mark.parametrize("url", ["", "redis://127.0.0.1", "memory", "valkey://127.0.0.1:x/0"])
def test_a_url_that_is_none_is_refused_by_its_key(url: str) -> None:
    with pytest.raises(SettingsRefused, match=r"dispatch\.warm"):
        warm_tier(DispatchSettings(warm=url))


def test_a_refused_url_does_not_show_its_password() -> None:
    with pytest.raises(SettingsRefused) as caught:
        warm_tier(DispatchSettings(warm="redis://me:secret-word@127.0.0.1"))
    assert "secret-word" not in str(caught.value)


def test_settings_come_from_the_environment_and_from_flags() -> None:
    loaded = load(
        environ={"FOREBAY_DISPATCH_WARM": "valkey://h:1/0"}, flags={"dispatch.in_memory_queue_size": "10"}
    ).settings.dispatch
    assert (loaded.warm, loaded.in_memory_queue_size) == ("valkey://h:1/0", 10)
