"""Documents as a dataframe of polars, which inflates .jsonl.gz itself: ``frame_polars.py ROOT COLUMNS``, or ``all`` for all columns.

With a set as the third word, its attributes are joined by id, as the column that stands in JSON.
"""

import sys
from pathlib import Path

import polars as pl


def lines(folder: Path) -> pl.LazyFrame:
    """Return all lines below a folder."""
    return pl.scan_ndjson(sorted(folder.rglob("*.jsonl.gz")))


if __name__ == "__main__":
    root, columns, *sets = sys.argv[1:]
    frame = lines(Path(root, "documents"))
    frame = frame if columns == "all" else frame.select(columns.split(","))
    for name in sets:
        frame = frame.join(lines(Path(root, "attributes", name)).select("id", "attributes"), on="id")
    print(frame.collect().shape)
