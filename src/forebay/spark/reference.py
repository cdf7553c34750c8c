"""The reference page of the options, made from their table: `python -m forebay.spark.reference`."""

from __future__ import annotations

import sys

from forebay.spark.option_table import EVERY, OPTIONS

_HEAD = """# Options of `format("forebay")`

Made from the table in `src/forebay/spark/option_table.py` by `python -m forebay.spark.reference`. Case does not matter.
An option that does not exist, or that belongs to another use, is refused. How they work together:
[Spark](../guides/spark.md).

| option | for | default | meaning |
|---|---|---|---|
"""


def page() -> str:
    rows = []
    for option in OPTIONS:
        uses = "all" if option.uses == EVERY else ", ".join(f"`{use}`" for use in option.uses)
        rows.append(f"| `{option.name}` | {uses} | {option.default or 'none'} | {option.meaning} |\n")
    return _HEAD + "".join(rows)


if __name__ == "__main__":
    sys.stdout.write(page())
