"""The messages of the Spark benchmark, and what its plan decides before anything is measured."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from forebay.bench.spark.plan import MESSAGE_BYTES, Plan
from forebay.bench.spark.rows import SLOWEST_MS, payload, payload_or_bad
from forebay.errors import Permanent


@pytest.mark.parametrize("number", [0, 1, 999_999, 99_999_999])
def test_message_is_json_of_the_promised_size(number: int) -> None:
    text = payload(number)
    assert len(text) == MESSAGE_BYTES
    assert set(json.loads(text)) == {"user", "page", "ms", "text"}


def test_filter_of_the_benchmark_keeps_half_of_the_messages() -> None:
    slow = [number for number in range(SLOWEST_MS) if json.loads(payload(number))["ms"] >= SLOWEST_MS // 2]
    assert len(slow) == SLOWEST_MS // 2


def test_bad_rows_are_as_many_as_asked_for_and_no_json() -> None:
    for percent in (0, 1, 10):
        bad = [text for text in (payload_or_bad(number, percent) for number in range(1000)) if not text.endswith(b"}")]
        assert len(bad) == percent * 10
        for text in bad:
            with pytest.raises(ValueError, match="Unterminated string"):
                json.loads(text)


def test_plan_refuses_a_disk_without_room_and_tells_the_numbers(tmp_path: Path) -> None:
    Plan.quick().check_room(tmp_path)
    with pytest.raises(Permanent, match=r"1,000,000,000,000 messages .* take [0-9.]+ GiB"):
        Plan(messages=10**12).check_room(tmp_path)
