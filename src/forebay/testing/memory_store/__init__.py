"""A store in memory: the semantics of every store in the plainest form, and a fast double for tests.

Nothing here is durable and nothing is clever: it looks through everything it holds. Where a real store and this one
disagree, the contract suite says which is right.

`contents` is what it holds. On it stand `pushing` (the way in), `delivering` (the way out), `groups`, `dead_letters`
and `browsing`; `store` puts them together.
"""

from forebay.testing.memory_store.store import MemoryStore

__all__ = ["MemoryStore"]
