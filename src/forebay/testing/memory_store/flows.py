"""What is kept about flows, in memory."""

from __future__ import annotations

from dataclasses import replace

from forebay.broker.flow_rows import FlowRow
from forebay.clock import SECOND_US
from forebay.testing.memory_store.contents import Contents


class Flows(Contents):
    async def flows(self) -> list[FlowRow]:
        return sorted(self._flows.values(), key=lambda row: row.name)

    async def report_flow(
        self, name: str, worker: str, report: bytes, *, quiet_seconds: float, is_released: bool = False
    ) -> FlowRow:
        now_us = self._clock.now_us()
        known = self._flows.get(name, FlowRow(name))
        if known.worker in ("", worker) or known.updated_us < now_us - quiet_seconds * SECOND_US:
            known = replace(known, worker="" if is_released else worker, report=report, updated_us=now_us)
            self._flows[name] = known
        return known

    async def pause_flow(self, name: str, is_paused: bool) -> FlowRow:
        known = self._flows.get(name)
        if known is None:
            known = FlowRow(name, is_paused=is_paused)
        else:
            known = replace(known, is_paused=is_paused, resumes=known.resumes + (not is_paused))
        self._flows[name] = known
        return known

    async def forget_flow(self, name: str) -> bool:
        return self._flows.pop(name, None) is not None
