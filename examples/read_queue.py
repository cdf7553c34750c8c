# ruff: noqa: T201 - an example prints
"""Reads the queue `orders` into pandas and asks DuckDB about it, through Arrow and without Spark.

pip install duckdb
forebay serve &
forebay push orders/berlin '{"id": 1, "total": 250}'
python examples/read_queue.py
"""

from __future__ import annotations

import json
import os

import duckdb

from forebay.client import Client

# %% A queue as an Arrow table: seq, partition, transaction_id, trace_id, headers, created_at, payload.
with Client(os.environ.get("FOREBAY_URL", "http://127.0.0.1:6632")) as client:
    orders = client.read_arrow("orders")
print(f"{orders.num_rows} orders, {orders.nbytes} bytes")

# %% In pandas.
frame = orders.to_pandas()
frame["total"] = [json.loads(payload)["total"] for payload in frame["payload"]]
print(frame.groupby("partition")["total"].sum().to_string())

# %% In DuckDB, which finds the Arrow table by its name.
totals = duckdb.sql("""
    SELECT partition, count(*) AS orders, sum((decode(payload)->>'$.total')::DOUBLE) AS total
    FROM orders GROUP BY partition ORDER BY partition
""")
for row in totals.fetchall():
    print(*row)
