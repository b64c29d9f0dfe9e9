"""What stands in a file of a benchmark: its items by row, and the texts of an item."""

from codecs import BOM_UTF8
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from dolma_dask.display import counted
from dolma_dask.errors import DataError
from dolma_dask.io.parquet import open_parquet, read_batches
from dolma_dask.io.stream import BLOCK_BYTES, StoredFile, compression_of, no_lines, read_lines

KINDS = {".jsonl": "json", ".ndjson": "json", ".json": "json", ".parquet": "parquet", ".txt": "text"}
"""Kinds of files by their suffixes."""


def kind_of(url: str) -> str:
    """Return the kind of a file; nothing if it is no known one."""
    name = url[: url.rfind(".")] if compression_of(url) else url
    return KINDS.get(name[name.rfind(".") :], "")


def fields_of(item: Any) -> list[str]:
    """Return the names of the fields of an item as errors show them."""
    return [f"{name!r}" for name in item] if isinstance(item, dict) and item else ["no fields"]


def texts_at(value: Any, path: Sequence[str]) -> Iterator[str]:
    """Yield the texts at a path; of a list those of all members."""
    if isinstance(value, list):
        for member in value:
            yield from texts_at(member, path)
    elif path and isinstance(value, dict):
        yield from texts_at(value.get(path[0]), path[1:])
    elif not path and isinstance(value, str):
        yield value


def read_rows(url: str) -> Iterator[tuple[int, Any]]:
    """Yield the items of a file by row, from 1: objects, or texts; lines without anything are none."""
    if kind_of(url) == "parquet":
        with open_parquet(url) as file:
            batches = read_batches(url, file, None, BLOCK_BYTES)
            yield from enumerate((item for batch in batches for item in batch.to_pylist()), 1)
        return
    stored = StoredFile(url)
    try:
        is_json = kind_of(url) == "json"
        for block in read_lines(stored, compression_of(url)):
            for row, line in enumerate(block, block.first_row + 1):
                if block.oversize_bytes:
                    raise _bad(
                        url, row, f"{counted(block.oversize_bytes, 'byte')}, too long for an item", line
                    )
                if row == 1:
                    line = line.removeprefix(BOM_UTF8)
                if line.strip():
                    yield row, _object(url, row, line) if is_json else _line(url, row, line)
    finally:
        stored.close()


def _object(url: str, row: int, line: bytes) -> dict[str, Any]:
    try:
        return msgspec.json.decode(line, type=dict[str, Any])
    except msgspec.DecodeError as error:
        raise _bad(url, row, f"no JSON object ({error})", line) from None


def _line(url: str, row: int, line: bytes) -> str:
    try:
        return line.decode().removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        raise _bad(url, row, f"no UTF-8 ({error.reason})", line) from None


def _bad(url: str, row: int, found: str, line: bytes) -> DataError:
    return DataError(
        f"{url}, line {row}: {found}; expected an item of a benchmark in each line: an object in a file of JSON lines, else a text{no_lines(line)}. Mend the file, or leave it out.",
        url=url,
    )
