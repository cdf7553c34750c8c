"""Frames and events: what is written is read back, and damage costs what it hit and nothing else."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from forebay.broker.encryption import Cipher
from forebay.errors import Permanent
from forebay.filesystem import File, RealFilesystem
from forebay.ingest.event import Event, NotAnEvent, frames_of, read_event, runs_of
from forebay.ingest.frames import Chunk, chunks
from forebay.model.push_run import PushRun, run_of_one
from forebay.testing.simulated_disk import SimulatedDisk

GOLDEN = Path(__file__).parents[2] / "data" / "ingest" / "failover.buf"
ORDER = run_of_one("orders", "p", b'{"n": 1}', "id-1", True, "trace", b"", False, "shop", "bill")
BYTES = run_of_one("files", "Default", b'\x00\xff{"', "id-2", False, "", b"\x01", True)


def framed(*items: PushRun, cipher: Cipher | None = None) -> list[bytes]:
    return frames_of(items, is_failover=True, now_us=1_700_000_000_000_000, cipher=cipher)


def file_of(data: bytes) -> File:
    disk = SimulatedDisk()
    file = disk.open(Path("/f"), create=True)
    file.write_at([data], 0)
    return file


def scanned(data: bytes, **limits: int) -> tuple[list[Event], list[Chunk]]:
    found = list(chunks(file_of(data), 0, len(data), **limits))
    assert [chunk.start for chunk in found[1:]] == [chunk.end for chunk in found[:-1]]
    assert not found or found[-1].end == len(data)
    return [event for chunk in found for event in chunk.events], found


def test_golden_bytes_are_still_written_and_read() -> None:
    data = b"".join(framed(ORDER, BYTES))
    assert data == GOLDEN.read_bytes()
    events, _ = scanned(GOLDEN.read_bytes())
    runs = runs_of(events, None)
    assert list(map(described, runs)) == [described(ORDER), described(BYTES)]
    assert not any(run.is_minted for run in runs)


def described(run: PushRun) -> tuple[object, ...]:
    """All but whether its ids were minted: a drained message's id counts as its producer's."""
    return run.queue, run.is_binary, run.namespace, run.task, list(run.rows())


def test_event_has_the_names_that_other_programs_know() -> None:
    [frame] = framed(ORDER)
    told = json.loads(frame[4:])
    assert int.from_bytes(frame[:4], "little") == len(frame) - 4
    assert told["payload"] == {"n": 1}
    assert {"queue", "partition", "namespace", "task", "traceId", "transactionId", "failover", "crc"} <= set(told)


def test_payload_text_is_copied_as_it_came() -> None:
    assert b'"payload":{"n": 1}' in framed(ORDER)[0]


def test_event_of_another_program_is_read() -> None:
    text = b'{"queue":"events","payload":{"type":"login"},"transactionId":"t"}'
    events, _ = scanned(len(text).to_bytes(4, "little") + text)
    [run] = runs_of(events, None)
    assert described(run) == described(run_of_one("events", "Default", b'{"type":"login"}', "t"))


@pytest.mark.parametrize("place", range(0, 150, 7))
def test_flipped_bit_is_noticed_wherever_it_is(place: int) -> None:
    body = bytearray(framed(ORDER)[0][4:])
    body[place] ^= 0x10
    with pytest.raises(NotAnEvent):
        read_event(bytes(body))


def test_sealed_payload_is_not_readable_in_the_file() -> None:
    cipher = Cipher(bytes(32))
    secret = run_of_one("orders", "p", b'{"card": "4111"}', "id-1")
    [frame] = framed(secret, cipher=cipher)
    assert b"4111" not in frame
    [event], _ = scanned(frame)
    [run] = runs_of([event], cipher)
    assert described(run) == described(secret)
    with pytest.raises(Permanent, match="no key"):
        runs_of([event], None)


@pytest.mark.parametrize("cut", range(1, 60, 5))
def test_torn_end_costs_the_last_event(cut: int) -> None:
    data = b"".join(framed(ORDER, BYTES))[:-cut]
    events, found = scanned(data)
    assert [event.transaction_id for event in events] == ["id-1"]
    [damage] = found[-1].damages
    assert (damage.position, damage.is_torn_tail) == (len(framed(ORDER)[0]), True)
    assert damage.position + damage.size == len(data)


def test_what_is_appended_behind_a_torn_frame_is_found() -> None:
    whole = framed(ORDER, BYTES)
    data = whole[0][:-9] + whole[1] + whole[0]
    events, found = scanned(data)
    assert [event.transaction_id for event in events] == ["id-2", "id-1"]
    assert [damage.is_torn_tail for chunk in found for damage in chunk.damages] == [False]


@pytest.mark.parametrize("text", [b"", b"notes to myself\n", b"\0" * 5000, b'{"' * 3000, b"\xff" * 300])
def test_foreign_file_holds_no_events_and_is_passed_over_whole(text: bytes) -> None:
    events, found = scanned(text)
    assert events == []
    assert sum(damage.size for chunk in found for damage in chunk.damages) == len(text)


def test_event_larger_than_a_chunk_is_read_whole() -> None:
    large = run_of_one("orders", "p", b'"%b"' % (b"x" * 10_000), "large")
    events, found = scanned(b"".join(framed(ORDER, large, ORDER)), bytes_max=512)
    assert [event.transaction_id for event in events] == ["id-1", "large", "id-1"]
    assert not any(chunk.damages for chunk in found)


@settings(max_examples=300, deadline=None)
@given(
    sizes=st.lists(st.integers(0, 300), min_size=1, max_size=12),
    spoilt=st.sets(st.integers(0, 11)),
    seed=st.randoms(use_true_random=False),
    bytes_max=st.sampled_from([64, 500, 4096]),
    events_max=st.sampled_from([1, 3, 100]),
)
def test_only_spoilt_events_are_missing(
    sizes: list[int], spoilt: set[int], seed: object, bytes_max: int, events_max: int
) -> None:
    items = [run_of_one("q", "p", b'"%b"' % (b"{" * size), f"id-{n}") for n, size in enumerate(sizes)]
    frames = framed(*items)
    for n in spoilt & set(range(len(frames))):
        data = bytearray(frames[n])
        place = seed.randrange(len(data))  # type: ignore[attr-defined]
        data[place] ^= 1 << seed.randrange(8)  # type: ignore[attr-defined]
        frames[n] = bytes(data) if seed.random() < 0.7 else bytes(data[:place])  # type: ignore[attr-defined]
    events, found = scanned(b"".join(frames), bytes_max=bytes_max, events_max=events_max)
    expected = [item.transaction_ids[0] for n, item in enumerate(items) if n not in spoilt]
    assert [event.transaction_id for event in events] == expected
    spans = sum(end - start for chunk in found for start, end in chunk.spans)
    damaged = sum(damage.size for chunk in found for damage in chunk.damages)
    assert spans + damaged == sum(map(len, frames))


def test_real_file_is_read_like_a_simulated_one(tmp_path: Path) -> None:
    path = tmp_path / "failover.buf"
    path.write_bytes(b"".join(framed(*[ORDER] * 5000)))
    file = RealFilesystem().open(path)
    assert sum(len(chunk.events) for chunk in chunks(file, 0, file.size())) == 5000
    file.close()


def test_event_of_an_encoding_that_is_not_known_is_refused_and_not_decoded() -> None:
    """A newer Forebay may have written it. Its bytes are set aside by the scan, as all that holds no event."""
    event = read_event(framed(BYTES)[0][4:])
    newer = msgspec.json.encode(replace(event, encoding="zstd-base64", crc="", check=""))
    with pytest.raises(NotAnEvent, match="its encoding 'zstd-base64' is not known: a newer Forebay wrote it"):
        read_event(newer)
    before, behind = framed(ORDER), framed(BYTES)
    found, parts = scanned(b"".join([*before, len(newer).to_bytes(4, "little"), newer, *behind]))
    assert [one.transaction_id for one in found] == ["id-1", "id-2"]
    [damage] = [damage for part in parts for damage in part.damages]
    assert (damage.position, damage.size) == (sum(map(len, before)), 4 + len(newer))
    assert "a newer Forebay" in damage.reason
