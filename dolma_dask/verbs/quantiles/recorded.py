"""The tables of `quantiles` in a report: one for each file of a dataset that is there."""

from collections.abc import Iterator

from msgspec.structs import replace

from dolma_dask.display import isolated, shown_name
from dolma_dask.errors import DolmaDaskError
from dolma_dask.io import files
from dolma_dask.reading.quantiles import quantile_table
from dolma_dask.reading.thresholds import read_table
from dolma_dask.results.summary import Recorded
from dolma_dask.results.table import Table

SECTION = "Quantiles"

MAX_ROWS = 200
"""Rows of a table in a report; the file has all."""


def recorded_tables(step: Recorded) -> Iterator[Table]:
    """Yield a table for each file of quantiles."""
    for record in step.records:
        parameters = record.info.get("parameters")
        if parameters is None:
            continue
        try:
            quantiles = read_table(files.join(step.root, record.unit))
        except (DolmaDaskError, OSError) as error:
            yield Table(record.unit, (), (), f"could not be read: {error}", section=SECTION)
            continue
        table = quantile_table(quantiles, parameters, {})
        by = parameters.get("by") or []
        columns = " and ".join(map(isolated, [by] if isinstance(by, str) else by))
        more = (
            f" The first {MAX_ROWS} of {len(table.rows):,} lines; {record.unit} has them all."
            if len(table.rows) > MAX_ROWS
            else ""
        )
        yield replace(
            table,
            title=f"{shown_name(step.root)}/{record.unit}" + (f", by {columns}" if by else ""),
            rows=table.rows[:MAX_ROWS],
            caption=table.caption + more,
            section=SECTION,
            is_detail=True,
        )
