"""The fixtures of stores and of dispatch, for the contract suites."""

from fixtures.fix_dispatch import flows, warm
from fixtures.fix_stores import clock, emptied_store_database, store, store_database, unopened_store, variant, woken

__all__ = [
    "clock",
    "emptied_store_database",
    "flows",
    "store",
    "store_database",
    "unopened_store",
    "variant",
    "warm",
    "woken",
]
