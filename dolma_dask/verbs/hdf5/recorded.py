"""The table of `hdf5` in a report: the rows that it has packed."""

from collections.abc import Iterator

from dolma_dask.display import counted, shown_name
from dolma_dask.results.summary import Recorded
from dolma_dask.results.table import Column, Table

_COLUMNS = (
    Column("rows"),
    Column("tokens to predict"),
    Column("other tokens"),
    Column("packing efficiency", "share"),
    Column("files"),
    Column("size", "size"),
)


def recorded_tables(step: Recorded) -> Iterator[Table]:
    """Yield the table of the rows that hdf5 has packed."""
    parts = [record for record in step.records if "rows" in record.counts]
    rows, tokens, padding = (
        int(sum(record.counts[name] for record in parts)) for name in ("rows", "loss_tokens", "pad_tokens")
    )
    written = [file.bytes for record in parts for file in record.files if not file.path.startswith("_")]
    efficiency = tokens / (tokens + padding) if tokens + padding else None
    length = counted(step.params.get("max_seq_length", 2048), "token")
    yield Table(
        shown_name(step.root),
        _COLUMNS,
        [(rows, tokens, padding, efficiency, len(written), sum(written))] if parts else [],
        f"Rows of {length}; the efficiency is the share of tokens to predict in them.",
        section="Packed rows",
    )
