"""One attribute file read beside its documents: row by row the same ids and sources, and in the end the same digests."""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from functools import lru_cache
from typing import Any

import pyarrow as pa

from dolma_dask.dataset import Shard
from dolma_dask.errors import AlignmentError, DataError, StaleAttributesError
from dolma_dask.formats import layout
from dolma_dask.formats.levels import kinds_to_read, unpacked
from dolma_dask.io import files
from dolma_dask.io.attributes import AttributeBlock, AttributeFile, empty_block
from dolma_dask.io.files import FileInfo
from dolma_dask.io.parquet import open_parquet
from dolma_dask.io.records import BadRecord, Block, InputRecord
from dolma_dask.io.stream import StoredFile, compression_of, read_lines
from dolma_dask.journal import is_same_file
from dolma_dask.reading.sets import AttributeSource, Proof, advice, not_as_written
from dolma_dask.text import compute as pc

_SHOWN = 200
"""Characters of an id that an error shows."""

REMEMBERED = 4096
"""Facts about files that a process keeps."""


class Follower:
    """Reads one attribute file beside the documents and proves that it belongs to them.

    After `finish`, ``proved`` tells whether the journal's record of the file speaks of these documents.
    """

    def __init__(
        self,
        root: str,
        shard: Shard,
        source: AttributeSource,
        *,
        exact: bool = False,
        max_record_bytes: int,
        block_bytes: int,
        first_row: int = 0,
    ) -> None:
        self.source = source
        self.proved = False
        self._root = root
        self._shard = shard
        url = files.join(root, source.info.path)
        kinds = kinds_to_read(source.kinds, source.levels)
        self._file = AttributeFile(
            url,
            kinds,
            with_objects=source.with_objects,
            exact=exact,
            ids_as_text=shard.ids_as_text,
            max_record_bytes=max_record_bytes,
            block_bytes=block_bytes,
            start=source.start,
            first_row=first_row,
        )
        self._blocks = iter(self._file)
        self._rest = empty_block(kinds, with_objects=source.with_objects, exact=exact)
        self._row = first_row
        self._check_undigested()

    def _check_undigested(self) -> None:
        """Refuse flags of a dataset-wide set that depend on fields which no digest covers, if the document file is another one now."""
        proof, path = self.source.proof, layout.document_path(self._shard.path)
        if proof is None or not proof.is_dataset_wide or not proof.undigested:
            return
        if proof.documents is None or not is_still(proof.documents, files.join(self._root, path)):
            raise self._error(
                StaleAttributesError,
                f"{self.source.info.path} may be stale: it depends on {', '.join(proof.undigested)}, and {path} has been written since "
                f"`{proof.verb}` read it.",
            )

    @property
    def is_as_written(self) -> bool:
        """True if the file, read to its end, has the bytes of its record."""
        proof = self.source.proof
        return proof is None or proof.file.checksum == self._file.stored.checksum

    def close(self) -> None:
        """Close the file."""
        self._blocks.close()

    def take(self, block: Block) -> Mapping[str, pa.Array]:
        """Return the attributes of the rows of `block`, after comparing ids and sources if it has them."""
        parts: list[AttributeBlock] = []
        ids, sources = _identities(block)
        at = 0
        while at < block.num_rows:
            part = self._next(block.num_rows - at)
            if part is None:
                raise self._difference(f"no row, expected {'one' if ids is None else f'id {_show(ids[at])}'}")
            count = len(part.ids)
            if ids is not None and sources is not None:
                self._compare(ids.slice(at, count), sources.slice(at, count), part, block.bad)
            parts.append(part)
            at += count
            self._row += count
        return named(self.source, _concatenate(parts, self._rest))

    def lead(self, rows: int = sys.maxsize) -> Iterator[tuple[Block, Mapping[str, pa.Array]]]:
        """Yield up to `rows` of the file's own rows as if they were those of the documents, with the attributes of each block."""
        while rows and (part := self._next(rows)) is not None:
            batch = pa.RecordBatch.from_arrays([part.ids, part.sources], names=["id", "source"])
            yield Block(batch, part.first_row), named(self.source, part.columns)
            self._row += len(part.ids)
            rows -= len(part.ids)

    def _next(self, count: int) -> AttributeBlock | None:
        """Return up to `count` further rows, None at the end."""
        while not len(self._rest.ids):
            following = next(self._blocks, None)
            if following is None:
                return None
            self._rest = following
        count = min(count, len(self._rest.ids))
        part = self._rest.slice(0, count)
        self._rest = self._rest.slice(count, len(self._rest.ids) - count)
        return part

    def _compare(
        self, ids: pa.Array, sources: pa.Array, part: AttributeBlock, bad: Sequence[BadRecord]
    ) -> None:
        at, is_id = first_difference(ids, sources, part)
        if at < 0:
            return
        self._row += at
        name, ours, theirs = ("id", ids, part.ids) if is_id else ("source", sources, part.sources)
        why = next((f"; the document could not be read: {one}" for one in bad if one.row == self._row), "")
        found = f"{name} {_show(theirs[at])}, expected {_show(ours[at])}{why}"
        raise self._difference(found, _AS_THEN if why and theirs[at].is_valid else "")

    def finish(self, ids_digest: str, content_digest: str) -> InputRecord:
        """Check that no row is left and that the journal's record of the file, if there is one, speaks of these documents.

        An empty digest is not looked at: the document file itself is known to be the one that the record speaks of.
        """
        self._finish_rows()
        proof, stored = self.source.proof, self._file.stored
        if proof is not None:
            if not self.is_as_written:
                raise not_as_written(proof, self._shard.path, self.source.info)
            self._prove(proof, ids_digest, content_digest)
            self.proved = bool(proof.ids_digest)
        return stored.record(self.source.info.path)

    def finish_part(self, is_last: bool) -> None:
        """Check that the file is as it was written and did not change, and that no row is left if the part was the last one."""
        if is_last:
            self._finish_rows()
        self._file.stored.check_unchanged()
        proof = self.source.proof
        if proof is not None and not is_still(proof.file, self._file.url):
            raise not_as_written(proof, self._shard.path, self.source.info)

    def _finish_rows(self) -> None:
        extra = self._next(1)
        if extra is not None:
            raise self._difference(f"id {_show(extra.ids[0])}, expected the end")

    def _prove(self, proof: Proof, ids_digest: str, content_digest: str) -> None:
        documents = layout.document_path(self._shard.path)
        if ids_digest and proof.ids_digest not in ("", ids_digest):
            raise self._error(
                AlignmentError,
                f"{self.source.info.path} was made from other documents than {documents} (ids_digest {proof.ids_digest}, found "
                f"{ids_digest}).",
            )
        if content_digest and proof.reads_text and proof.content_digest != content_digest:
            raise self._error(
                StaleAttributesError,
                f"{self.source.info.path} is stale: {documents} has the same ids but other text than when `{proof.verb}` made it "
                f"(content_digest {proof.content_digest}, found {content_digest}).",
            )

    def _difference(self, found: str, what_next: str = "") -> DataError:
        """Return the error for the row at hand; both files are read to their ends for it."""
        documents = layout.document_path(self._shard.path)
        theirs, ours = (
            count_rows(files.join(self._root, path)) for path in (self.source.info.path, documents)
        )
        return self._error(
            AlignmentError,
            f"{self.source.info.path} has {theirs} row{'' if theirs == 1 else 's'}, {documents} has {ours}; first difference at row {self._row} ({found}).",
            what_next,
            row=self._row,
        )

    def _error(self, kind: type[DataError], found: str, what_next: str = "", **details: int) -> DataError:
        """Return an error about the attribute file that says what to do: unless that is given, how the file is made again."""
        name, shard, proof = self.source.name, self._shard.path, self.source.proof
        is_ours = proof is not None and proof.file.checksum == files.checksum(self._file.url)
        if proof is not None and not is_ours:
            kind = StaleAttributesError
        maker = self.source.maker if proof is None else proof.verb
        what_next = what_next or advice(name, shard, maker, is_ours=is_ours)
        return kind(f"{found} {what_next}", shard=shard, **details, attributes=name)


_AS_THEN = "It could when the attributes were made: read it with the same options (--ids-as-text, --max-record-bytes), or mend the document."


def count_rows(url: str) -> int:
    """Return the number of rows of a document or attribute file."""
    if layout.format_of(url) == "parquet":
        with open_parquet(url) as file:
            return int(file.metadata.num_rows)
    with closing(StoredFile(url)) as stored:
        blocks = read_lines(stored, compression_of(url))
        return sum(1 if block.oversize_bytes else len(block.starts) - 1 for block in blocks)


def is_still(record: InputRecord, url: str) -> bool:
    """Tell whether the file at `url` still holds the bytes of a record; a hash that had to be computed is remembered."""
    info = files.stat(url)
    return info is not None and remembered(_is_same_file, info)(record, url, info)


_is_same_file = lru_cache(maxsize=REMEMBERED)(is_same_file)


def remembered(known: Callable[..., Any], *infos: FileInfo) -> Callable[..., Any]:
    """Return a cached function, or the function itself where a file has no stamp that would tell its versions apart."""
    return known if all(info.stamp for info in infos) else known.__wrapped__  # type: ignore[attr-defined]


def checksum_of(url: str, info: FileInfo) -> str:
    """Return the checksum of a file as it was listed; it is hashed once per process."""
    digest: str = remembered(_checksum, info)(url, info)
    return digest


@lru_cache(maxsize=REMEMBERED)
def _checksum(url: str, info: FileInfo) -> str:
    """Return the checksum of a file; it has one for each identity (`info`)."""
    return files.checksum(url)


def _identities(block: Block) -> tuple[pa.Array | None, pa.Array | None]:
    """Return the ids and sources of a block that has both."""
    names = block.batch.schema.names
    return (
        (block.batch.column("id"), block.batch.column("source"))
        if {"id", "source"} <= set(names)
        else (None, None)
    )


def first_difference(ids: pa.Array, sources: pa.Array, part: AttributeBlock) -> tuple[int, bool]:
    """Return the first row of attributes that are of another document, -1 if none are, and whether its id tells so."""
    # a row without id stands for a document that could not be read, and so it must be on both sides
    other_id = pc.or_(_differs(ids, part.ids), pc.xor(pc.is_null(ids), pc.is_null(part.ids)))
    # the Dolma toolkit writes "" for documents without source, its deduplication no source at all
    other_source = pc.and_(_differs(sources, part.sources), pc.not_equal(pc.fill_null(part.sources, ""), ""))
    at = pc.index(pc.or_(other_id, other_source), True).as_py()
    return at, at >= 0 and other_id[at].as_py()


def named(source: AttributeSource, columns: Mapping[str, pa.Array]) -> Mapping[str, pa.Array]:
    """Return columns of an attribute file as they are requested, under the names that they have in the output."""
    if source.levels:
        columns = unpacked(columns, source.kinds, source.levels)
    if source.keys:
        columns = {column: columns[key] for column, key in source.keys.items()}
    return {source.prefix + key: array for key, array in columns.items()} if source.prefix else columns


def _differs(ours: pa.Array, theirs: pa.Array) -> pa.Array:
    return pc.fill_null(pc.not_equal(ours, theirs), False)


def _show(value: pa.Scalar) -> str:
    text = value.as_py()
    return "none" if text is None else repr(text[:_SHOWN])


def _concatenate(parts: Sequence[AttributeBlock], empty: AttributeBlock) -> Mapping[str, pa.Array]:
    if not parts:
        return empty.slice(0, 0).columns
    if len(parts) == 1:
        return parts[0].columns
    return {key: pa.concat_arrays([part.columns[key] for part in parts]) for key in parts[0].columns}
