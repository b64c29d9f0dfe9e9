"""Attribute files read with the whole object of each row beside its columns: what is merged into documents, or shown to slow filters."""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dolma_dask.alignment import AlignedShard, AttributeSource
from dolma_dask.alignment.follower import Follower
from dolma_dask.formats.attribute_columns import column_texts
from dolma_dask.formats.json.attributes import AttributeKind, Form, scan_attributes
from dolma_dask.formats.json.block import SPAN, Lines, WantedKey, fill_strings
from dolma_dask.formats.json.exact import LineError, parse_object
from dolma_dask.formats.json.scan import RAW
from dolma_dask.formats.json.write import number_texts, validity
from dolma_dask.io import files
from dolma_dask.io.attributes import AttributeBlock, AttributeFile, empty_block
from dolma_dask.io.stream import MAX_RECORD_BYTES, compression_of, read_lines
from dolma_dask.mixing.splicing import Edit, binary_array, splice

OBJECT = "\x1fobject"
"""Name of the column that holds the attributes of each row as a JSON object; no attribute is called so."""

_OF_ROW = ("id", "source", "error", "attributes")


def member_texts(lines: Lines, name: str) -> pa.LargeStringArray:
    """Return the JSON text of one member of each line; null where it is absent or null, or the line cannot be read."""
    status = lines.utf8_status()
    found = lines.walk([WantedKey(name, 0, RAW, 0)], status)
    slow = {row: _member(lines.line(row), name) for row in np.flatnonzero(status).tolist()}
    return fill_strings(found.strings(0, unescape=False), slow)


def _member(line: bytes, name: str) -> str | None:
    try:
        raw = parse_object(line).get(name, b"null")
    except LineError:  # a bad record, which its reader tells
        return None
    return None if raw == b"null" else raw.decode()


class ObjectFile(AttributeFile):
    """An attribute file of JSON lines whose blocks have the column `OBJECT` besides those that are asked."""

    def _lines(self) -> Iterator[AttributeBlock]:
        form: Form | None = None
        for lines in read_lines(
            self.stored,
            compression_of(self.url),
            block_bytes=self.block_bytes,
            max_record_bytes=self.max_record_bytes,
        ):
            self._check_sizes(lines)
            form = form or self._form(lines)
            batch = scan_attributes(lines.data, lines.starts, self.kinds, form)
            for row, error in batch.errors:
                raise self._bad(lines, row, error.reason, error.expected)
            objects = _objects(Lines(lines.data, lines.starts), form)
            yield AttributeBlock(
                batch.ids, batch.sources, {**batch.columns, OBJECT: objects}, lines.first_row
            )


def _objects(lines: Lines, form: Form) -> pa.LargeStringArray:
    if form == "nested":
        return member_texts(lines, "attributes")
    rows = binary_array(lines.starts, lines.block)
    whole = splice(rows, [Edit(name, None) for name in _OF_ROW])
    return pc.utf8_rtrim(whole.cast(pa.large_string()), characters="\n")


class ObjectFollower(Follower):
    """A follower that gives the objects of its rows too."""

    def __init__(self, root: str, shard: Any, source: AttributeSource, **options: Any) -> None:
        super().__init__(root, shard, source, **options)
        self._file.stored.close()
        self._file = ObjectFile(
            files.join(root, source.info.path),
            source.kinds,
            max_record_bytes=options["max_record_bytes"],
            block_bytes=options["block_bytes"],
        )
        self._blocks = iter(self._file)
        none = empty_block(source.kinds)
        objects = {OBJECT: pa.array([], pa.large_string())}
        self._rest = AttributeBlock(none.ids, none.sources, {**none.columns, **objects}, 0)


@dataclass
class ObjectShard(AlignedShard):
    """A shard and its attribute files, see `AlignedShard`; attribute sets in `objects` give the column `OBJECT` too.

    Parameters
    ----------
    objects : frozenset of str
        Names of attribute sets, whose files are JSON lines.
    """

    objects: frozenset[str] = frozenset()

    def _follower(self, source: AttributeSource, stack: ExitStack, first_row: int = 0) -> Follower:
        if source.name not in self.objects:
            return super()._follower(source, stack, first_row)
        follower = ObjectFollower(
            self.root,
            self.shard,
            source,
            max_record_bytes=max(self.max_record_bytes, MAX_RECORD_BYTES),
            block_bytes=self.block_bytes,
        )
        stack.callback(follower.close)
        return follower


def as_spans(column: pa.Array, lengths: pa.Array) -> pa.ListArray:
    """Return a column of spans as it is; scores of documents as spans ``[0, length, score]``."""
    if not pa.types.is_floating(column.type):
        return column
    valid = validity(column)
    offsets = np.zeros(len(column) + 1, np.int32)
    np.cumsum(valid, out=offsets[1:])
    kept = pa.array(valid)
    ends = lengths.filter(kept).cast(pa.int64())
    starts = pa.array(np.zeros(len(ends), np.int64))
    spans = pa.StructArray.from_arrays([starts, ends, column.filter(kept)], fields=list(SPAN))
    mask = None if valid.all() else pa.py_buffer(np.packbits(valid, bitorder="little"))
    return pa.Array.from_buffers(pa.list_(SPAN), len(column), [mask, pa.py_buffer(offsets)], children=[spans])


def object_texts(
    columns: Mapping[str, pa.Array], kinds: Mapping[str, AttributeKind], lengths: pa.Array
) -> pa.LargeStringArray:
    """Return attributes that were read as columns as one JSON object per row; what is missing is left out.

    Parameters
    ----------
    columns, kinds : mapping
        By key, (n,) each.
    lengths : pyarrow.Array
        (n,) code points of the documents.
    """
    texts = {key: _texts(key, kinds[key], column, lengths).to_pylist() for key, column in columns.items()}
    objects = [
        _object({key: column[row] for key, column in texts.items()}, kinds) for row in range(len(lengths))
    ]
    return pa.array(objects, pa.large_string())


def _texts(key: str, kind: AttributeKind, column: pa.Array, lengths: pa.Array) -> pa.LargeStringArray:
    if kind in ("document", "spans"):
        return column_texts(key, "spans", as_spans(column, lengths))
    if pa.types.is_floating(column.type):
        return number_texts(column.fill_null(0.0).to_numpy(), validity(column), rounded=False)
    return column_texts(key, "scalar", column)


def _object(texts: Mapping[str, str | None], kinds: Mapping[str, AttributeKind]) -> str:
    inside: dict[str, Any] = {}
    for key, text in texts.items():
        if text is None:
            continue
        outer, _, inner = key.partition(".")
        if kinds[key] == "dict":
            inside.setdefault(outer, {})[inner] = msgspec.Raw(text.encode())
        else:
            inside[key] = msgspec.Raw(text.encode())
    return msgspec.json.encode(inside).decode()
