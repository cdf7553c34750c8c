"""The ledger of this server and its store (`forebay.telemetry.ledger`), from figures that are kept anyway."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from forebay.api.queue_figures import QueueFigures, queue_figures
from forebay.dispatch.views import FlowStatus
from forebay.telemetry import metrics
from forebay.telemetry.ledger import Account, Totals, flow_account, group_account, queue_account, totals_of
from forebay.telemetry.page import Page

if TYPE_CHECKING:
    from forebay.api.service import Service

KEPT_SECONDS = 2.0


class Ledger(NamedTuple):
    at_us: int
    accounts: tuple[Account, ...]
    totals: Sequence[Totals]
    faults: Sequence[str]
    flow_queues: Mapping[str, str]
    """The source queue of each flow."""


async def ledger(service: Service) -> Ledger:
    """All accounts, a few seconds old at most. `StoreUnavailable`."""
    return await service.ledger_cache.get()


async def count_ledger(service: Service) -> Ledger:
    figures = await queue_figures(service)
    buffered = (await service.intake.figures()).queues
    flows = await service.dispatcher.flows()
    sent = [outlet.feed.account() for outlet in service.way_out.outlets.values()]
    last = service.last_ledger
    if last is not None and last.figures is figures and last.buffered == buffered:
        of_queues = last.of_queues
    else:
        # With thousands of groups it takes a while.
        of_queues = await asyncio.to_thread(_added_up, figures, buffered)
        service.last_ledger = LastLedger(figures, buffered, of_queues)
    others = _summed((*map(_of_flow, flows), *sent))
    return Ledger(
        figures.at_us,
        of_queues.accounts + others.accounts,
        [*of_queues.totals, *others.totals],
        [*of_queues.faults, *others.faults],
        {flow.name: flow.definition.source.queue for flow in flows},
    )


class Summed(NamedTuple):
    accounts: tuple[Account, ...]
    totals: Sequence[Totals]
    faults: Sequence[str]


class LastLedger(NamedTuple):
    """What was added up last of queues and groups, and of which figures."""

    figures: QueueFigures
    buffered: Mapping[str, int]
    of_queues: Summed


def _added_up(figures: QueueFigures, buffered: Mapping[str, int]) -> Summed:
    return _summed(tuple(_of_queues(figures, buffered)))


def _summed(accounts: tuple[Account, ...]) -> Summed:
    return Summed(accounts, totals_of(accounts), [fault for account in accounts for fault in account.faults()])


def _of_queues(figures: QueueFigures, buffered: Mapping[str, int]) -> Iterator[Account]:
    for queue in figures.queues:
        waits = buffered.get(queue.name, 0)
        ever = queue.accepted
        yield queue_account(queue.name, stored_ever=ever, buffered=waits, kept=queue.messages, lost=queue.lost)
        for group in queue.groups:
            yield group_account(
                queue.name,
                group.name,
                stored_ever=ever,
                buffered=waits,
                waiting=group.waiting,
                leased=group.leased,
                dead=group.dead_letters,
            )
    for name in sorted(buffered.keys() - {queue.name for queue in figures.queues}):
        yield queue_account(name, stored_ever=0, buffered=buffered[name], kept=0, lost=0)


def _of_flow(flow: FlowStatus) -> Account:
    states = {
        "queued": flow.queued,
        "cold": flow.cold,
        "leased": flow.leased,
        "joining": flow.joining,
        "exporting": flow.exporting,
        "error": flow.errors,
    }
    return flow_account(flow.name, states)


def add_ledger(page: Page, found: Ledger) -> None:
    """The sums of each stage, and how many accounts do not add up."""
    for total in found.totals:
        page.add(metrics.LEDGER_ACCEPTED, total.accepted, total.stage)
        for part, count in total.parts.items():
            page.add(metrics.LEDGER_PARTS, count, total.stage, part)
    page.add(metrics.LEDGER_FAULTS, len(found.faults))
