"""`forebay bench dispatch`: parcels through dispatch, beside what was promised and beside a bare loop on Valkey.

| figure | beside | goal |
|---|---|---|
| enqueue, lease and complete, 100 at a time, embedded | 10,000 parcels/s | 1 |
| the same on PostgreSQL and Valkey | 5,000 parcels/s | 1 |
| the warm tier alone: add and take | a bare Lua claim loop on the same Valkey | 0.5 |
| cold to warm | 20,000 parcels/s | 1 |
| detailed metrics, 1M cold in 50 classes | 200 ms | at most 1 |
| a lease, and a refill, with 1M cold | with 10,000 cold | at most 1.5 |
| lease and complete while a class is cold | while it is warm | 0.9 |
| pushes beside a dispatch that is idle | without one | 0.95 |
| pops beside it | without one | 0.95 |

In process, on one event loop, with the stores and servers that a Forebay has: what HTTP costs is measured elsewhere.
`loads` has the parts, `suite` the figures.
"""
