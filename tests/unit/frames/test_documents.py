import gzip
import json
from pathlib import Path

import dask.bag as db
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from partition_worlds import LENGTH, MANY, ROWS

import dolma_dask as dk
from dolma_dask.errors import BadRecordBudgetError, BadRecordError, SchemaError, UsageError

HERE = {"scheduler": "synchronous", "progress": False}


def rows_of(root: Path) -> list[dict]:
    paths = sorted((root / "documents").iterdir())
    return [json.loads(line) for path in paths for line in gzip.decompress(path.read_bytes()).splitlines()]


def bytes_of(root: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (root / "documents").iterdir()}


def frame(**columns: list) -> dd.DataFrame:
    size = len(next(iter(columns.values())))
    given = {
        "id": [str(number) for number in range(size)],
        "text": ["t"] * size,
        "source": ["s"] * size,
        **columns,
    }
    return dd.from_pandas(pd.DataFrame(given), npartitions=2)


@pytest.mark.slow
def test_what_is_read_and_written_is_the_same_dataset(root, tmp_path):
    to = tmp_path / "v1"
    df = dk.read_dataframe(root, ["id", "source", "text", "metadata"], partition_bytes=MANY)
    summary = dk.write_documents(df, str(to))
    every = [row for shard in sorted(ROWS) for row in ROWS[shard]]
    assert rows_of(to) == every
    assert (summary.done, summary.counts["documents_out"], summary.lost) == (10, len(every), False)
    assert any("spelled anew" in note for note in summary.notes)
    assert not (to / "_work").exists()
    assert dk.validate(str(to), **HERE).exit_status == 0
    dk.tag(str(to), ["char_length_v1"], **HERE)
    mixed = dk.mix(str(to), to=str(tmp_path / "v2"), where="length > 20", **HERE)
    assert mixed.counts["documents_out"] == sum(len(row["text"]) > 20 for row in every)
    assert not dk.mix(str(to), to=str(tmp_path / "v3"), **HERE).notes
    before = bytes_of(to)
    bag = dk.read_bag(root, ["id", "source", "text", "metadata"], partition_bytes=MANY)
    other = tmp_path / "bag"
    dk.write_documents(bag, str(other))
    assert rows_of(other) == every
    again = dk.write_documents(df, str(to))
    assert (again.done, again.skipped, bytes_of(to)) == (0, 10, before)


@pytest.mark.parametrize("file_format", ["jsonl.zst", "jsonl", "parquet"])
def test_formats(root, tmp_path, file_format):
    df = dk.read_dataframe(root, ["id", "source", "text", "metadata"], partition_bytes=None)
    dk.write_documents(df, str(tmp_path / "v1"), format=file_format)
    found = dk.read_dataframe(str(tmp_path / "v1"), ["id", "source", "text", "metadata"]).compute()
    assert found.to_dict("list")["id"] == df.compute().to_dict("list")["id"]
    assert [path.suffix for path in (tmp_path / "v1/documents").iterdir()] == [
        f".{file_format.rpartition('.')[2]}"
    ] * 5


def test_further_columns_go_into_the_metadata(tmp_path):
    metadata = ['{"a":1.10}', "{ }", None, ' {"b": "lang"}\n', '{\n"c":\n2}']
    df = frame(
        metadata=metadata,
        lang=["en", None, "de", "fr", None],
        n=[1, 2, 3, 4, 5],
        ok=[True] * 5,
        day=pd.to_datetime(["2020-01-01"] * 5),
    )
    dk.write_documents(df, str(tmp_path / "v1"))
    day = "2020-01-01T00:00:00"
    assert [row["metadata"] for row in rows_of(tmp_path / "v1")] == [
        {"a": 1.1, "lang": "en", "n": 1, "ok": True, "day": day},
        {"n": 2, "ok": True, "day": day},
        {"lang": "de", "n": 3, "ok": True, "day": day},
        {"b": "lang", "lang": "fr", "n": 4, "ok": True, "day": day},
        {"c": 2, "n": 5, "ok": True, "day": day},
    ]
    assert b'{"a":1.10,"lang"' in gzip.decompress(bytes_of(tmp_path / "v1")["part-00000.jsonl.gz"])
    with pytest.raises(SchemaError, match="which have a field 'b' already"):
        dk.write_documents(df.rename(columns={"lang": "b"}), str(tmp_path / "v2"))
    assert not (tmp_path / "v2/documents").exists()


BAD = {
    "id": (["a", None], "a string in 'id', found null"),
    "text": (["a", None], "a string in 'text', found null"),
    "source": (["a", None], "a string in 'source', found null"),
    "metadata": (["{}", "[1]"], "a JSON object in 'metadata'"),
    "text ": (["a", "b" * 2000], "max_record_bytes"),
    # would be another document, or another field of this one
    "metadata ": (["{}", '{},"text":"b"'], "a JSON object in 'metadata'|field"),
    "metadata  ": (["{}", '{}}\n{"id":"b"'], ""),
}


@pytest.mark.parametrize("column", BAD)
def test_rows_that_are_no_documents_fail_or_are_set_aside(tmp_path, column):
    values, said = BAD[column]
    df = frame(**{column.strip(): [values[0]] * 5 + values[1:] + [values[0]] * 4})
    to, options = str(tmp_path / "v1"), {"max_record_bytes": 1000}
    with pytest.raises(BadRecordError, match=said or None) as caught:
        dk.write_documents(df, to, **options)
    assert "row 0 of the partition of part-00001.jsonl.gz" in str(caught.value)
    assert not (tmp_path / "v1/documents").exists()
    with pytest.raises(BadRecordBudgetError):
        dk.write_documents(df, to, on_bad_record="quarantine", **options)
    summary = dk.write_documents(
        df, to, on_bad_record="quarantine", max_bad_fraction=0.5, overwrite=True, **options
    )
    assert (
        summary.counts["bad_records"],
        summary.counts["documents_out"],
        len(rows_of(tmp_path / "v1")),
    ) == (1, 9, 9)
    (kept,) = (tmp_path / "v1/_quarantine/write_documents").iterdir()
    assert json.loads(kept.read_text())["row"] == 0
    if column not in ("text ", "id"):  # a longer text, and ids that are equal here
        assert dk.validate(to, **HERE).exit_status == 0


def test_files_of_others_stay(root, tmp_path):
    before = {path: path.read_bytes() for path in Path(root).rglob("*.gz")}
    df = dk.read_dataframe(root, ["id", "source", "text"], partition_bytes=None)
    for options in ({}, {"overwrite": True}):
        with pytest.raises(UsageError):
            dk.write_documents(df, root, **options)
    assert {path: path.read_bytes() for path in Path(root).rglob("*.gz")} == before
    to = str(tmp_path / "v1")
    dk.write_documents(df, to)
    with pytest.raises(UsageError, match="holds 4 files that this run does not make"):
        dk.write_documents(df.partitions[:1], to)
    with pytest.raises(UsageError, match="other options"):
        dk.write_documents(df, to, source="web")
    dk.write_documents(df.partitions[:1], to, overwrite=True)
    assert list(bytes_of(Path(to))) == ["part-00000.jsonl.gz"]


def test_any_bag_of_dicts(tmp_path):
    rows = [{"id": str(n), "text": "t" * n, "metadata": {"n": [n]} if n % 2 else None} for n in range(7)]
    dk.write_documents(
        db.from_sequence(rows, npartitions=3).filter(lambda row: row["text"]),
        str(tmp_path / "v1"),
        source="web",
    )
    found = rows_of(tmp_path / "v1")
    assert [row["text"] for row in found] == ["t" * n for n in range(1, 7)]
    assert found[0] == {"id": "1", "text": "t", "source": "web", "metadata": {"n": [1]}}
    df = frame(source=["a", None, "a", None, "a"])
    dk.write_documents(df, str(tmp_path / "v3"), source="web")
    assert [row["source"] for row in rows_of(tmp_path / "v3")] == ["a", "web", "a", "web", "a"]
    with pytest.raises(SchemaError, match="row 0 of the bag is of type str; expected dicts"):
        dk.write_documents(db.from_sequence(["a"]), str(tmp_path / "v2"))


DICT = {"id": "a", "text": "t", "source": "s"}


@pytest.mark.parametrize(
    "row, said",
    [
        ({}, "missing field"),  # alone in its partition, it was no row
        (None, "of type NoneType"),
        ({**DICT, 7: 1}, "the key 7; expected strings"),
        ({**DICT, "text": 5}, "column 'text' holds int64"),
        ({**DICT, "text": float("nan")}, "found null"),
        ({**DICT, "text": "\ud800"}, "column 'text': .*surrogates"),
        ({**DICT, "n": 2**70}, "column 'n': .*too large"),
    ],
)
def test_rows_of_a_bag_that_are_no_documents_are_refused(tmp_path, row, said):
    with pytest.raises((BadRecordError, SchemaError), match=said):
        dk.write_documents(db.from_sequence([DICT, row], npartitions=2), str(tmp_path / "v1"))
    assert not (tmp_path / "v1/documents").exists()


def test_values_of_python_keep_what_they_are(tmp_path):
    """Arrow would give all objects of a column the same members, and JSON has no numbers of NumPy."""
    page = {
        "n": np.int64(3),
        "x": np.float32(0.5),
        "all": np.arange(2),
        "none": None,
        "nan": pd.NA,
        "at": pd.NaT,
    }
    pages = [{"a": 1}, {"b": [1, 2.5, "c"]}, None, float("nan")]
    rows = [{**DICT, "id": str(n), "metadata": page, "page": each} for n, each in enumerate(pages)]
    expected = {"n": 3, "x": 0.5, "all": [0, 1], "none": None, "nan": None, "at": None}
    bag, to = db.from_sequence(rows, npartitions=1), tmp_path / "v1"
    dk.write_documents(bag, str(to))
    found = [row["metadata"] for row in rows_of(to)]
    assert found == [{**expected, "page": pages[0]}, {**expected, "page": pages[1]}, expected, expected]
    meta = frame(id=["a", "b"]).assign(metadata="", page="", n=1)._meta
    df = frame(id=["a", "b"]).map_partitions(
        lambda _: pd.DataFrame(rows).assign(n=pd.Categorical([1, 2, 1, 2])), meta=meta
    )
    with pytest.raises(SchemaError, match="have a field 'n' already"):
        dk.write_documents(df, str(tmp_path / "v2"))
    dk.write_documents(df.rename(columns={"n": "m"}), str(tmp_path / "v2"))
    assert [row["metadata"] for row in rows_of(tmp_path / "v2")][:2] == [
        {**found[0], "m": 1},
        {**found[1], "m": 2},
    ]
    cut = df.map_partitions(lambda part: part.assign(n=pd.cut(range(4), 2, labels=None)), meta=meta).rename(
        columns={"n": "m"}
    )
    dk.write_documents(cut, str(tmp_path / "v4"))
    assert rows_of(tmp_path / "v4")[3]["metadata"]["m"] == {"left": 1.5, "right": 3.0}
    clash = frame(metadata=['{"\\u0061":1}'] * 2, a=[1, 2])
    with pytest.raises(SchemaError, match="have a field 'a' already"):
        dk.write_documents(clash, str(tmp_path / "v3"))


def test_only_what_is_written_is_computed_and_once(root, tmp_path):
    computed: list[str] = []

    def count(part: pd.DataFrame) -> pd.DataFrame:
        computed.extend(part.id[:1])
        return part

    df = dk.read_dataframe(
        root, ["id", "source", "text"], attributes=["shape_v1"], partition_bytes=None, spans=False
    )
    df = df.map_partitions(count, meta=df._meta)
    dk.write_documents(df[df[LENGTH] > 3][["id", "source", "text"]], str(tmp_path / "v1"))
    assert sorted(computed) == ["a-0", "n/b-0", "n/c-0", "z-0"], "and none for the partition without rows"
