"""What `transform` may give, and what a record is."""

from __future__ import annotations

import pytest

from forebay.flows import Error, Filter, Record, RecordAction, Result, Results
from forebay.flows.record_action import as_results
from forebay.flows.registry import NotFound, find_action


def test_mapping_counts_as_a_result_and_several_results_stay_in_order() -> None:
    assert as_results({"a": 1}) == [Result({"a": 1})]
    assert as_results(Results([Result({"a": 1}, {"why": "x"}), {"a": 2}])) == [
        Result({"a": 1}, {"why": "x"}),
        Result({"a": 2}),
    ]


def test_filter_and_error_stay_what_they_are() -> None:
    assert as_results(Filter("test")) == Filter("test")
    assert as_results(Error("no user")) == Error("no user")


def test_split_into_nothing_is_counted_as_filtered() -> None:
    assert as_results(Results([])) == Filter("no results")


@pytest.mark.parametrize(("given", "name"), [(None, "None"), ("text", "str"), (Results([None]), "None")])  # type: ignore[list-item]
def test_what_is_no_outcome_is_refused_by_its_name(given: object, name: str) -> None:
    with pytest.raises(TypeError, match=f"transform gave {name}, and not a Result, Results, Filter, Error"):
        as_results(given)


def test_record_gives_its_columns_by_name_and_names_them_where_one_is_missing() -> None:
    record = Record.of({"user": "ann", "ms": 3})
    assert (record["user"], record.get("ms"), record.get("city"), record.get("city", "?")) == ("ann", 3, None, "?")
    assert record.columns == ("user", "ms")
    assert dict(record) == {"user": "ann", "ms": 3}
    with pytest.raises(KeyError, match="no column 'city'; the columns are user, ms"):
        record["city"]


def test_class_of_either_kind_is_found_and_any_other_is_refused() -> None:
    assert find_action("forebay.flows.RecordAction") is RecordAction
    with pytest.raises(NotFound, match="DataFrameAction or RecordAction"):
        find_action("forebay.flows.Flow")
