"""Writer of the segments of one token file, which appear before it; see `dolma_dask.formats.segments`.

Cost: 0.2 us per segment, most of it to store its id; 2 to 25 bytes each, as ids repeat.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dolma_dask.formats.segments import SEGMENTS_SCHEMA, segments_path
from dolma_dask.io.files import join, remove
from dolma_dask.sinks.base import GroupedTable
from dolma_dask.sinks.sink import DocumentRows
from dolma_dask.text.columns import integers
from dolma_dask.tokens.segments import Placed, whole

PATH, ROW = "path", "row"
"""Columns of documents of several files: the path of each, and its row there."""

_REPEATED = ("source", "path")

_KINDS = [field.type.to_pandas_dtype() for field in list(SEGMENTS_SCHEMA)[:5]]

_TEXTS = {name: pa.large_string() for name in _REPEATED}
WAITING_SCHEMA = pa.schema([field.with_type(_TEXTS.get(field.name, field.type)) for field in SEGMENTS_SCHEMA])
"""Columns of segments before they are stored: texts as such, so that the file does not depend on batches."""

OWNER_SCHEMA = pa.schema(list(WAITING_SCHEMA)[5:])
"""Columns of documents that segments are of."""

GROUP_ROWS = 1 << 14
"""Segments of a row group: what is read to look up a row."""

_ENCODINGS = {
    name: "DELTA_BYTE_ARRAY" if name == "id" else "DELTA_BINARY_PACKED"
    for name in SEGMENTS_SCHEMA.names
    if name not in _REPEATED
}


def owners_of(rows: DocumentRows, path: str = "") -> pa.RecordBatch:
    """Return what is known of documents (n,) that segments will be of; `path` is that of their shard, unless each has one of its own."""
    count, known = rows.batch.num_rows, dict(zip(rows.batch.schema.names, rows.batch.columns, strict=True))
    nothing = pa.nulls(count, pa.large_string())
    columns = {
        "source": known.get("source", nothing),
        "id": known.get("id", nothing),
        "path": known.get(PATH, pa.repeat(pa.scalar(path, pa.large_string()), count)),
        "document": known.get(ROW, integers(rows.numbers)),
    }
    return pa.RecordBatch.from_arrays(
        [columns[field.name].cast(field.type) for field in OWNER_SCHEMA], schema=OWNER_SCHEMA
    )


def segment_rows(placed: Placed, owners: pa.RecordBatch, first_row: int = 0) -> pa.RecordBatch:
    """Return segments (n,) as rows, counted from `first_row` on; `owners` (n,) are the documents that they are of."""
    columns = (placed.row + first_row, placed.first, placed.place, placed.size, placed.start)
    numbers = [
        integers(column.astype(kind, copy=False)) for column, kind in zip(columns, _KINDS, strict=True)
    ]
    return pa.RecordBatch.from_arrays([*numbers, *owners.columns], schema=WAITING_SCHEMA)


class SegmentsWriter(GroupedTable):
    """Writes the segments of a token file, by the name of the file of its ids.

    Before they appear, an old file of that name goes: a token file that is there has its own segments.
    """

    def __init__(self, root: str, token_file: str) -> None:
        super().__init__(
            root, segments_path(token_file), WAITING_SCHEMA, GROUP_ROWS, use_dictionary=list(_REPEATED)
        )
        self._token_url = join(root, token_file)
        self._documents = 0

    def write_documents(self, lengths: NDArray[np.int32], rows: DocumentRows, path: str = "") -> None:
        """Append documents of these numbers of tokens (n,), each a row by itself; `path` as for `owners_of`."""
        self.write(segment_rows(whole(lengths), owners_of(rows, path), self._documents))
        self._documents += len(lengths)

    def write(self, segments: pa.RecordBatch | Sequence[pa.Array]) -> None:
        """Append segments, in the order of rows."""
        super().write(segments.columns if isinstance(segments, pa.RecordBatch) else segments)

    def _options(self, schema: pa.Schema) -> dict[str, Any]:
        return {**super()._options(schema), "column_encoding": _ENCODINGS}

    def _open(self, schema: pa.Schema) -> Any:
        return super()._open(SEGMENTS_SCHEMA)

    def _write_group(self, table: pa.Table) -> None:
        for name in _REPEATED:
            at = table.schema.get_field_index(name)
            texts = table.column(name).combine_chunks().dictionary_encode()
            table = table.set_column(at, SEGMENTS_SCHEMA.field(name), texts)
        super()._write_group(table)

    def _finish(self) -> None:
        super()._finish()
        remove(self._token_url)
