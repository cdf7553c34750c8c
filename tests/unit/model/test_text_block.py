"""Values in one piece of memory: each is found where it ends, whatever its size."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.model.ids import CountedIds
from forebay.model.text_block import TextBlock


@given(st.lists(st.binary(max_size=6), max_size=12))
def test_values_are_found_again(values: list[bytes]) -> None:
    block = TextBlock.of(values)
    assert (list(block), len(block), block.data) == (values, len(values), b"".join(values))


@given(st.lists(st.text(max_size=4), max_size=12))
def test_texts_are_held_as_utf_8(texts: list[str]) -> None:
    assert list(TextBlock.of_texts(texts)) == [text.encode() for text in texts]


@pytest.mark.parametrize("texts", [["ab", "cd", "ef"], CountedIds("x-", 254, 5)])
def test_texts_of_one_size_have_that_size(texts: list[str]) -> None:
    block = TextBlock.of_texts(texts)
    assert set(block.sizes) == {len(texts[0])}
    assert list(block) == [text.encode() for text in texts]


def test_counted_ids_that_grow_longer_are_found_too() -> None:
    ids = CountedIds("x-", (1 << 48) - 2, 4)
    assert list(TextBlock.of_texts(ids)) == [one.encode() for one in ids]
