"""Records that are written from runs: the same bytes as from a `MessageBatch` with the same messages."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from forebay.commitlog import block
from forebay.commitlog.runs import MessageRun, RunBatch
from forebay.model.message import MessageBatch
from forebay.model.text_block import TextBlock

TAG = bytes(range(16))
PAYLOADS = st.one_of(st.binary(max_size=9), st.integers(16_000, 17_000).map(bytes))
RUNS = st.lists(
    st.tuples(
        st.text(max_size=3),
        st.integers(0, 7),
        st.lists(st.tuples(st.one_of(st.text(max_size=3), st.just("even")), PAYLOADS), min_size=1, max_size=8),
    ),
    min_size=1,
    max_size=5,
)


@given(RUNS)
def test_record_of_runs_is_that_of_the_same_messages(
    given_runs: list[tuple[str, int, list[tuple[str, bytes]]]],
) -> None:
    runs = RunBatch(
        [
            MessageRun(
                partition.encode(),
                flags,
                TextBlock.of_texts([text for text, _ in messages]),
                TextBlock.of([payload for _, payload in messages]),
            )
            for partition, flags, messages in given_runs
        ]
    )
    rows = [(partition, flags, *message) for partition, flags, messages in given_runs for message in messages]
    batch = MessageBatch(
        payloads=[payload for *_, payload in rows],
        created_us=[5] * len(rows),
        partitions=[partition.encode() for partition, *_ in rows],
        transaction_ids=[text.encode() for _, _, text, _ in rows],
        flags=[flags for _, flags, *_ in rows],
    )
    written = block.framed(runs.body(5, TAG), 7, len(runs), (5, 5), compress=False)
    assert b"".join(written) == b"".join(block.encode([batch], 7, tag=TAG))
    assert (runs.variable_bytes, list(runs.payloads)) == (batch.variable_bytes, list(batch.payloads))
