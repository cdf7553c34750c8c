"""Batches: what cannot be stored cannot be made."""

from __future__ import annotations

import pytest

from forebay.model.message import CREATED_US_MAX, MessageBatch


@pytest.mark.parametrize(
    ("columns", "complaint"),
    [
        ({"created_us": [1, 2]}, "unequal length"),
        ({"created_us": []}, "unequal length"),
        ({"partitions": []}, "unequal length: 0 values and 1 payloads"),
        ({"headers": [b"{}", b"{}"]}, "unequal length: 2 values and 1 payloads"),
        ({"flags": [0, 0]}, "unequal length"),
        ({"created_us": [-1]}, "created_us -1--1 is outside"),
        ({"created_us": [CREATED_US_MAX + 1]}, "is outside"),
    ],
)
def test_a_batch_that_could_not_be_stored_is_refused(columns: dict[str, list[int]], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        MessageBatch(**{"payloads": [b"a"], "created_us": [1], **columns})  # type: ignore[arg-type]


def test_a_batch_knows_the_bytes_of_its_columns() -> None:
    batch = MessageBatch([b"abc", b""], [1, 2], [b"eu", b"us"], headers=[b"", b"{}"])
    assert batch.variable_bytes == 3 + 4 + 2
