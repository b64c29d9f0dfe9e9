"""Text files: one document each, byte for byte."""

import gzip
import json
import tracemalloc
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from dolma_dask.errors import UsageError
from dolma_dask.sources.mapping import FieldMapping
from dolma_dask.sources.text import TextFiles

BOOKS = FieldMapping(source_name="books")


def files(folder: Path, contents: dict[str, bytes], **limits: int) -> TextFiles:
    for name, data in contents.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    return TextFiles(tuple(str(folder / name) for name in contents), tuple(contents), BOOKS, **limits)


@pytest.mark.parametrize("block_bytes", [1, 1 << 20])
def test_each_file_is_one_document(tmp_path: Path, block_bytes: int) -> None:
    contents = {
        "a.txt": b"one\r\n",
        "b/c.md": "zwei \u00e9\n".encode(),
        "d.txt.gz": b"",
        "e.rst": b"\xef\xbb\xbfx",
    }
    blocks = list(files(tmp_path, contents, block_bytes=block_bytes).read())
    table = pa.Table.from_batches([block.batch for block in blocks])
    assert len(blocks) == (4 if block_bytes == 1 else 1)
    assert [block.first_row for block in blocks] == list(range(len(blocks)))
    assert table["id"].to_pylist() == list(contents)
    assert table["text"].to_pylist() == ["one\r\n", "zwei \u00e9\n", "", "x"]
    assert [json.loads(raw) for raw in table["raw"].to_pylist()] == [
        {"id": name, "text": text, "source": "books", "metadata": {"path": name}}
        for name, text in zip(contents, table["text"].to_pylist(), strict=True)
    ]


def test_what_is_no_text_is_a_bad_record(tmp_path: Path) -> None:
    contents = {
        "a.txt": b"good",
        "latin.txt": b"caf\xe9",
        "utf16.txt": "ab".encode("utf-16-le"),
        "z.txt": b"x" * 11,
    }
    (block,) = files(tmp_path, contents, max_record_bytes=10).read()
    assert [(record.row, record.reason, Path(record.url).name) for record in block.bad] == [
        (1, "invalid_utf8", "latin.txt"),
        (2, "nul_byte", "utf16.txt"),
        (3, "too_large", "z.txt"),
    ]
    assert block.bad[0].raw == b"caf\xe9"
    assert "0xE9 at byte 3" in block.bad[0].expected
    assert block.batch.column("text").to_pylist() == ["good", None, None, None]


@pytest.mark.slow
def test_an_overlong_file_is_not_held(tmp_path: Path) -> None:
    source = files(tmp_path, {"a.txt.gz": b"y" * 80_000_000}, max_record_bytes=1000)
    tracemalloc.start()
    (block,) = source.read()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 30_000_000
    assert "found 80,000,000" in block.bad[0].expected
    assert block.bad[0].raw == b"y" * 64 * 1024


def test_text_needs_the_name_of_its_source(tmp_path: Path) -> None:
    source = replace(files(tmp_path, {"a.txt": b""}), mapping=FieldMapping())
    with pytest.raises(UsageError, match="--source NAME"):
        list(source.read())


@given(st.text(st.characters(codec="utf-8", exclude_characters="\0\ufeff"), max_size=50))
def test_any_text_comes_through(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    (block,) = files(tmp_path_factory.mktemp("text"), {"a.txt": text.encode()}).read()
    assert block.batch.column("text").to_pylist() == [text]
    assert json.loads(block.batch.column("raw")[0].as_py())["text"] == text
