"""The variants of `forebay.broker.store.Store`. The same part has the same module name in each of them.

`pushing`, `popping`, `acknowledging`, `transactions`, `staging` and `committing` (batches from Spark), `reading`
(ranges), `groups`, `dead_letters`, `browsing`, `deletion`, `retention` and `purging`, `traces`, `flows`; `queries`
reads the statements, and `store` is the whole. What a store needs beside these is named after what it is.
"""
