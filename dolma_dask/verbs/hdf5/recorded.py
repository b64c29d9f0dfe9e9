"""The table of `hdf5` in a report: the rows that it has packed."""

from collections.abc import Iterator

from dolma_dask.display import counted, shown_name
from dolma_dask.results.summary import Recorded
from dolma_dask.results.table import Column, Table

_COLUMNS = (
    Column("mode", "name"),
    Column("left out", is_quiet=True),
    Column("rows"),
    Column("sequences per row", "real"),
    Column("tokens to predict"),
    Column("tokens only read", is_quiet=True),
    Column("padding"),
    Column("packing efficiency", "share"),
    Column("files"),
    Column("size", "size"),
)

_ONLY_READ = "Tokens that are only read are those of prompts, and the last one of a row."

_LEFT_OUT = (
    "Left out are documents, or pairs of a prompt and an answer, that are too long, too short or empty."
)


def recorded_tables(step: Recorded) -> Iterator[Table]:
    """Yield the table of the rows that hdf5 has packed."""
    parts = [record for record in step.records if "rows" in record.counts and "rows" in record.info]
    rows, predicted, padding = (
        int(sum(record.counts[name] for record in parts)) for name in ("rows", "loss_tokens", "pad_tokens")
    )
    positions = sum(record.info["rows"]["tokens"] for record in parts)
    written = [file.bytes for record in parts for file in record.files if file.path.endswith(".h5")]
    read = positions - padding - predicted
    cells = (
        step.params.get("mode", "LMData"),
        _left_out(step),
        rows,
        _sequences(step) / rows if rows and _sequences(step) else None,
        predicted,
        read,
        padding,
        1 - padding / positions if positions else None,
        len(written),
        sum(written),
    )
    length = counted(step.params.get("max_seq_length", 2048), "token")
    words = [
        f"Rows of {length}; the efficiency is the share of their positions that hold tokens and no padding.",
        *([_ONLY_READ] if read else ()),
        *([_LEFT_OUT] if _left_out(step) else ()),
    ]
    yield Table(
        shown_name(step.root),
        _COLUMNS,
        [cells] if parts or _left_out(step) else [],
        " ".join(words),
        section="Packed rows",
    )


def _sequences(step: Recorded) -> int:
    """Return how many sequences the rows were made of; 0 where all documents are one stream."""
    sums = (part for record in step.records for part in record.info.get("parts", ()))
    return sum(segments for _, _, segments in sums)


def _left_out(step: Recorded) -> int:
    """Return how many documents, or pairs of them, made no row."""
    return sum(record.info["texts"]["empty"] for record in step.records if "parts" in record.info)
