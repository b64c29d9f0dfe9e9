"""The dataset card of new documents: a README.md beside them, by which Hugging Face `datasets` reads a folder as it is.

The front matter names the files of documents alone, so that journals and attributes beside them are not taken for data, and the types of the fields.
Objects such as the metadata have the type string: their text of JSON, since their fields differ from document to document. Which fields there are is
seen in the first rows of some files. What was wanted and taken of each group of a mix stands below. A card that somebody has written or edited stays: ours ends in a digest of itself.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from functools import reduce
from itertools import islice
from typing import Any

import msgspec
from xxhash import xxh3_64_hexdigest

from dolma_dask.formats import layout
from dolma_dask.io import files
from dolma_dask.io.publish import publish, sweep
from dolma_dask.io.stream import StoredFile, compression_of, read_pieces
from dolma_dask.results.table import Table

NAME = "README.md"

_SHARDS, _ROWS, _BYTES = 16, 200, 1 << 18
"""Files whose first rows are looked at; rows of each, and bytes."""

_USUAL = dict.fromkeys(("id", "text", "source", "added", "created", "metadata"), "string")
"""Types of the fields of documents, in this order."""

_MARK = "<!-- Written by dolma-dask, and again with the documents unless it was edited: {} -->\n"

_PARQUET = """
DuckDB: `SELECT * FROM 'documents/**/*.parquet'`. Polars: `polars.scan_parquet("documents/**/*.parquet")`. The metadata are a text of JSON.
"""

_BODY = """
# Documents

A dataset in the layout of the Dolma toolkit: documents below `documents/`, what was derived from each at the same place below `attributes/`.

```python
from datasets import load_dataset

documents = load_dataset("path/of/this/folder", split="train")
```

Objects, such as the metadata, are texts of JSON: `json.loads(row["metadata"])`.
"""


def write_card(root: str, tables: Sequence[Table] = ()) -> str:
    """Write the card of the dataset at a normalized root, with `tables` about what is in it, or leave the one that somebody has written; return a note about that, or nothing."""
    sweep(root, NAME)  # of a run that was killed here
    url = files.join(root, NAME)
    old = files.read_bytes(url).decode(errors="replace") if files.stat(url) is not None else None
    if old is not None and not _is_ours(old):
        return f"{url} is not the card that this tool writes, and stays as it is"
    paths = files.list_paths(files.join(root, layout.DOCUMENTS))
    new = _card(root, [path for path in paths if layout.suffix_of(path)], tables)
    if new != old:
        with publish(url) as out:
            out.write(new.encode())
    return ""


def _card(root: str, paths: Sequence[str], tables: Sequence[Table]) -> str:
    front = "\n".join(_front_matter(root, paths))
    has_parquet = any(path.endswith(".parquet") for path in paths)
    text = f"---\n{front}\n---\n{_BODY}{_PARQUET * has_parquet}{''.join(map(_markdown, tables))}\n"
    return text + _MARK.format(xxh3_64_hexdigest(text.encode()))


def _markdown(table: Table) -> str:
    """Return a table in Markdown, with its title and what a reader should know."""
    rows = [
        table.headings,
        ["---:" if column.is_number else "---" for column in table.columns],
        *table.cells(),
    ]
    lines = (" | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in row) for row in rows)
    title = table.title[:1].upper() + table.title[1:]
    return f"\n## {title}\n\n{table.caption}\n\n" + "".join(f"| {line} |\n" for line in lines)


def _is_ours(card: str) -> bool:
    text, found, _ = card.rpartition(_MARK.partition("{}")[0])
    return bool(found) and card == text + _MARK.format(xxh3_64_hexdigest(text.encode()))


def _front_matter(root: str, paths: Sequence[str]) -> Iterator[str]:
    """Yield the lines of the YAML, with texts quoted as in JSON, which is YAML."""
    lines, tables = (
        [path for path in paths if path.endswith(".parquet") == is_table] for is_table in (False, True)
    )
    yield "configs:"
    if lines:
        yield from _config("default", lines)
        yield from _features(field_types(root, lines))
    if tables:
        yield from _config("parquet" if lines else "default", tables)


def _config(name: str, paths: Sequence[str]) -> Iterator[str]:
    yield from (f"- config_name: {name}", "  data_files:", "  - split: train", "    path:")
    yield from (f"    - {json.dumps(pattern)}" for pattern in patterns_of(paths))


def patterns_of(paths: Iterable[str]) -> list[str]:
    """Return the patterns that match shards and nothing else among documents, each file once: readers differ in what ``**`` matches."""
    shapes = {(path.count("/"), layout.suffix_of(path) or "") for path in paths}
    return [f"{layout.DOCUMENTS}/{'*/' * depth}*{suffix}" for depth, suffix in sorted(shapes)]


def _features(types: Mapping[str, str]) -> Iterator[str]:
    if types:
        yield "  features:"
    for name, kind in types.items():
        word, _, inner = kind.rpartition(" of ")
        yield f"  - name: {json.dumps(name)}"
        yield f"    {word or 'dtype'}: {inner}"


# ------------------------------------------------------------------------------------------------ types


def field_types(root: str, paths: Sequence[str]) -> dict[str, str]:
    """Return the types of fields as `datasets` calls them, from the first rows of some files; none if a list holds what no such type says."""
    types = dict(_USUAL)
    step = -(-len(paths) // _SHARDS)
    for path in paths[::step]:
        for row in _first_rows(files.join(root, layout.document_path(path))):
            for name, value in row.items():
                if name not in _USUAL:
                    types[name] = _joined(types.get(name, ""), _kind(value))
    return {} if _MIXED in types.values() else {name: _known(kind) for name, kind in types.items()}


def _first_rows(url: str) -> Iterator[Mapping[str, Any]]:
    # a mix that has nothing to do needs no kernels, which would find the lines
    stored, head = StoredFile(url), b""
    with closing(stored):
        for piece in read_pieces(stored, compression_of(url)):
            head += piece
            if len(head) > _BYTES:
                break
    for line in islice(head.splitlines(), _ROWS):
        with suppress(msgspec.DecodeError, UnicodeDecodeError):  # the last one may be a part
            row = msgspec.json.decode(line)
            if isinstance(row, dict):
                yield row


_MIXED = "list of what has no one type"
_LIST = "sequence of "
_NUMBERS = {"int64", "float64"}


def _kind(value: object) -> str:
    """Return the type of a value; empty for null, and behind `_LIST` for an empty list."""
    match value:
        case list():
            is_nested = any(isinstance(item, list | dict) for item in value)
            inner = _MIXED if is_nested else reduce(_joined, map(_kind, value), "")
            return _MIXED if inner == _MIXED else f"{_LIST}{inner}"
        case None:
            return ""
        case bool():
            return "bool"
        case int():
            return "int64" if abs(value) < 1 << 63 else "float64"
        case float():
            return "float64"
    return "string"


def _joined(one: str, other: str) -> str:
    """Return the type of a field that has values of two."""
    if one == other or not one or not other:
        return one or other
    if one.startswith(_LIST) and other.startswith(_LIST):
        inner = _joined(one.removeprefix(_LIST), other.removeprefix(_LIST))
        return f"{_LIST}{inner}"
    if _MIXED in (one, other) or _LIST in one + other:
        return _MIXED
    return "float64" if {one, other} == _NUMBERS else "string"


def _known(kind: str) -> str:
    """Return a type with text in the place of what is not known."""
    return f"{kind}string" if kind in ("", _LIST) else kind
