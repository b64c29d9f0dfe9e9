"""Raw files for `hdf5`, as create_hdf5_dataset reads them: a folder of .jsonl, .json.gz, .jsonl.zst, .jsonl.zst.tar, .parquet and .txt files.

One field of every record is the text: a string, a list of strings (joined by blank lines) or a number. A line may be a bare string. Modes that read
more than a text get whole records, as JSON. Files are read in the order of their paths.
"""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from typing import Any, ClassVar

import msgspec
import numpy as np
import pyarrow as pa
from msgspec import Struct
from numpy.typing import NDArray

from dolma_dask.dataset import matches, share_of
from dolma_dask.display import counted, isolated
from dolma_dask.engine import Input, inputs_of
from dolma_dask.engine.documents import DocumentList
from dolma_dask.errors import SchemaError, UsageError
from dolma_dask.formats import layout
from dolma_dask.formats.documents import RAW, encode_value, is_bytes, is_string, schema_of, text_bytes
from dolma_dask.formats.json.exact import Field, LineError, kind_of, parse_object
from dolma_dask.formats.json.lines import scan_fields
from dolma_dask.io import files
from dolma_dask.io.files import FileInfo
from dolma_dask.io.parquet import open_parquet, read_batches
from dolma_dask.io.quarantine import Quarantine, RecordPolicy
from dolma_dask.io.records import TOO_LARGE, BadRecord, Block, InputRecord, too_large
from dolma_dask.io.stream import BLOCK_BYTES, LineBlock, StoredFile
from dolma_dask.options.groups import ShardOptions
from dolma_dask.sinks.segments import PATH, ROW
from dolma_dask.sinks.sink import DocumentRows, ShardFacts
from dolma_dask.sources.base import finish
from dolma_dask.sources.mapping import FieldMapping
from dolma_dask.sources.naming import list_raw, split_suffix
from dolma_dask.sources.plan import open_sources, read_together
from dolma_dask.text import compute as pc
from dolma_dask.text.columns import not_utf8

UPSTREAM_SUFFIXES = (".jsonl", ".json.gz", ".jsonl.zst", ".jsonl.zst.tar", ".txt", ".parquet")
"""Files that ModelZoo 2.2 finds; others in the folder are passed over."""

MORE_SUFFIXES = (".jsonl.gz", ".json", ".json.zst", ".ndjson", ".tar", ".txt.gz", ".txt.zst")
"""Files that are read besides."""

_STORED = re.compile(
    r"\.(?:(?:arrow|feather|orc|avro|tfrecords?|warc|wet|zip|tar|parquet)(?:\.[a-z0-9]+)?|tgz|7z|xlsx)$"
)
"""Ends of the names of other files that hold data."""

_NAMED = 5
"""Files that are left out and named."""

_decode_string = msgspec.json.Decoder(str).decode
_decode_list = msgspec.json.Decoder(list[msgspec.Raw]).decode


class RawTexts(Struct, frozen=True):
    """Raw texts to read.

    Raises `UsageError`: neither folder nor metadata files are given.
    """

    input_dir: str | None = None  # folder that is searched
    # files with a path per line, relative to the current folder; `input_dir` is ignored then
    metadata_files: tuple[str, ...] = ()
    key: str = "text"  # field or column of the text
    # fields or columns, as dotted paths, of a mode that reads whole records; none: it reads texts
    fields: tuple[str, ...] = ()
    # as ModelZoo 2.2: records without the field, with null or with an empty value are skipped and counted; else the first two are bad
    is_lenient: bool = False
    told: Mapping[str, Mapping[str, Any]] = {}
    """What ``data_params.json`` says besides, by section; nothing that is written depends on it."""

    def __post_init__(self) -> None:
        if self.input_dir is None and not self.metadata_files:
            raise UsageError("neither input_dir nor metadata_files was given; expected one of them.")


def raw_documents(raw: RawTexts, options: ShardOptions) -> DocumentList:
    """Return the texts of raw files."""
    base, listed = list_raw(_named(raw.metadata_files) if raw.metadata_files else [str(raw.input_dir)])
    suffixes: tuple[str, ...] = UPSTREAM_SUFFIXES if raw.is_lenient else (*UPSTREAM_SUFFIXES, *MORE_SUFFIXES)
    if raw.fields:  # a text has no fields
        suffixes = tuple(suffix for suffix in suffixes if not suffix.startswith(".txt"))
    known = [info for info in listed if info.path.lower().endswith(suffixes)]
    only, prune = tuple(options.only or ()), options.prune
    matching = [info for info in known if not only or matches(info.path, only)]
    selected = share_of(matching, options.share)[:prune]
    if not selected or (prune is not None and prune < 1):
        raise UsageError(
            f"{base}: none of {counted(len(listed), 'file')} is to be read; expected {', '.join(suffixes)}. Name another folder, or convert the "
            "files: dolma-dask convert."
        )
    others = [info.path for info in listed if not info.path.lower().endswith(suffixes)]
    asked = [path for path in others if not only or matches(path, only)]
    lost = () if raw.is_lenient else [path for path in asked if _holds_data(path, has_texts=not raw.fields)]
    if lost:
        raise UsageError(
            f"{base}: {counted(len(lost), 'file')} with data of a kind that is not read here: {_names(lost)}; expected {', '.join(suffixes)}. Convert the files "
            "(dolma-dask convert), or move those away that are not meant. ModelZoo passes them over: compat=modelzoo-2.2."
        )
    notes = (f"{counted(len(others), 'file')} of another kind left out: {_names(others)}",) if others else ()
    field = WholeRecord(raw.fields) if raw.fields else TextField(raw.key, raw.is_lenient)
    read = {"fields": raw.fields} if raw.fields else {"key": raw.key, "is_lenient": raw.is_lenient}
    return DocumentList(
        origin=base,
        parts=tuple(RawSource(base, tuple(group), field) for group in read_together(selected)),
        shards=tuple(info.path for info in known),
        params=read,
        shown={} if raw.fields else {"jsonl_key": raw.key},
        notes=notes,
        is_narrowed=len(selected) < len(known),
    )


def _holds_data(path: str, *, has_texts: bool) -> bool:
    """Tell whether a file of another kind holds records, or where texts are read texts, by its name; what people write beside data is in no compressed file."""
    if layout.is_marker(path, is_raw=True):
        return False
    try:
        name = split_suffix(path)
    except UsageError:
        return _STORED.search(path.lower()) is not None
    is_text = name.kind == "text" and name.compression is not None
    return name.kind in ("jsonl", "csv", "tsv") or (has_texts and is_text)


def _names(paths: Sequence[str]) -> str:
    more = f" and {len(paths) - _NAMED} more" if len(paths) > _NAMED else ""
    return ", ".join(isolated(path) for path in paths[:_NAMED]) + more


def _named(metadata_files: Sequence[str]) -> list[str]:
    """Return the paths that metadata files list."""
    for url in metadata_files:
        if files.stat(url) is None:
            raise UsageError(
                f"metadata file {url}: there is no such file; expected one with the path of a raw file on every line."
            )
    lines = [line.strip() for url in metadata_files for line in _text_of_file(url).splitlines()]
    paths = [line if "://" in line else os.path.abspath(line) for line in lines if line]  # noqa: PTH100
    if not paths:
        raise UsageError(f"{', '.join(metadata_files)} list no files; expected a path on every line.")
    return paths


def _text_of_file(url: str) -> str:
    try:
        return files.read_bytes(url).decode()
    except UnicodeDecodeError as error:
        raise UsageError(
            f"metadata file {url} is not UTF-8 ({error}); expected one with the path of a raw file on every line."
        ) from None


class TextField(Struct, frozen=True):
    """The field of a record that holds its text; see `RawTexts` and `dolma_dask.sources.base.LineConverter`."""

    key: str
    is_lenient: bool
    schema: ClassVar[pa.Schema] = schema_of(("text",))

    def scan(self, lines: LineBlock) -> pa.RecordBatch | None:
        """Return the texts of objects that all have a string in the field; None if any has not."""
        batch, status = scan_fields(lines.data, lines.starts, [Field(self.key, required=True)])
        if status.any():
            return None
        texts = batch.column(0)
        if self.is_lenient:
            texts = pc.if_else(
                pc.equal(pc.binary_length(texts), 0), pa.scalar(None, pa.large_string()), texts
            )
        return pa.RecordBatch.from_arrays([texts], schema=self.schema)

    def convert_line(self, line: bytes, row: int = 0) -> tuple[str] | None:
        """Return the text of a JSON line; None for a record without one, where that is allowed."""
        record = parse_object(b'{"text":%b}' % line) if line.lstrip().startswith(b'"') else None
        key = self.key if record is None else "text"
        value = (parse_object(line) if record is None else record).get(key)
        text = None if value is None or value == b"null" else _text_of_value(value, key)
        if text is None and not self.is_lenient:
            what = "which is missing: jsonl_key names another" if value is None else "found null"
            raise LineError(
                "missing_field" if value is None else "wrong_type", f"a text in field {key!r}, {what}"
            )
        if text is None or (self.is_lenient and value and not msgspec.json.decode(value)):
            return None
        return (text,)


class WholeRecord(Struct, frozen=True):
    """A record with several fields, as its JSON; what is in them is the mode's business. See `dolma_dask.sources.base.LineConverter`."""

    fields: tuple[str, ...]  # those that are read
    schema: ClassVar[pa.Schema] = schema_of(("text",))

    def scan(self, lines: LineBlock) -> pa.RecordBatch | None:
        """Return the lines of a block of objects; None if any is something else."""
        _, status = scan_fields(lines.data, lines.starts, [Field(self.fields[0])])
        if status.any():
            return None
        offsets, data = pa.py_buffer(lines.starts.astype(np.int64)), pa.py_buffer(lines.data)
        texts = pa.Array.from_buffers(pa.large_string(), len(lines.starts) - 1, [None, offsets, data])
        return pa.RecordBatch.from_arrays([texts], schema=self.schema)

    def convert_line(self, line: bytes, row: int = 0) -> tuple[str]:
        """Return a JSON line that is an object."""
        parse_object(line)
        return (line.decode(),)


_COUNTS = ("documents_in", "documents_out", "text_bytes_in", "bad_records", "skipped_records")


class RawSource(Struct, frozen=True):
    """The texts of a raw file, or of neighbouring text files; see `dolma_dask.engine.documents.DocumentSource`."""

    base: str  # folder that paths are relative to
    infos: tuple[FileInfo, ...]
    field: TextField | WholeRecord

    @property
    def name(self) -> str:
        """The first file."""
        return self.infos[0].path

    @property
    def inputs(self) -> tuple[Input, ...]:
        """All files."""
        return inputs_of(self.base, self.infos)

    @property
    def is_document_each(self) -> bool:
        """True if each file is a document."""
        return len(self.infos) > 1

    def read(
        self, columns: frozenset[str], policy: RecordPolicy, quarantine: Quarantine, facts: ShardFacts
    ) -> Iterator[DocumentRows]:
        """Yield the texts."""
        has_records = isinstance(self.field, WholeRecord)
        if columns != {RAW if has_records else "text"}:
            raise UsageError(
                f"raw files give texts; expected a mode that reads them, not {', '.join(sorted(columns))}."
            )
        read: list[InputRecord] = []
        counts = facts.counts = dict.fromkeys(_COUNTS, 0.0)
        for block in self._blocks(policy, read):
            quarantine.admit(block)
            texts = block.batch.column("text").drop_null()
            counts["documents_in"] += block.num_rows
            counts["documents_out"] += len(texts)
            counts["text_bytes_in"] += text_bytes(texts)
            counts["bad_records"] += len(block.bad)
            counts["skipped_records"] += block.num_rows - len(texts) - len(block.bad)
            rows = np.flatnonzero(block.batch.column("text").is_valid().to_numpy(zero_copy_only=False))
            lines = texts.cast(pa.large_binary()) if has_records else None
            numbers = block.first_row + rows
            yield DocumentRows(pa.record_batch({"text": texts, **self._places(numbers)}), numbers, lines)
        facts.inputs = tuple(read)
        if quarantine.skipped:
            counts["skipped_members"] = quarantine.skipped
            facts.skipped_members = tuple(quarantine.skipped_names)

    def _places(self, numbers: NDArray[np.int64]) -> dict[str, pa.Array]:
        """Return the path of the file of each text (n,), and if files are a text each the row in it."""
        if not self.is_document_each:
            return {PATH: pa.repeat(pa.scalar(self.name, pa.large_string()), len(numbers))}
        paths = pa.array([info.path for info in self.infos], pa.large_string())
        return {PATH: paths.take(pa.array(numbers)), ROW: pa.array(np.zeros(len(numbers), np.int64))}

    def _blocks(self, policy: RecordPolicy, read: list[InputRecord]) -> Iterator[Block]:
        if split_suffix(self.name).kind == "parquet":
            url, most = files.join(self.base, self.name), policy.max_record_bytes
            if isinstance(self.field, WholeRecord):
                return _read_records(url, self.name, self.field, read, most)
            return _read_table(url, self.name, self.field, read, most)
        (source,) = open_sources(
            self.base,
            self.infos,
            FieldMapping(source_name="raw"),
            max_record_bytes=policy.max_record_bytes,
            lines=self.field,
        )
        return source.read(read)


def _text_of_value(value: bytes, key: str) -> str:
    if value.startswith(b'"'):
        return _decode_string(value)
    if value.startswith(b"["):
        items = _decode_list(value)
        if all(bytes(item).startswith(b'"') for item in items):
            return "\n\n".join(_decode_string(item) for item in items)
    elif kind_of(value) == "a number":
        try:
            return str(msgspec.json.decode(value))
        except msgspec.DecodeError:
            raise LineError("wrong_type", f"a number in field {key!r} that double precision holds") from None
    raise LineError(
        "wrong_type", f"a string, a list of strings or a number in field {key!r}, found {kind_of(value)}"
    )


def _read_table(
    url: str, path: str, field: TextField, read: list[InputRecord], max_bytes: int
) -> Iterator[Block]:
    """Yield the texts of a Parquet column; null where it is null."""
    row, key = 0, field.key
    with closing(StoredFile(url)) as stored, open_parquet(url) as file:
        names = file.schema_arrow.names
        if names.count(key) != 1:
            raise SchemaError(
                f"{url}: no column {key!r}; it has {', '.join(names)}. Expected the texts in one: jsonl_key.",
                url=url,
            )
        null = ("wrong_type", f"a text in column {key!r}, found null")
        for batch in read_batches(url, file, [key], BLOCK_BYTES, max_bytes=max_bytes):
            texts = _as_texts(url, key, batch.column(0))
            yield _block(url, row, texts, None if field.is_lenient else null, max_bytes)
            row += batch.num_rows
        finish(stored, path, read)


def _read_records(
    url: str, path: str, record: WholeRecord, read: list[InputRecord], max_bytes: int
) -> Iterator[Block]:
    """Yield the rows of a Parquet file as JSON, with the columns that are read."""
    row = 0
    with closing(StoredFile(url)) as stored, open_parquet(url) as file:
        names = file.schema_arrow.names
        named = dict.fromkeys(key if key in names else key.partition(".")[0] for key in record.fields)
        for name in named:
            if names.count(name) != 1:
                raise SchemaError(
                    f"{url}: no column {name!r}; it has {', '.join(names)}. Expected one for each field that the mode reads: {', '.join(record.fields)}.",
                    url=url,
                )
        for batch in read_batches(url, file, list(named), BLOCK_BYTES, max_bytes=max_bytes):
            yield _block(url, row, _as_records(batch), _NOT_UTF8, max_bytes)
            row += batch.num_rows
        finish(stored, path, read)


def _as_texts(url: str, key: str, column: pa.Array) -> pa.LargeStringArray:
    kind = column.type
    if pa.types.is_integer(kind) or pa.types.is_floating(kind):
        return pa.array(
            [None if value is None else str(value) for value in column.to_pylist()], pa.large_string()
        )
    if is_string(kind) or is_bytes(kind):
        return _cast(column, pa.large_string())
    raise SchemaError(f"{url}: column {key!r} holds {kind}; expected strings or numbers.", url=url)


def _cast(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """Cast bytes to text, as tables have it that lack the UTF8 annotation; whether it is UTF-8, somebody else looks."""
    return pc.cast(column, options=pc.CastOptions(kind, allow_invalid_utf8=True))


def _as_records(batch: pa.RecordBatch) -> pa.LargeStringArray:
    """Return rows as JSON; null for one with a text that is no UTF-8."""
    kinds = map(_with_text, batch.schema.types)
    columns = [
        column if kind == column.type else _cast(column, kind)
        for column, kind in zip(batch.columns, kinds, strict=True)
    ]
    rows = pa.RecordBatch.from_arrays(columns, batch.schema.names)
    return pa.array(_json_of(rows), pa.large_string())


def _with_text(kind: pa.DataType) -> pa.DataType:
    """Return a type with text in place of bytes, at any depth."""
    if is_bytes(kind):
        return pa.large_string()
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_with_text(field.type)) for field in kind.fields])
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        inner = _with_text(kind.value_type)
        return kind if inner == kind.value_type else pa.large_list(inner)
    return kind


def _json_of(rows: pa.RecordBatch) -> list[str | None]:
    try:
        return [encode_value(row).decode() for row in rows.to_pylist()]
    except UnicodeDecodeError:
        if rows.num_rows == 1:
            return [None]
    half = rows.num_rows // 2
    return [*_json_of(rows.slice(0, half)), *_json_of(rows.slice(half))]


_Problem = tuple[str, str]
"""Reason of a bad record, and what was expected."""

_NOT_UTF8: _Problem = ("invalid_utf8", "UTF-8 in all texts")


def _block(
    url: str, first_row: int, texts: pa.LargeStringArray, of_null: _Problem | None, max_bytes: int
) -> Block:
    """Return texts of a table as a block, null where they are bad: null already, if `of_null` says so, no UTF-8, or too large."""
    problems: dict[int, _Problem] = {}
    if of_null is not None:
        problems |= dict.fromkeys(_where(texts.is_null()), of_null)
    problems |= dict.fromkeys(not_utf8(texts), _NOT_UTF8)
    sizes = pc.binary_length(texts)
    for row in _where(pc.fill_null(pc.greater(sizes, max_bytes), False)):
        problems[row] = (TOO_LARGE, too_large(sizes[row].as_py(), max_bytes))
    if problems:
        is_bad = np.zeros(len(texts), np.bool_)
        is_bad[list(problems)] = True
        texts = pc.if_else(pa.array(is_bad), pa.scalar(None, pa.large_string()), texts)
    bad = tuple(BadRecord(url, first_row + row, -1, *problems[row], b"") for row in sorted(problems))
    return Block(pa.RecordBatch.from_arrays([texts], schema=TextField.schema), first_row, bad)


def _where(mask: pa.BooleanArray) -> list[int]:
    return np.flatnonzero(mask.to_numpy(zero_copy_only=False)).tolist()
