import gzip
import json
import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from partition_worlds import LENGTH, MANY, ROWS, rewrite

import dolma_dask as dk
from dolma_dask.errors import (
    AlignmentError,
    DataError,
    SchemaError,
    SourceChangedError,
    StaleAttributesError,
    UsageError,
)
from dolma_dask.frames.values import key_of
from dolma_dask.progress import Progress

HERE = {"scheduler": "synchronous", "progress": False}


def files_of(root: str, name: str = "mine") -> dict[str, bytes]:
    folder = Path(root) / "attributes" / name
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def scored(root: str, partition_bytes: int | None = MANY):
    df = dk.read_dataframe(root, partition_bytes=partition_bytes)
    df["length"] = df.text.str.len() / 7
    return df


@dk.tagger(name="mine", types={"length": "document"}, version=1)
def seventh(text: str) -> float:
    return len(text) / 7


@pytest.mark.slow
@pytest.mark.parametrize("file_format", [None, "parquet"])
def test_the_bytes_are_those_of_tag_for_the_same_values_however_it_is_cut(root, tmp_path, file_format):
    dk.tag(root, [seventh], format=file_format, **HERE)
    expected = files_of(root)
    for partition_bytes in (MANY, None, 64_000_000):
        summary = dk.write_attributes(
            scored(root, partition_bytes),
            root,
            "mine",
            format=file_format,
            partition_bytes=partition_bytes,
            overwrite=True,
        )
        assert files_of(root) == expected
        assert (summary.done + summary.skipped, summary.exit_status) == (5, 0)
        assert not (Path(root) / "_work").exists()
    again = dk.write_attributes(scored(root), root, "mine", format=file_format, partition_bytes=MANY)
    assert (again.done, again.skipped) == (0, 5), "the same values: nothing to do"


def test_readers_prove_the_set_and_it_is_stale_when_documents_change(root, tmp_path):
    dk.write_attributes(scored(root), root, "mine", partition_bytes=MANY)
    v1 = dk.mix(root, to=str(tmp_path / "v1"), where="mine__mine__length > 3", **HERE)
    kept = sum(len(row["text"]) / 7 > 3 for rows in ROWS.values() for row in rows)
    assert (v1.counts["documents_out"], v1.counts["unproved_attribute_files"]) == (kept, 0)
    assert dk.validate(root, **HERE).exit_status == 0
    rewrite(
        Path(root) / "documents/z.jsonl.gz", lambda lines: [line.replace(b"the", b"eht") for line in lines]
    )
    with pytest.raises(StaleAttributesError, match=r"Call write_attributes again.*attribute set mine"):
        dk.read_dataframe(root, ["text", "mine/length"]).compute()


@pytest.mark.parametrize("read", [dk.read_bag, dk.read_dataframe])
def test_lines_of_the_same_size_and_time_are_told_by_their_bytes(tmp_path, read):
    path = tmp_path / "documents/a.jsonl"
    path.parent.mkdir()
    path.write_text('{"id":"a","source":"s","text":"one"}\n')
    dk.tag(str(tmp_path), [seventh], **HERE)
    known = path.stat()
    path.write_text('{"id":"a","source":"s","text":"two"}\n')
    os.utime(path, ns=(known.st_atime_ns, known.st_mtime_ns))
    with pytest.raises(StaleAttributesError, match="same ids but other text"):
        read(str(tmp_path), ["text", "mine/length"], partition_bytes=None).compute(scheduler="synchronous")


def test_a_bag_gives_what_a_dataframe_gives(root):
    values = {"length": lambda row: len(row["text"]) / 7, "first": lambda row: row["text"][:1] or None}
    bag = dk.read_bag(root, partition_bytes=MANY).map(
        lambda row: {**row, **{name: f(row) for name, f in values.items()}}
    )
    dk.write_attributes(bag, root, "mine", partition_bytes=MANY)
    expected = files_of(root)
    df = scored(root)
    df["first"] = df.text.str.slice(0, 1).where(df.text != "")
    summary = dk.write_attributes(df, root, "mine", partition_bytes=MANY)
    assert (files_of(root), summary.skipped) == (expected, 5)


def test_forms_follow_from_types(root):
    def add(part: pd.DataFrame) -> pd.DataFrame:
        rows = range(len(part))
        return part[["id", "source"]].assign(
            whole=[row if row % 2 else None for row in rows],
            spans=[[[0, 1, 0.5], (1, 2, 2)] if row % 2 else [] for row in rows],
            yes=[bool(row % 2) for row in rows],
            word=["a\u2028" if row % 2 else None for row in rows],
            nothing=None,
            metadata="{}",
            a__b__c=np.float32(1.5),
        )

    meta = {
        "id": str,
        "source": str,
        "whole": float,
        "spans": object,
        "yes": bool,
        "word": str,
        "nothing": object,
        "metadata": str,
        "a__b__c": "f4",
    }
    df = dk.read_dataframe(root, partition_bytes=MANY).map_partitions(add, meta=meta)
    summary = dk.write_attributes(df, root, "mine", partition_bytes=MANY)
    assert summary.notes == ("columns of documents are no attributes, left out: metadata",)
    first, second = gzip.decompress(files_of(root)["a.jsonl.gz"]).splitlines()[:2]
    size = len(ROWS["a"][1]["text"])
    assert json.loads(first)["attributes"] == {
        "mine__mine__spans": [],
        "mine__mine__yes": False,
        "a__b__c": [[0, len(ROWS["a"][0]["text"]), 1.5]],
    }
    assert json.loads(second)["attributes"] == {
        "mine__mine__whole": [[0, size, 1.0]],
        "mine__mine__spans": [[0, 1, 0.5], [1, 2, 2.0]],
        "mine__mine__yes": True,
        "mine__mine__word": "a\u2028",
        "a__b__c": [[0, size, 1.5]],
    }
    assert b"[[0,1,0.5],[1,2,2.0]]" in second
    assert key_of("mine", "n-1") == "mine__mine__n_1"


REFUSED = {
    "filtered": (lambda df: df[df.length > 3], "partition . has "),
    "repartitioned": (lambda df: df.repartition(npartitions=3), "3 partitions; expected 10"),
    "reversed": (lambda df: df.map_partitions(lambda part: part.iloc[::-1]), "has id 'a-0', found 'a-10'"),
    "shuffled": (lambda df: df.shuffle("id"), "Expected all rows of the documents in their order"),
    "twice": (
        lambda df: df.map_partitions(lambda part: pd.concat([part, part])),
        "has 12 rows; expected the 6 of rows 34 to 39 of a.jsonl.gz|expected the",
    ),
    "other ids": (lambda df: df.assign(id=df.id + "x"), "has id 'a-0', found 'a-0x'"),
    "other source": (lambda df: df.assign(source="mine"), "has source '.*', found 'mine'"),
    "other text": (lambda df: df.assign(text=df.text + "."), "has another text"),
}


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.parametrize("partition_bytes", [MANY, None])
def test_rows_of_other_documents_are_refused_and_nothing_appears(root, name, partition_bytes):
    change, said = REFUSED[name]
    df = change(scored(root, partition_bytes))
    with pytest.raises(AlignmentError, match=said if partition_bytes else None):
        dk.write_attributes(df, root, "mine", partition_bytes=partition_bytes)
    assert not files_of(root)
    assert not (Path(root) / "_work").exists()


def test_other_cuts_are_refused(root):
    df = scored(root)
    for options in ({}, {"partition_bytes": MANY, "prune": 1}, {"partition_bytes": MANY, "only": ["n/*"]}):
        with pytest.raises(
            AlignmentError, match=r"10 partitions; expected .*Give partition_bytes, only and prune"
        ):
            dk.write_attributes(df, root, "mine", **options)
    part = dk.read_dataframe(root, ["id", "source", LENGTH], only=["n/*"], prune=2)
    assert dk.write_attributes(part, root, "mine", only="n/*", prune=2).done == 2
    assert sorted(files_of(root)) == ["n/b.jsonl.gz", "n/c.jsonl.gz"]


def test_a_set_of_others_or_with_other_columns_is_not_replaced_unasked(root):
    before = files_of(root, "shape_v1")
    with pytest.raises(UsageError, match="not made by this command"):
        dk.write_attributes(scored(root), root, "shape_v1", partition_bytes=MANY)
    assert files_of(root, "shape_v1") == before
    dk.write_attributes(scored(root), root, "mine", partition_bytes=MANY)
    other = scored(root).rename(columns={"length": "size"})
    with pytest.raises(UsageError, match="holds mine__mine__length, which the columns given now are not"):
        dk.write_attributes(other, root, "mine", partition_bytes=MANY)
    assert dk.write_attributes(other, root, "mine", partition_bytes=MANY, overwrite=True).done == 5
    with pytest.raises(UsageError, match="not made by this command"):
        dk.tag(root, [seventh], **HERE)


def test_columns_of_a_bag_are_known_in_the_end(root):
    """A call that loses columns, or gives shards that no reader takes together, is refused before anything appears."""
    bag = dk.read_bag(root, ["id", "source"], partition_bytes=MANY)
    dk.write_attributes(
        bag.map(lambda row: {**row, "a": 1, "nan": float("nan")}), root, "mine", partition_bytes=MANY
    )
    before = files_of(root)
    assert b"nan" not in gzip.decompress(before["a.jsonl.gz"])
    with pytest.raises(UsageError, match="holds mine__mine__a, which the columns given now are not"):
        dk.write_attributes(bag.map(lambda row: {**row, "b": 1}), root, "mine", partition_bytes=MANY)
    with pytest.raises(SchemaError, match=r"mine__mine__a is of kind \w+ in attributes/.*expected one kind"):
        dk.write_attributes(bag.map_partitions(_kind_by_shard), root, "mine", partition_bytes=MANY)
    assert files_of(root) == before


def _kind_by_shard(rows):
    return [{**row, "a": "text" if row["id"].startswith("z") else 1.5} for row in rows]


def test_calls_that_cannot_be_are_refused_before_anything_is_computed(root):
    def never(part: pd.DataFrame) -> pd.DataFrame:
        raise AssertionError("computed")

    df = dk.read_dataframe(root, partition_bytes=MANY)
    lazy = df.map_partitions(never, meta=df._meta.assign(x=1.0))
    for frame, said in (
        (df, "all of documents; expected one more or more"),
        (lazy[["id", "x"]], "no column 'source'"),
        (lazy.x, "expected a dask.dataframe.DataFrame"),
        (df._meta, "from_pandas"),
        (lazy.rename(columns={"x": "n-1"}).assign(n_1=1.0), "would both become"),
    ):
        with pytest.raises(UsageError, match=said):
            dk.write_attributes(frame, root, "mine", partition_bytes=MANY)


@pytest.mark.parametrize(
    "values, error, said",
    [
        ([2**53 + 1], SchemaError, "9007199254740993; expected integers that float64 holds"),
        ([np.inf], DataError, "is inf"),
        ([{"a": "x"}], SchemaError, "expected objects whose values are numbers"),
        ([[[0, 1]]], SchemaError, "expected lists of spans"),
        ([[[0.5, 1, 1]]], SchemaError, "expected spans of integers"),
        ([[[1, 0, 1]]], DataError, r"the span 1 to 0 at row 0, .*expected 0 <= start"),
        ([[[0, 10**6, 1]]], DataError, r"partitions 0 to 3 \(documents/a.*whose text has"),
        (["a", 1.0], SchemaError, "expected one type of values"),
    ],
)
def test_values_that_no_attribute_has(root, values, error, said):
    def add(part: pd.DataFrame) -> pd.DataFrame:
        return part.assign(
            x=pd.Series(
                (values * len(part))[: len(part)], dtype=None if len({*map(type, values)}) == 1 else object
            )
        )

    df = dk.read_dataframe(root, partition_bytes=MANY)
    with pytest.raises(error, match=said):
        dk.write_attributes(
            df.map_partitions(add, meta=df._meta.assign(x=1.0)), root, "mine", partition_bytes=MANY
        )
    assert not files_of(root)


def test_documents_that_are_written_meanwhile_are_refused(root):
    df = scored(root).persist()
    path = Path(root) / "documents/z.jsonl.gz"

    def rewrite_then(part: pd.DataFrame) -> pd.DataFrame:
        rewrite(path, lambda lines: [line.replace(b"the", b"eht") for line in lines])
        return part

    df = df[["id", "source", "length"]].map_partitions(
        rewrite_then, meta=df._meta[["id", "source", "length"]]
    )
    with pytest.raises(SourceChangedError, match="as when write_attributes was called"):
        dk.write_attributes(df, root, "mine", partition_bytes=MANY)
    assert not files_of(root)


def test_documents_that_cannot_be_read_keep_their_row(root):
    rewrite(Path(root) / "documents/n/b.jsonl.gz", lambda lines: [lines[0], b"{\n", *lines[2:]])
    df = dk.read_dataframe(root, only=["n/b"], on_bad_record="null", partition_bytes=None)
    df["length"] = df.text.str.len()
    summary = dk.write_attributes(
        df, root, "mine", only=["n/b"], partition_bytes=None, on_bad_record="quarantine"
    )
    assert (summary.exit_status, summary.counts["bad_records"]) == (1, 1)
    row = json.loads(gzip.decompress(files_of(root)["n/b.jsonl.gz"]).splitlines()[1])
    assert (row["id"], row["attributes"]) == (None, {})
    assert (Path(root) / "_quarantine/write_attributes/n/b.jsonl.gz.jsonl").exists()


def test_the_task_is_given_without_computing(root):
    task = dk.write_attributes(scored(root), root, "mine", partition_bytes=MANY, compute=False)
    assert not files_of(root)
    assert task.compute().done == 5
    assert task.compute().skipped == 5
    assert not (Path(root) / "_work").exists()


@pytest.mark.parametrize("file_format", [None, "parquet"])
def test_a_column_of_dicts_is_an_attribute_of_objects(root, file_format, tmp_path):
    def add(row):
        lang = {"en": 0.5, "de": len(row["text"]), "fr": None} if row["text"] else None
        return {"id": row["id"], "source": row["source"], "lang": lang}

    bag = dk.read_bag(root, partition_bytes=MANY).map(add)
    dk.write_attributes(bag, root, "mine", partition_bytes=MANY, format=file_format, progress=False)
    texts = [row["text"] for rows in ROWS.values() for row in rows]
    df = dk.read_dataframe(root, ["text", "mine/mine__mine__lang.de"]).compute()
    assert df.iloc[:, 1].fillna(-1).tolist() == [len(text) or -1 for text in df.text]
    kept = dk.mix(root, to=str(tmp_path / "v1"), where="mine__mine__lang.en > 0.1", **HERE)
    assert kept.counts["documents_out"] == sum(map(bool, texts))
    assert dk.validate(root, **HERE).exit_status == 0
    again = dk.write_attributes(bag, root, "mine", partition_bytes=MANY, format=file_format)
    assert again.done == 0


@pytest.mark.parametrize("shows", [True, False])
def test_a_write_shows_how_far_it_is_unless_told_otherwise(root, monkeypatch, shows):
    shown: dict[str, int] = {}

    def end(self):
        shown[type(self).__name__] = self.shards

    monkeypatch.setattr(Progress, "end", end)
    dk.write_attributes(scored(root), root, "mine", partition_bytes=MANY, progress=shows)
    assert shown.get("_Lines", 0) >= 5 * shows
    assert ("_Lines" in shown) == shows
