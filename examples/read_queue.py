# ruff: noqa: T201 - an example prints
"""Reads the queue `orders` into pandas and DuckDB, through Arrow and without Spark. DuckDB: `pip install duckdb`."""

from __future__ import annotations

import os

from forebay.client import Client


def main() -> None:
    with Client(os.environ.get("FOREBAY_URL", "http://127.0.0.1:6632")) as client:
        orders = client.read_arrow("orders")
    frame = orders.to_pandas()
    print(frame[["seq", "partition", "created_at", "payload"]].tail())
    try:
        import duckdb
    except ImportError:
        print("DuckDB is not installed")
        return
    totals = duckdb.sql("SELECT partition, sum((decode(payload)::JSON ->> 'total')::DOUBLE) FROM orders GROUP BY ALL")
    print(totals)


if __name__ == "__main__":
    main()
