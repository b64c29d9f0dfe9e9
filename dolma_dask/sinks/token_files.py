"""Writers of one shard in the formats of `dolma_dask.formats.token_files`, beside numpy's: each is what it adds to ids back to back, or a table.

Cost beside encoding: that of the ragged pair; see `dolma_dask.sinks.ragged`.
"""

from collections.abc import Callable
from typing import Any, Self

import numpy as np
import pyarrow as pa
from msgspec import UNSET, UnsetType

from dolma_dask.formats.mds import mds_head, mds_samples
from dolma_dask.formats.ragged import (
    RaggedNames,
    SourceRecord,
    SpellingRecord,
    TokenizerRecord,
    check_ids,
)
from dolma_dask.formats.token_files import (
    FORMATS,
    FormatName,
    datatrove_index,
    datatrove_metadata,
    dolma_rows,
    megatron_index,
)
from dolma_dask.io.publish import PublishedFile
from dolma_dask.io.records import FileRecord
from dolma_dask.sinks.base import TableFile
from dolma_dask.sinks.jsonl import MEMBER_BYTES, gzip_member
from dolma_dask.sinks.ragged import RaggedWriter, StagedItems, StagedWriter, TokenWriter, shard_record
from dolma_dask.sinks.segments import PATH
from dolma_dask.sinks.sink import DocumentRows
from dolma_dask.text.columns import string_parts
from dolma_dask.tokens.encoding import Tokens


class DolmaWriter(StagedWriter):
    """Writes ids without a header, and a table of the documents."""

    format = "dolma"

    def __enter__(self) -> Self:
        super().__enter__()
        self._table = StagedItems(np.dtype(np.uint8), self._stack)
        return self

    def stage(self, tokens: Tokens, rows: DocumentRows | None) -> None:
        """Keep ids, and the lines of the table."""
        assert rows is not None
        super().stage(tokens, rows)
        batch = rows.batch
        paths = "" if self.source is None else self.source.path
        paths = batch.column(PATH) if PATH in batch.schema.names else paths
        lines = dolma_rows(batch.column("id"), tokens.lengths, self.tokens, paths, rows.numbers)
        offsets, text = string_parts(lines)
        self._table.append(text[offsets[0] : offsets[-1]])

    def beside(self, suffix: str, out: PublishedFile) -> None:
        """Write the table; without documents too it is a valid file."""
        for piece in self._table.pieces(MEMBER_BYTES) if self.documents else [np.empty(0, np.uint8)]:
            for part in gzip_member(piece.data):
                out.write(part)


class MegatronWriter(StagedWriter):
    """Writes ids without a header, and the index of Megatron-LM."""

    format = "megatron"

    def beside(self, suffix: str, out: PublishedFile) -> None:
        """Write the index."""
        for part in megatron_index(self.dtype, self.documents, self.lengths.pieces):
            out.write(part)


class DatatroveWriter(StagedWriter):
    """Writes ids without a header, and the ends of documents."""

    format = "datatrove"

    def beside(self, suffix: str, out: PublishedFile) -> None:
        """Write the ends, or what is said of the ids."""
        if suffix == ".ds.metadata":
            name = self.tokenizer.file or self.tokenizer.fingerprint
            out.write(datatrove_metadata(name, self.dtype, self.tokens))
            return
        for part in datatrove_index(self.lengths.pieces()):
            out.write(part)


class MdsWriter(StagedWriter):
    """Writes samples of MosaicML's streaming datasets; ``index.json`` is made of all shards."""

    format = "mds"

    def __enter__(self) -> Self:
        super().__enter__()
        self._samples = StagedItems(np.dtype(np.uint8), self._stack)
        self._sizes = StagedItems(np.dtype(np.int64), self._stack)
        return self

    def stage(self, tokens: Tokens, rows: DocumentRows | None) -> None:
        """Keep samples."""
        assert rows is not None
        ids = tokens.ids.astype(self.dtype, copy=False)
        parts, sizes = mds_samples(rows.batch.column("id"), ids, tokens.lengths)
        self._samples.append(np.frombuffer(b"".join(parts), np.uint8))
        self._sizes.append(sizes)

    def write_ids(self, out: PublishedFile) -> None:
        """Write the places of samples, and the samples."""
        for part in mds_head(self.documents, self._sizes.pieces(), url=out.url):
            out.write(part)
        self._samples.copy_to(out)


GROUP_TOKENS = 1 << 20
"""Tokens after which a row group ends, at the next end of a document; a document counts for `_ROW_TOKENS` more, so that empty ones end groups too."""

_ROW_TOKENS = 16


class ParquetTokenWriter(TableFile):
    """Writes a row per document; the record of origin stands in the footer, under ``dolma_dask``."""

    def __init__(
        self,
        folder: str,
        names: RaggedNames,
        tokenizer: TokenizerRecord,
        *,
        source: SourceRecord | None = None,
    ) -> None:
        path = names.stem + FORMATS["parquet"].data
        super().__init__(folder, path, use_dictionary=False)
        self.tokenizer, self.source = tokenizer, source
        self.dtype = FORMATS["parquet"].dtype(tokenizer.vocab_size - 1)
        self.special_tokens: SpellingRecord | UnsetType = UNSET
        self.lossy_documents = 0
        self.documents = self.tokens = 0
        self.largest_id: int | None = None
        tokens = pa.list_(pa.field("element", pa.from_numpy_dtype(self.dtype), nullable=False))
        columns = {"id": pa.large_string(), "input_ids": tokens, "length": pa.int32()}
        self._schema = pa.schema([pa.field(name, kind, nullable=False) for name, kind in columns.items()])
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_cost = 0

    @property
    def files(self) -> tuple[FileRecord, ...]:
        """The file, after a clean exit."""
        return (self.record,)

    def write(self, tokens: Tokens, rows: DocumentRows) -> None:
        """See `TokenWriter`."""
        largest = check_ids(tokens.ids, self.tokenizer.vocab_size - 1, where=self._url)
        self.largest_id = largest if self.largest_id is None else max(largest or 0, self.largest_id)
        self.documents += tokens.lengths.size
        self.tokens += tokens.ids.size
        batch = self._batch(tokens, rows)
        costs, done = np.cumsum(tokens.lengths.astype(np.int64) + _ROW_TOKENS), 0
        while (stop := int(np.searchsorted(costs, GROUP_TOKENS - self._waiting_cost)) + 1) <= batch.num_rows:
            self._end_group(batch.slice(done, stop - done))
            costs, done = costs - costs[stop - 1], stop
        self._waiting.append(batch.slice(done))
        self._waiting_cost += max(int(costs[-1]), 0) if costs.size else 0

    def _batch(self, tokens: Tokens, rows: DocumentRows) -> pa.RecordBatch:
        offsets = np.zeros(tokens.lengths.size + 1, np.int32)
        np.cumsum(tokens.lengths, out=offsets[1:])
        ids = pa.array(tokens.ids.astype(self.dtype, copy=False))
        columns = [
            rows.batch.column("id").cast(pa.large_string()),
            pa.ListArray.from_arrays(pa.array(offsets), ids),
            pa.array(tokens.lengths),
        ]
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)

    def _options(self, schema: pa.Schema) -> dict[str, Any]:
        """Return snappy as the compression: ids shrink to 40 %, at two thirds of zstd's time."""
        return {"compression": "snappy", "write_page_checksum": True}

    def _end_group(self, last: pa.RecordBatch) -> None:
        table = pa.Table.from_batches([*self._waiting, last], self._schema)
        self._write_group(table.combine_chunks())  # pages end with chunks
        self._waiting, self._waiting_cost = [], 0

    def _finish(self) -> None:
        if self._waiting_cost:
            self._end_group(pa.RecordBatch.from_pylist([], self._schema))
        record = shard_record(self, "parquet", {})
        self._open(self._schema).add_key_value_metadata({"dolma_dask": record.to_json().decode()})


WRITERS: dict[FormatName, Callable[..., TokenWriter]] = {
    "numpy": RaggedWriter,
    "parquet": ParquetTokenWriter,
    "dolma": DolmaWriter,
    "megatron": MegatronWriter,
    "datatrove": DatatroveWriter,
    "mds": MdsWriter,
}
