"""Lists of ids: every format gives the same entries, and what cannot be read is named by its line."""

import gzip
import json
import os
import pickle

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dolma_dask.errors import BadRecordError, CorruptFileError, SchemaError, SourceChangedError, UsageError
from dolma_dask.io import id_keys
from dolma_dask.io.id_keys import contains, list_keys
from dolma_dask.io.id_lists import IdListFile, list_format, list_name, read_facts

ENTRIES = [("d1", None), ("d2", "web"), ("naïve 日本", "wïki"), ("d1", None), ('with "quotes", comma', None)]


def write(path, data):
    if path.name.endswith(".gz"):
        data = gzip.compress(data, mtime=0)
    if path.name.endswith(".zst"):
        data = pa.Codec("zstd").compress(data, asbytes=True)
    path.write_bytes(data)
    return str(path)


def as_text(entries, end="\n"):
    return "".join(
        (f"{source}\t{id_}" if source is not None else id_) + end for id_, source in entries
    ).encode()


def as_jsonl(entries):
    rows = ({"id": id_, "x": [1]} | ({} if source is None else {"source": source}) for id_, source in entries)
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def as_csv(entries, delimiter=","):
    def cell(text):
        return '"' + text.replace('"', '""') + '"' if any(c in text for c in '",\t\n') else text

    rows = (delimiter.join([cell(source or ""), "7", cell(id_)]) for id_, source in entries)
    return "\n".join([delimiter.join(["source", "n", "id"]), *rows, ""]).encode()


def as_parquet(entries):
    ids, sources = zip(*entries, strict=True)
    return parquet_of({"n": range(len(ids)), "id": ids, "source": sources})


def parquet_of(columns):
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table(columns), sink)
    return sink.getvalue().to_pybytes()


def read(url):
    return [
        entry
        for block in IdListFile(url)
        for entry in zip(block.ids.to_pylist(), block.sources.to_pylist(), strict=True)
    ]


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("l.txt", as_text(ENTRIES)),
        ("l.ids", as_text(ENTRIES).removesuffix(b"\n")),
        ("l.txt.gz", as_text(ENTRIES, "\r\n")),
        ("l", b"\xef\xbb\xbf" + as_text(ENTRIES[:2]) + b"\n\n" + as_text(ENTRIES[2:])),
        ("l.jsonl.zst", as_jsonl(ENTRIES) + b"\n"),
        ("l.csv", as_csv(ENTRIES)),
        ("l.csv.gz", b"\xef\xbb\xbf" + as_csv(ENTRIES)),
        ("l.tsv", as_csv(ENTRIES, "\t")),
        ("l.parquet", as_parquet(ENTRIES)),
    ],
)
def test_every_format_gives_the_same_entries(tmp_path, name, data):
    url = write(tmp_path / name, data)
    assert read(url) == ENTRIES
    facts = read_facts(url)
    assert (facts.entries, facts.bare, facts.pairs) == (5, 3, 2)
    assert facts.format == list_format(url) == IdListFile(url).format
    assert facts.checksum == read_facts(url).checksum


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("l.txt", b"web\td1\n\td2\n"),
        ("l.tsv", b"web\td1\n\td2\n"),
        ("l.csv", b'\xef\xbb\xbfweb,d1\n,"d2"\n'),
        ("l.csv.gz", b"web,d1\r\n,d2\r\n"),
        ("l.parquet", parquet_of({"0": ["web", None], "1": ["d1", "d2"]})),
    ],
)
def test_tables_without_a_heading_are_read_as_text_is(tmp_path, name, data):
    assert read(write(tmp_path / name, data)) == [("d1", "web"), ("d2", None)]
    ids = parquet_of({"any": ["d1", "d2"]}) if "parquet" in name else b"d1\nd2\n"
    assert read(write(tmp_path / name, ids)) == [("d1", None), ("d2", None)]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["l.txt", "l.jsonl", "l.csv", "l.tsv"])
def test_lines_are_told_and_lists_are_streamed(tmp_path, name):
    entries = [(f"document-{number:030d}", "web" if number % 3 else None) for number in range(200_000)]
    make = {"txt": as_text, "jsonl": as_jsonl, "csv": as_csv, "tsv": lambda rows: as_csv(rows, "\t")}
    url = write(tmp_path / name, make[name.rpartition(".")[2]](entries))
    blocks = list(IdListFile(url))
    assert len(blocks) > 1
    assert np.concatenate([block.lines for block in blocks]).tolist() == list(range(1, 200_001))
    assert read(url) == entries


@pytest.mark.parametrize(
    ("name", "data", "error", "message"),
    [
        ("l.txt", b"a\nb\nc\td\te\n", BadRecordError, r"l.txt, line 3: 3 fields"),
        ("l.txt", b"a\nweb\t\n", BadRecordError, "line 2: no id"),
        ("l.txt", b"a\nb\n\xff\n", BadRecordError, "line 3: bytes that are not UTF-8"),
        ("l.txt", b"a\n" + b"b" * (2 << 20), BadRecordError, "line 2: 2,097,153 bytes"),
        ("l.jsonl", b'{"id":"a"}\n{"source":"b"}\n', BadRecordError, "line 2: missing field"),
        (
            "l.jsonl",
            b'{"id":"a"}\n{"id":17}\n',
            BadRecordError,
            r'line 2: wrong type; .* write it as one: {"id": "17"}\. Mend',
        ),
        (
            "l.jsonl",
            b'{"id":17,"source":4,"x":[1]}\n',
            BadRecordError,
            r'line 1: wrong type; .* write it as one: {"source": "4", "id": "17"}\. Mend',
        ),
        ("l.jsonl", b'{"id":null}\n', BadRecordError, "line 1: wrong type; .* found null. Mend"),
        ("l.jsonl", b'{"id":' + b"1" * 5000 + b"}\n", BadRecordError, "line 1: wrong type"),
        ("l.jsonl", b'{"id":"a"}\n\n{"id":""}\n', BadRecordError, "line 3: no id"),
        ("l.csv", b"id,source\na,b\nc\n", BadRecordError, "Row #3: Expected 2 columns, got 1"),
        ("l.csv", b"id,source\na,b\n,c\n", BadRecordError, "row 2: no id"),
        (
            "l.csv",
            b"source,identity,n\na,b,1\n",
            SchemaError,
            "has the columns source, identity, n; expected one",
        ),
        ("l.csv", b"a,b\nc\n", BadRecordError, "Expected 2 columns, got 1"),
        ("l.csv", b"id\n\xff\n", BadRecordError, "UTF"),
        ("l.txt.gz", as_text(ENTRIES), CorruptFileError, None),
    ],
)
def test_what_cannot_be_read_is_named(tmp_path, name, data, error, message):
    url = write(tmp_path / name, data)
    if message is None:
        (tmp_path / name).write_bytes(data)
        message = "expected gzip data"
    with pytest.raises(error, match=message):
        read_facts(url)


def test_tables_of_other_types_and_missing_files(tmp_path):
    pq.write_table(pa.table({"id": pa.array(["a"], pa.string_view())}), tmp_path / "l.parquet")
    assert read_facts(str(tmp_path / "l.parquet")).entries == 1
    pq.write_table(pa.table({"id": [1, 2]}), tmp_path / "l.parquet")
    with pytest.raises(
        SchemaError, match=r"of type int64; expected strings.*df\[\"id\"\].astype\(\"string\"\)"
    ):
        read_facts(str(tmp_path / "l.parquet"))
    pq.write_table(pa.table({"id": pa.array(["a", None])}), tmp_path / "n.parquet")
    with pytest.raises(BadRecordError, match="row 2: no id"):
        read_facts(str(tmp_path / "n.parquet"))
    for name, found in (("none.txt", "no such file"), ("", "a folder")):
        with pytest.raises(UsageError, match=f"{found}; expected a file with a list of ids"):
            read_facts(str(tmp_path / name))


def test_lists_that_cannot_be_read_twice_or_lie_in_the_web(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path in (str(tmp_path / "pipe"), "/dev/null"):
        with pytest.raises(UsageError, match="a pipe or device, which can be read once"):
            read_facts(path)
    for url in ("https://example.org/ids.txt", "http://localhost:1/ids.txt", "hf://datasets/a/ids.txt"):
        with pytest.raises(UsageError, match="not read from the web"):
            read_facts(url)


def test_empty_lists_and_names(tmp_path):
    assert read(write(tmp_path / "l.txt", b"")) == []
    assert read(write(tmp_path / "l.csv", b"id\n")) == read(write(tmp_path / "l.csv", b"")) == []
    for url, name in (
        ("s3://b/take-down.2024.txt.gz", "take-down.2024"),
        ("/x/ids.jsonl", "ids"),
        ("ids", "ids"),
    ):
        assert list_name(url) == name


TEXTS = st.sampled_from(["", "a", "b", "ab", "é", "日本", "x" * 250])


@pytest.mark.slow
@given(
    st.lists(st.tuples(TEXTS.filter(bool), st.none() | TEXTS.filter(bool)), max_size=12),
    st.lists(st.tuples(st.none() | TEXTS, TEXTS), max_size=12),
)
def test_contains_equals_a_set(tmp_path_factory, entries, documents):
    url = write(tmp_path_factory.mktemp("lists") / "l.jsonl", as_jsonl(entries))
    keys = list_keys(url)
    ids, sources = (pa.array([doc[i] for doc in documents], pa.large_string()) for i in (0, 1))
    expected = [
        id_ is not None and ((id_, None) in entries or (id_, source) in entries) for id_, source in documents
    ]
    assert contains(keys, sources, ids).tolist() == expected
    assert keys.repeated == len(entries) - len(set(entries))
    assert keys.first().tolist() == [entry not in entries[:place] for place, entry in enumerate(entries)]


def test_a_list_travels_by_name_and_is_read_once_per_process(tmp_path, monkeypatch):
    url = write(tmp_path / "l.txt", as_text(ENTRIES))
    keys = list_keys(url)
    assert len(pickle.dumps(keys)) < 500
    with monkeypatch.context() as patched:
        patched.setattr(id_keys, "_read", None)
        assert pickle.loads(pickle.dumps(keys)) is keys
    write(tmp_path / "l.txt", b"other\n")
    with pytest.raises(SourceChangedError, match="was written while it was in use"):
        list_keys(url, "0" * 32)
    for number in range(id_keys.KEPT):
        list_keys(write(tmp_path / f"{number}.txt", b"a\n"))
    assert (url, keys.facts.checksum) not in id_keys._kept
