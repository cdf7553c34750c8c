"""Leases that are kept in short say the same as those that are kept in full."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.broker import delivery
from forebay.broker.delivery import Candidates, DeliveryState, Pending
from forebay.broker.stores.embedded import lease_rows
from forebay.broker.stores.embedded.lease_rows import FreshLease
from forebay.model.queue import QueueOptions

NOW_US = 1_000_000_000


@given(
    before=st.builds(
        DeliveryState,
        cursor_seq=st.integers(0, 50),
        lease_id=st.sampled_from(["", "an old one"]),
        finished=st.integers(0, 50),
    ),
    gap=st.integers(0, 9),
    count=st.integers(1, 20),
    options=st.builds(QueueOptions, lease_seconds=st.integers(1, 1000), retry_delay_ms=st.integers(0, 1000)),
)
def test_short_lease_is_what_a_claim_of_new_messages_makes(
    before: DeliveryState, gap: int, count: int, options: QueueOptions
) -> None:
    seqs = list(range(before.cursor_seq + 1 + gap, before.cursor_seq + 1 + gap + count))
    ids = [f"id {seq}" for seq in seqs]
    fresh = Candidates(seqs, ids, [0] * count)
    short = lease_rows.leased(before, fresh, options, NOW_US, "mine")
    claim = delivery.claim(
        before,
        fresh,
        options,
        group="g",
        now_us=NOW_US,
        batch=count,
        lease_id="mine",
        auto_ack=False,
    )
    assert short is not None
    assert claim is not None
    assert short.in_full(ids) == claim.state
    assert (short.count, short.completed()) == delivery.completed(claim.state)
    read = lease_rows.decode(lease_rows.encode(short))
    assert read == short
    assert isinstance(read, FreshLease)
    for now_us in (NOW_US - 1, NOW_US, short.until_us - 1, short.until_us):
        assert short.is_held("mine", now_us) == claim.state.is_leased_at(now_us)
    assert not short.is_held("another", NOW_US)


@pytest.mark.parametrize(
    ("state", "fresh", "options"),
    [
        (DeliveryState(0), Candidates(), QueueOptions()),
        (DeliveryState(0), Candidates([1, 3]), QueueOptions()),
        (DeliveryState(0), Candidates([1, 2]), QueueOptions(max_wait_seconds=1)),
        (DeliveryState(0), Candidates([1, 2]), QueueOptions(ttl_seconds=1)),
        (DeliveryState(0), Candidates([1, 2], headers=[b"", b'{"forebay.group": "x"}']), QueueOptions()),
        (DeliveryState(0, (Pending(1, "a", 1),)), Candidates([2, 3]), QueueOptions()),
    ],
)
def test_what_is_more_than_a_range_of_new_messages_is_kept_in_full(
    state: DeliveryState, fresh: Candidates, options: QueueOptions
) -> None:
    assert lease_rows.leased(state, fresh, options, NOW_US, "mine") is None


def test_state_in_full_is_read_as_before() -> None:
    state = DeliveryState(7, (Pending(8, "a", 1, True),), "lease", 1, 2, 3)
    assert lease_rows.decode(delivery.encode_state(state)) == state
