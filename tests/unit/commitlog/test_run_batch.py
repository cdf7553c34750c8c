"""Records that are written from runs: the same bytes as from a `MessageBatch` with the same messages."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from forebay.commitlog import block
from forebay.commitlog.runs import RunBatch
from forebay.model.message import MessageBatch
from forebay.model.push_run import PushRun
from forebay.model.text_block import TextBlock

TAG = bytes(range(16))
PAYLOADS = st.one_of(st.binary(max_size=9), st.integers(16_000, 17_000).map(bytes))
IDS = st.one_of(st.text(max_size=3), st.just("even"))
TRACES, HEADERS = st.sampled_from(["", "", "trace"]), st.sampled_from([b"", b"", b"{}"])
MESSAGES = st.tuples(st.sampled_from(["p", "p", "pä", ""]), IDS, PAYLOADS, TRACES, HEADERS)
RUNS = st.lists(
    st.tuples(st.booleans(), st.booleans(), st.booleans(), st.lists(MESSAGES, min_size=1, max_size=8)),
    min_size=1,
    max_size=5,
)
Messages = list[tuple[str, str, bytes, str, bytes]]


@given(RUNS)
def test_record_of_runs_is_that_of_the_same_messages(given_runs: list[tuple[bool, bool, bool, Messages]]) -> None:
    runs = []
    for is_minted, is_binary, has_more, messages in given_runs:
        partitions, ids, payloads, traces, headers = map(list, zip(*messages, strict=True))
        more = (traces, headers) if has_more else ()
        runs.append(PushRun("q", partitions, TextBlock.of(payloads), ids, is_minted, is_binary, *more))
    rows = [
        (partition, own_id, payload, trace if has_more else "", header if has_more else b"", 4 * minted | binary)
        for minted, binary, has_more, messages in given_runs
        for partition, own_id, payload, trace, header in messages
    ]
    trace_ids, all_headers = [trace.encode() for *_, trace, _, _ in rows], [header for *_, header, _ in rows]
    batch = MessageBatch(
        payloads=[payload for _, _, payload, *_ in rows],
        created_us=[5] * len(rows),
        partitions=[partition.encode() for partition, *_ in rows],
        transaction_ids=[own_id.encode() for _, own_id, *_ in rows],
        trace_ids=trace_ids if any(trace_ids) else None,
        headers=all_headers if any(all_headers) else None,
        flags=[flags for *_, flags in rows],
    )
    record = RunBatch(runs)
    written = block.framed(record.body(5, TAG), 7, len(record), (5, 5), compress=False)
    assert b"".join(written) == b"".join(block.encode([batch], 7, tag=TAG))
    assert (record.variable_bytes, list(record.payloads)) == (batch.variable_bytes, list(batch.payloads))
