"""tag against benchmarks: what is found of which item, what is told of short items, what is made again, what is refused."""

import gzip
import json
import os
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dolma_dask as dk
from dolma_dask.errors import DataError, DolmaDaskError, UsageError
from dolma_dask.journal import Journal
from dolma_dask.sources import benchmark_cache, benchmarks
from dolma_dask.sources.benchmarks import Comparison
from dolma_dask.verbs.tag.recorded import recorded_tables

from .conftest import read_lines, write_lines

KEY = "contamination__contamination__"
LONG = (
    "Which of the following planets, known since antiquity, has rings that one sees with a small telescope?"
)
SHORT = "Name the capital of the largest island state there is."
CHINESE = "下列哪一个行星有可以用小型望远镜看到的光环"


def texts():
    yield f"A page. {LONG.upper().replace(',', ' -')} And more."
    yield f"Before: {SHORT} {LONG}"
    yield "Nothing of it: the following planets have rings."
    yield ""
    yield f"前言{CHINESE}。"


@pytest.fixture
def root(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    benchmarks._opened.clear()
    rows = [json.dumps({"id": str(n), "text": text, "source": "s"}) for n, text in enumerate(texts())]
    write_lines(tmp_path / "v0/documents/a.jsonl.gz", rows)
    write_lines(tmp_path / "v0/documents/b.jsonl.gz", rows[:1])
    asked = [{"question": {"stem": q, "choices": ["yes", LONG[:9]]}} for q in ("Why?", LONG, SHORT)]
    write_lines(tmp_path / "sets/quiz.jsonl.gz", [*map(json.dumps, asked)])
    write_lines(tmp_path / "sets/zh.txt", ["", "", "", CHINESE, "一"])
    return tmp_path


def tag(root, **options):
    options = {"against": str(root / "sets"), "against_text": ["question.stem"], **options}
    return dk.tag(str(root / "v0"), "contamination", progress=False, **options)


def found(root, key, shard="a"):
    lines = read_lines(root / f"v0/attributes/contamination/{shard}.jsonl.gz")
    return [json.loads(line)["attributes"].get(KEY + key) for line in lines]


def test_stretches_and_items_are_told(root):
    summary = tag(root)
    first, second, *_ = texts()
    stretches = found(root, "stretches")
    assert [[one[a:b] for a, b, _ in spans] for one, spans in zip(texts(), stretches, strict=True) if spans] == [
        [LONG[:-1].upper().replace(",", " -")], [f"{SHORT} {LONG[:-1]}"], [CHINESE],
    ]  # fmt: skip
    assert [spans and spans[0][2] for spans in stretches] == [17.0, 27.0, None, None, 21.0]
    assert [spans[0][2] for spans in found(root, "share")] == pytest.approx(
        [(len(LONG) + 1) / len(first), (len(SHORT) + len(LONG)) / len(second), 0, 0, 21 / 24], abs=1e-5
    )
    assert [spans and [row for _, _, row in spans] for spans in found(root, "items_quiz")] == [
        [2.0], [3.0, 2.0], None, None, None,
    ]  # fmt: skip
    assert found(root, "benchmark") == ["quiz", "quiz", None, None, "zh"]
    assert [spans and spans[0][2] for spans in found(root, "item")] == [2.0, 2.0, None, None, 4.0]
    assert [(row.benchmark, row.documents, row.items_found, row.items) for row in summary.found["contamination"]] == [
        ("quiz", 3, 2, 3), ("zh", 1, 1, 2),
    ]  # fmt: skip
    assert "quiz" in str(summary)
    assert summary.notes == (
        "quiz: 1 of 3 items compared as a whole: fewer than 13 words",
        "quiz: 1 of 3 items not compared: fewer than 8 words",
        "zh: 1 of 2 items not compared: fewer than 8 words",
    )


def test_what_is_found_can_be_cut_out_dropped_and_reported(root):
    tag(root)
    long = {"span": f"$.attributes.{KEY}stretches", "min_score": 20, "replacement": "[cut]"}
    where = "share < 0.99 and not share_quiz > 0.9"
    dk.mix(str(root / "v0"), to=str(root / "v1"), where=where, replace=[long], progress=False)
    kept = [json.loads(line) for line in read_lines(root / "v1/documents/a.jsonl.gz")]
    assert [row["id"] for row in kept] == ["0", "2", "3", "4"]
    assert kept[-1]["text"] == "前言[cut]。"
    records = tuple(Journal(str(root / "v0"), "tag").records.values())
    (table,) = recorded_tables(SimpleNamespace(root=str(root / "v0"), records=records))
    assert "contamination" in table.title
    assert table.rows == [
        ("quiz", 3, 0.5, pytest.approx(0.87, abs=0.01), 2, 3),
        ("zh", 1, 1 / 6, 0.875, 1, 2),
    ]


def test_sets_of_attributes_have_tables_of_their_own(root):
    for name in ("one", "two"):
        tag(root, experiment=name)
    records = tuple(Journal(str(root / "v0"), "tag").records.values())
    tables = list(recorded_tables(SimpleNamespace(root=str(root / "v0"), records=records)))
    assert [[row[1] for row in table.rows] for table in tables] == [[3, 1], [3, 1]]


def test_other_benchmarks_and_other_ngrams_are_found_again(root):
    assert (tag(root).done, tag(root).done) == (2, 0)
    assert tag(root, ngram=5).done == 2
    (root / "sets/zh.txt").write_text(f"{SHORT}\n{CHINESE}\n")
    assert tag(root, ngram=5).done == 2
    assert [spans and spans[0][2] for spans in found(root, "items_zh")] == [None, 1.0, None, None, 2.0]


def test_ngrams_are_made_once_and_mapped(root, monkeypatch):
    def opened():
        benchmarks._opened.clear()
        return Comparison.of([str(root / "sets")], ["question.stem"], None, 13).opened()

    made = opened()
    (kept,) = (root / "cache/dolma_dask/benchmarks").glob("*.ngrams")
    with monkeypatch.context() as patch:
        patch.setattr(Comparison, "_read", lambda self: pytest.fail("read again"))
        known = opened()
        assert (known.names, known.totals) == (made.names, made.totals)
    data = kept.read_bytes()
    for damaged in (b"", data[:100], data[:-70], data[:-1] + b"x", b"x" + data[1:]):
        kept.unlink()  # others may have mapped it
        kept.write_bytes(damaged)
        assert opened().table.keys.tolist() == made.table.keys.tolist()
        assert kept.read_bytes() == data
    os.utime(kept, (0, 0))
    (root / "sets/zh.txt").write_text(f"{CHINESE}更多\n")
    opened()
    assert not kept.exists()
    (root / "file").write_text("no folder")
    monkeypatch.setenv("XDG_CACHE_HOME", str(root / "file"))
    assert opened().names == made.names


def test_items_that_cannot_be_read_are_asked_for_once(root):
    """A failure of the files is no failure of the cache, which is done without."""
    asked = []

    def make():
        asked.append(1)
        raise OSError("no such share")

    with pytest.raises(OSError, match="no such share"):
        benchmark_cache.from_cache("0", make)
    assert asked == [1]


def test_benchmarks_are_named_by_files_folders_and_fields(root):
    rows = [{"text": LONG, "task": {"a": 1}, "set": name} for name in ("x", "y", "x")]
    for folder in ("one", "two"):
        write_lines(root / folder / "test.jsonl", [*map(json.dumps, rows)])
    pq.write_table(pa.Table.from_pylist(rows), root / "table.parquet")
    (root / "array.json").write_text(json.dumps(rows))

    def names(*inputs, by=None):
        return Comparison.of([str(root / one) for one in inputs], ["text"], by, 13).opened()

    assert names("*/test.jsonl", "sets/zh.txt").names == ("one_test", "zh", "two_test")
    assert names("table.parquet").totals == ((3, 0, 0),)
    (root / "mark.jsonl").write_text(json.dumps(rows[0]), "utf-8-sig")
    (root / "mark.txt").write_text(f"\n{LONG}", "utf-8-sig")
    assert [names(f"mark.{kind}").rows.tolist() for kind in ("jsonl", "txt")] == [[1], [2]]
    by = names("table.parquet", by="set")
    assert (by.names, by.totals, by.rows.tolist()) == (("x", "y"), ((2, 0, 0), (1, 0, 0)), [1, 2, 3])
    for inputs, field, message in [
        (("one", "two"), "set", "benchmark x are in .*/one/test.jsonl and in .*/two/test.jsonl"),
        (("one",), "task", "row 1, has no name in the field 'task'"),
        (("sets/zh.txt",), "set", "row 4, has no name"),
        (("array.json",), None, r"line 1: no JSON object .*`jq -c"),
        (("nothing*",), None, "no files found"),
    ]:
        with pytest.raises(DolmaDaskError, match=message):
            names(*inputs, by=field)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("e.jsonl", b"", "has no items"),
        ("e.txt", b"\n \n", "has no items"),
        ("e.jsonl.gz", gzip.compress(b"", mtime=0), "has no items"),
        ("e.jsonl", b'{"q": "x"}', r"has no text in text; its first item has 'q'. .*--against-text"),
        ("e.jsonl", b'{"text": "x"}\n[1]', "line 2: no JSON object"),
        ("e.jsonl", b'{"text": "\\ud800"}', "line 1: no JSON object|no text"),
        ("e.txt", b"\xff\xfe", "line 1: no UTF-8"),
        ("README.md", b"of no benchmark", "README.md is of no kind that is read"),
        ("e.txt", b"PAR1\x15not a table", "Parquet"),
        ("e.parquet", b"no table", "not a whole Parquet file"),
        ("e.txt", b"one word each\n" * 9, "no item of e has a text of 8 words or more"),
    ],
)
def test_what_are_no_benchmarks_is_refused(root, name, content, message):
    (root / name).write_bytes(content)
    with pytest.raises((UsageError, DataError), match=message):
        tag(root, against=str(root / name), against_text=None)
    assert not (root / "v0/attributes").exists()


def test_options_that_nobody_uses_are_refused(root):
    for options, message in [
        ({"against": None, "against_text": None}, "none were given; expected --against"),
        ({"against": None}, "against_text says how"),
        ({"ngram": 1}, "ngram=1"),
    ]:
        with pytest.raises(UsageError, match=message):
            tag(root, **options)
    with pytest.raises(UsageError, match="none of the taggers char_length_v1 compares"):
        dk.tag(str(root / "v0"), "char_length_v1", against=str(root / "sets"), progress=False)


def test_a_long_text_of_one_item_over_and_over(root):
    rows = [
        json.dumps({"id": "0", "text": f"{LONG} " * 50_000, "source": "s"}),
        json.dumps({"id": "1", "text": "a" * 5_000_000, "source": "s"}),
    ]
    write_lines(root / "v0/documents/a.jsonl.gz", rows)
    tag(root)
    assert found(root, "stretches")[0] == [[0, (len(LONG) + 1) * 50_000 - 2, 850_000.0]]
