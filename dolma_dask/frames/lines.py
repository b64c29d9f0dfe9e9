"""Lines of documents from columns, in Arrow: ``{"id":...,"text":...,"source":...,"added":...,"created":...,"metadata":{...}}``.

Further columns go into the metadata, as `convert` has it. Metadata that came as JSON text is spliced as it stands, and each line is read back
by the strict kernel, so that no reader ever meets a line that is none. Cost: see ``benchmarks/LOG.md``.
"""

from collections.abc import Sequence

import msgspec
import numpy as np
import pyarrow as pa

from dolma_dask.errors import SchemaError
from dolma_dask.formats.attribute_columns import column_texts, quote
from dolma_dask.formats.documents import METADATA, OPTIONAL, STRINGS, encode_value
from dolma_dask.formats.json.exact import Field, LineError, parse_object
from dolma_dask.formats.json.lines import Lines, scan
from dolma_dask.formats.json.write import string_texts
from dolma_dask.io.records import TOO_LARGE, too_large
from dolma_dask.text import compute as pc
from dolma_dask.text.columns import join_texts

Errors = dict[int, tuple[str, str]]
"""By row: the reason why it is no document, and what was expected."""


def further_columns(names: Sequence[str]) -> list[str]:
    """Return the columns that go into the metadata."""
    return [name for name in names if name not in (*STRINGS, METADATA)]


def document_lines(batch: pa.RecordBatch, max_bytes: int) -> tuple[pa.LargeStringArray, Errors]:
    """Return a line for each row (n,), and what is wrong with those that are no documents; a line has at most `max_bytes`."""
    names = batch.schema.names
    pieces = [
        '{"id":', string_texts(batch.column("id")),
        ',"text":', string_texts(batch.column("text")),
        ',"source":', string_texts(batch.column("source")),
    ]  # fmt: skip
    for name in OPTIONAL:
        if name in names:
            pieces.append(_member(name, string_texts(batch.column(name))))
    metadata = _metadata(batch)
    if metadata is not None:
        pieces.append(_member(METADATA, metadata))
    lines = join_texts(*pieces, "}\n")
    return lines, {
        **(_unreadable(lines, metadata) if METADATA in names else {}),
        **_too_large(lines, max_bytes),
    }


def _member(name: str, values: pa.LargeStringArray) -> pa.LargeStringArray:
    """Return ``,"name":value``, nothing where there is no value."""
    return pc.fill_null(join_texts(f",{quote(name)}:", values), "")


def _metadata(batch: pa.RecordBatch) -> pa.LargeStringArray | None:
    """Return the metadata objects (n,) with the further columns behind their members; null where there is nothing in either."""
    given = _on_one_line(batch.column(METADATA)) if METADATA in batch.schema.names else None
    further = further_columns(batch.schema.names)
    if not further:
        return given
    members = join_texts(*(_member(name, _json(name, batch.column(name))) for name in further))
    alone = pc.if_else(pc.equal(members, ""), None, join_texts("{", pc.utf8_slice_codeunits(members, 1), "}"))
    if given is None:
        return alone
    for name in further:
        _check_absent(name, given)
    trimmed = pc.utf8_trim_whitespace(given)
    is_empty = pc.match_substring_regex(trimmed, r"^\{\s*\}$")
    spliced = join_texts(pc.utf8_slice_codeunits(trimmed, 0, -1), members, "}")
    # what is no object stays as it is, and is found when the line is read
    keeps = pc.or_(pc.equal(members, ""), pc.invert(pc.starts_with(trimmed, "{")))
    return pc.coalesce(pc.if_else(keeps, given, pc.if_else(is_empty, alone, spliced)), alone)


def _on_one_line(texts: pa.LargeStringArray) -> pa.LargeStringArray:
    broken = pc.fill_null(pc.match_substring(texts, "\n"), False)
    if not broken.true_count:
        return texts
    return pc.replace_with_mask(
        texts,
        broken,
        pa.array([_compact(text) for text in texts.filter(broken).to_pylist()], pa.large_string()),
    )


def _compact(text: str) -> str:
    try:
        return msgspec.json.format(text, indent=-1)
    except msgspec.DecodeError:
        return text.replace("\n", " ")


def _json(name: str, values: pa.Array) -> pa.LargeStringArray:
    """Return the values of a further column as JSON; numbers, truth values and strings without a Python object each."""
    kind = values.type
    if isinstance(kind, pa.JsonType):
        return values.storage
    if (
        pa.types.is_large_string(kind)
        or pa.types.is_floating(kind)
        or pa.types.is_integer(kind)
        or pa.types.is_boolean(kind)
    ):
        return column_texts(name, "scalar", values)
    texts = [None if value is None else encode_value(value).decode() for value in values.to_pylist()]
    return pa.array(texts, pa.large_string())


def _check_absent(name: str, given: pa.LargeStringArray) -> None:
    """Refuse a further column that the metadata have a member of."""
    perhaps = pc.or_(pc.match_substring(given, quote(name)), pc.match_substring(given, "\\u"))
    for text in given.filter(pc.fill_null(perhaps, False)).to_pylist():
        try:
            has = name in parse_object(text.encode())
        except LineError:
            continue
        if has:
            raise SchemaError(
                f"column {name!r} goes into the metadata, which have a field {name!r} already: {text[:200]}; expected one of them. Leave the "
                "column out, or rename it.",
                column=name,
            )


def _unreadable(lines: pa.LargeStringArray, given: pa.LargeStringArray) -> Errors:
    """Read the lines back; return those that have other metadata than they were given, or no object."""
    (read,), errors = scan(Lines.of(lines), [Field(METADATA, "raw")])
    found: Errors = {row: (error.reason, error.expected) for row, error in errors}
    same = pc.and_(pc.starts_with(read, "{"), pc.equal(read, pc.utf8_trim_whitespace(given)))
    is_other = pc.and_(pc.is_valid(given), pc.invert(pc.fill_null(same, False)))
    for row in np.flatnonzero(is_other.to_numpy(zero_copy_only=False)).tolist():
        found.setdefault(
            row, ("wrong_type", f"a JSON object in {METADATA!r}, found {given[row].as_py()[:60]}")
        )
    return found


def _too_large(lines: pa.LargeStringArray, max_bytes: int) -> Errors:
    sizes = pc.binary_length(lines).to_numpy(zero_copy_only=False)
    return {
        row: (TOO_LARGE, too_large(int(sizes[row]), max_bytes))
        for row in np.flatnonzero(sizes > max_bytes).tolist()
    }
