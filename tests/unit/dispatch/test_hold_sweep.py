"""At which pace the holds of flows are moved on."""

from __future__ import annotations

from typing import cast

import pytest

from forebay.broker.store import Store
from forebay.dispatch.hold_sweep import FLOW_SHARE, SWEEP_SECONDS, TURN_SHARE, HoldSweep
from forebay.testing.fake_clock import FakeClock

pytestmark = pytest.mark.asyncio

SECONDS = {"large": 0.25, "small": 0.001}


class Flows:
    """A store that has these flows, and nothing else to be asked for."""

    async def look(self, _: object) -> list[str]:
        return list(SECONDS)


class Timed(HoldSweep):
    """Sweeps take their time, and nothing is moved."""

    def __init__(self, clock: FakeClock) -> None:
        super().__init__(cast("Store", Flows()), clock)
        self.swept: list[str] = []

    async def sweep(self, flow: str) -> None:
        self.swept.append(flow)
        cast("FakeClock", self._clock).advance(SECONDS[flow])


async def test_flow_with_much_in_it_is_swept_seldom_and_the_others_do_not_wait_for_it() -> None:
    clock = FakeClock()
    sweeps = Timed(clock)
    pause = await sweeps.turn()
    assert sweeps.swept == ["large", "small"]
    assert pause == pytest.approx(TURN_SHARE * sum(SECONDS.values()))
    clock.advance(pause)
    assert await sweeps.turn() == SWEEP_SECONDS
    assert sweeps.swept == ["large", "small", "small"]
    clock.advance(FLOW_SHARE * SECONDS["large"])
    await sweeps.turn()
    assert sweeps.swept[3:] == ["large", "small"]
