"""convert with a function of the user: a record in, a document, several or none out."""

import gzip
import json
import tarfile
import threading

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dolma_dask as dk
from dolma_dask.errors import StageError, UsageError
from dolma_dask.functions.calls import user_function
from dolma_dask.sources.mapping import FieldMapping
from dolma_dask.sources.text import TextFiles

RUN = {"scheduler": "synchronous", "progress": False}
CODE = """
def articles(record):
    if record["kind"] == "page":
        return {{"text": record["body"], "metadata": {{"kind": record["kind"]}}}}
    if record["kind"] == "book":
        return ({{"text": part, "source": "books"}} for part in record["body"].split({cut!r}))
    if record["kind"] == "named":
        return record | {{"text": record.pop("body")}}
"""
RECORDS = [
    {"kind": "page", "body": "one", "id": "not taken"},
    {"kind": "menu"},
    {"kind": "book", "body": "a|b|c"},
    {
        "kind": "named",
        "body": "x",
        "id": "n",
        "metadata": {"big": 123456789012345678901},
        "more": [1.5, None],
    },
    {"kind": "book", "body": "d"},
]


def write(folder, records, name="a.jsonl"):
    folder.mkdir(exist_ok=True)
    (folder / name).write_text("".join(json.dumps(record) + "\n" for record in records))


def documents(root):
    paths = sorted((root / "documents").rglob("*.jsonl.gz"))
    return [json.loads(line) for path in paths for line in gzip.decompress(path.read_bytes()).splitlines()]


def test_each_record_becomes_none_one_or_several(tmp_path):
    write(tmp_path / "raw", RECORDS)
    (tmp_path / "mine.py").write_text(CODE.format(cut="|"))
    call = {"to": f"{tmp_path}/v0", "function": f"{tmp_path}/mine.py:articles", "source": "web", **RUN}
    done = dk.convert(f"{tmp_path}/raw", **call)
    names = ("documents_in", "documents_out", "records_dropped", "records_split", "bad_records")
    assert [done.counts[name] for name in names] == [5, 6, 1, 1, 0]
    made = documents(tmp_path / "v0")
    assert [one["id"] for one in made] == [
        "a-00000000",
        "a-00000002",
        "a-00000002-1",
        "a-00000002-2",
        "n",
        "a-00000004",
    ]
    assert [one["source"] for one in made] == ["web", "books", "books", "books", "web", "books"]
    assert made[0]["metadata"] == {"kind": "page"}
    assert made[4] == {
        "id": "n",
        "text": "x",
        "source": "web",
        "metadata": {"big": 123456789012345678901},
        "kind": "named",
        "more": [1.5, None],
    }
    assert dk.validate(f"{tmp_path}/v0", **RUN).exit_status == 0
    assert dk.convert(f"{tmp_path}/raw", **call).done == 0
    (tmp_path / "mine.py").write_text(CODE.format(cut="b"))
    assert dk.convert(f"{tmp_path}/raw", **call).counts["documents_out"] == 5
    with pytest.raises(
        UsageError, match=r"finished convert with other options: function 'mine\.py:articles', now"
    ):
        dk.convert(f"{tmp_path}/raw", **{**call, "function": lambda record: None})


def test_rows_of_tables_texts_and_archives_are_records(tmp_path):
    """A table and the lines that it was made from give the same; a text has its path."""
    raw = tmp_path / "raw"
    write(raw, RECORDS[:1])
    pq.write_table(pa.Table.from_pylist([{**RECORDS[0], "n": pa.scalar(1.5).as_py()}]), raw / "b.parquet")
    (raw / "c.txt").write_text("some text")
    with tarfile.open(raw / "d.jsonl.tar", "w") as archive:
        archive.add(raw / "a.jsonl", "inner.jsonl")
        archive.add(raw / "c.txt", "c.txt")
    seen = dk.convert(
        str(raw), to=f"{tmp_path}/v0", function=lambda record: {"text": json.dumps(record)}, source="s", **RUN
    )
    assert (seen.failed, seen.counts["documents_out"]) == (0, 5)
    by_id = {one["id"]: json.loads(one["text"]) for one in documents(tmp_path / "v0")}
    page = {"kind": "page", "body": "one", "id": "not taken"}
    assert by_id == {
        "a-00000000": page,
        "b-00000000": {**page, "n": 1.5},
        "c.txt": {"id": "c.txt", "text": "some text", "path": "c.txt"},
        "d-00000000": page,
        "d/c.txt": {"id": "d/c.txt", "text": "some text", "path": "d/c.txt"},
    }


@pytest.mark.parametrize(
    "made, expected",
    [
        (
            "text",
            r"a document \(a dict with text\), several in a list, or None from .*<lambda>, found str 'text'",
        ),
        ([{"text": "a"}, 3], "a dict with text.*found int 3"),
        ({"id": "x"}, "a string in field 'text' from .*, found none"),
        ({"text": None}, "a string in field 'text' from .*, found none"),
        ({"text": b"x"}, "a string in field 'text' from .*, found bytes b'x'"),
        ({"text": "x", "id": 7}, "a string in field 'id' from .*, found int 7"),
        ({"text": "x", "created": 7}, "a string in field 'created' from .*, found int 7"),
        ({"text": "x", "metadata": []}, r"an object \(dict\) in field 'metadata' from .*, found list \[\]"),
        (
            {"text": "x", "metadata": {"a": [1, {"b": float("nan")}]}},
            r"values that JSON has .*, found nan in field 'metadata.a\[1\].b'",
        ),
        ({"text": "x", "more": {1: 2}}, "found the key int 1, which is no string in field 'more'"),
        ({"text": "x", "more": {1}}, r"found set \{1\}; expected str, int, .* in field 'more'"),
        ({"text": "a\ud800"}, "found a lone surrogate, which is no character in field 'text'"),
        (
            [{"text": "w", "id": "h"}, {"text": "x", "id": "i"}, {"text": "y", "id": "i"}],
            "documents with ids of their own .*, found the id 'i' more than once",
        ),
    ],
)
def test_what_is_no_document_is_refused_with_its_place(tmp_path, made, expected):
    write(tmp_path / "raw", [{}, {}])
    rows = iter(range(2))
    with pytest.raises(StageError, match=rf"a.jsonl, row 1, byte 3: wrong document; expected .*{expected}"):
        dk.convert(
            f"{tmp_path}/raw",
            to=f"{tmp_path}/v0",
            function=lambda record: made if next(rows) else None,
            source="s",
            **RUN,
        )


def test_a_document_that_no_verb_would_read_is_a_bad_record(tmp_path):
    write(tmp_path / "raw", [{}])
    call = {"function": lambda record: {"text": "x" * 500}, "source": "s", "max_record_bytes": 400, **RUN}
    with pytest.raises(
        StageError, match=r"row 0, byte 0: too large; expected at most 400 bytes .*, found 5\d\d"
    ):
        dk.convert(f"{tmp_path}/raw", to=f"{tmp_path}/v0", **call)


def test_a_source_is_needed(tmp_path):
    write(tmp_path / "raw", [{}])
    with pytest.raises(
        StageError, match=r"expected a string in field 'source' \(or one for all: --source NAME\)"
    ):
        dk.convert(f"{tmp_path}/raw", to=f"{tmp_path}/v0", function=lambda record: {"text": "x"}, **RUN)


def test_a_record_on_which_it_raises_fails_or_goes_to_quarantine(tmp_path):
    write(tmp_path / "raw", RECORDS)
    (tmp_path / "mine.py").write_text(
        "def body(record):\n    yield {'text': 'first'}\n    yield {'text': record['body']}\n"
    )
    call = {"to": f"{tmp_path}/v0", "function": f"{tmp_path}/mine.py:body", "source": "web", **RUN}
    place = r"a.jsonl, row 1, byte 51: function failed; expected documents from mine.py:body, which raised KeyError: 'body' \(mine.py, line 3\)"
    with pytest.raises(StageError, match=rf"{place}\. Mend the function, or"):
        dk.convert(f"{tmp_path}/raw", **call)
    done = dk.convert(f"{tmp_path}/raw", **call, on_bad_record="quarantine", max_bad_fraction=0.5)
    assert (done.counts["bad_records"], done.counts["documents_out"]) == (1, 8)
    (line,) = (tmp_path / "v0/_quarantine/convert/a.jsonl.gz.jsonl").read_text().splitlines()
    assert (json.loads(line)["row"], json.loads(line)["reason"]) == (1, "function_failed")


def test_options_of_a_mapping_are_refused_beside_it(tmp_path):
    write(tmp_path / "raw", RECORDS)
    with pytest.raises(UsageError, match="function and mapping, text both say which field becomes what"):
        dk.convert(
            f"{tmp_path}/raw",
            to=f"{tmp_path}/v0",
            mapping="c4",
            text="body",
            function=lambda record: None,
            **RUN,
        )


def test_texts_that_a_function_takes_apart_come_in_blocks(tmp_path):
    """Memory does not grow with the number of files."""
    paths = [f"{number}.txt" for number in range(6)]
    for path in paths:
        (tmp_path / path).write_text("x" * 100)
    made = user_function(lambda record: [{"text": record["text"]}] * 2, ("record",))
    urls = tuple(f"{tmp_path}/{path}" for path in paths)
    source = TextFiles(urls, tuple(paths), FieldMapping(source_name="s"), block_bytes=500, function=made)
    assert [block.num_rows for block in source.read()] == [2, 2, 2]


def test_a_function_that_cannot_be_sent_is_refused_before_anything_is_written(tmp_path):
    write(tmp_path / "raw", RECORDS)
    lock = threading.Lock()

    def guarded(record):
        with lock:
            return {}

    guarded.version = 1
    with pytest.raises(UsageError, match=r"the work of convert cannot be sent to another process.*threads"):
        dk.convert(
            f"{tmp_path}/raw", to=f"{tmp_path}/v0", function=guarded, scheduler="processes", progress=False
        )
    assert not (tmp_path / "v0/documents").exists()
