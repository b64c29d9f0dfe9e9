"""Rows of tables and messages, which are no lines: each becomes the documents of its record, or a bad record."""

from collections.abc import Sequence

from dolma_dask.errors import SchemaError
from dolma_dask.formats.json.exact import LineError
from dolma_dask.sources.base import BlockBuilder, RawFile
from dolma_dask.sources.documents import Record, RecordConverter, join_members
from dolma_dask.sources.functions import FunctionConverter

USUAL_TEXTS = (
    "text",
    "content",
    "body",
    "raw_content",
    "raw_text",
    "article",
    "document",
    "message",
    "description",
)
"""Names that columns of text often have."""


def add_row(
    builder: BlockBuilder,
    raw: RawFile,
    converter: RecordConverter | FunctionConverter,
    record: Record,
    url: str,
    offset: int = -1,
    *,
    is_document: bool = False,
) -> None:
    """Append the documents of a record, or say why there are none; `offset`: where it starts, -1 in a table, whose rows are no lines; `is_document`: it is one as it stands."""
    values = dict(record)  # which the converter uses up
    try:
        made = converter.convert(record, builder.row, _line(values) if is_document else None)
    except LineError as error:
        builder.refuse(url, offset, error.reason, error.expected, _line(values))
        return
    if len(made.raw) > raw.max_record_bytes:
        builder.refuse_size(url, offset, len(made.raw), raw.max_record_bytes, _line(values))
    else:
        builder.add(made)


def _line(record: Record) -> bytes:
    return join_members(record) or b"{}"


def check_columns(url: str, names: Sequence[str], raw: RawFile) -> None:
    """Refuse a table at once whose columns would make every row a bad record.

    Raises `SchemaError`: a column is missing, or two have one name.
    """
    twice = sorted({name for name in names if list(names).count(name) > 1})
    missing = [] if raw.function is not None else _missing(names, raw)
    if missing or twice:
        found = f"no column {', '.join(map(repr, missing))}" if missing else f"two columns {twice[0]!r}"
        raise SchemaError(
            f"{url}: {found}; it has the columns {', '.join(names)}. Expected options that name the text, id and source: {_proposed(names, raw)}.",
            url=url,
            columns=tuple(names),
        )


def _missing(names: Sequence[str], raw: RawFile) -> list[str]:
    mapping = raw.mapping
    needed = [mapping.text, *(name for name in (mapping.id, mapping.added, mapping.created) if name)]
    if mapping.source_field and mapping.source_name is None:
        needed.append(mapping.source_field)
    return [name for name in needed if name not in names and name.partition(".")[0] not in names]


def _proposed(names: Sequence[str], raw: RawFile) -> str:
    """Return options for columns as they are called here."""
    texts = [name for usual in USUAL_TEXTS for name in names if name.lower() == usual]
    text = f"--text {texts[0] if texts else 'COLUMN'}"
    return f"{text}, --id COLUMN, and --source NAME or --source-field COLUMN"
