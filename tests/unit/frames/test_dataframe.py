"""Dataframes: the right values and types, whatever the formats and partitions; only what is needed is parsed; nothing wrong passes."""

import os
import pickle
import shutil
from pathlib import Path

import dask
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from msgspec.structs import replace
from partition_worlds import (
    ATTRIBUTES,
    COUNT,
    FIELDS,
    FIRST,
    FORMATS,
    LENGTH,
    MANY,
    ROWS,
    SHORT,
    SPANS,
    expected,
    make_dataset,
    rewrite,
    values,
)

import dolma_dask as dk
from dolma_dask.errors import SchemaError, SourceChangedError, UsageError
from dolma_dask.frames import cutting
from dolma_dask.frames.dataframe import read_dataframe
from dolma_dask.frames.expression import read_frame
from dolma_dask.frames.reading import PartitionSource

COUNT_ROWS = sum(map(len, ROWS.values()))
DOCUMENT_COLUMNS = ("id", "text", "source", "metadata", *FIELDS)


@pytest.mark.parametrize("pair", FORMATS)
@pytest.mark.parametrize("partition_bytes", [1, MANY, 64_000_000, None])
def test_values_and_types_are_those_of_plain_python(worlds, pair, partition_bytes):
    df = read_dataframe(str(worlds[pair]), DOCUMENT_COLUMNS, "all", partition_bytes=partition_bytes)
    found = df.compute()
    assert set(df.columns) == {*DOCUMENT_COLUMNS, *ATTRIBUTES}
    for name in df.columns:
        assert values(found[name]) == expected(ROWS, name), name
    assert (found.dtypes == df.dtypes).all()
    for part in dask.compute(*df.to_delayed()):
        assert (part.dtypes == df.dtypes).all()
        assert list(part.index) == list(range(len(part)))
    assert df.npartitions == {1: df.npartitions, MANY: df.npartitions}.get(
        partition_bytes, 1 if partition_bytes else len(ROWS)
    )
    assert partition_bytes not in (1, MANY) or df.npartitions >= 8


def test_dtypes(gz):
    df = read_dataframe(gz, ["id", "metadata.ok", "metadata.n", "metadata.lang"], "shape_v1")
    text = pd.StringDtype("pyarrow", na_value=float("nan"))
    spans = pd.ArrowDtype(
        pa.list_(pa.struct([("start", pa.int64()), ("end", pa.int64()), ("score", pa.float64())]))
    )
    assert dict(df.dtypes) == {
        "id": text,
        "metadata.ok": pd.BooleanDtype(),
        "metadata.n": "float64",
        "metadata.lang": text,
        LENGTH: "float64",
        SPANS: spans,
        COUNT: "float64",
        SHORT: pd.BooleanDtype(),
    }
    assert text == pd.Series(["a"]).dtype, "what pandas 3 calls str"
    for dtype in df.compute().dtypes:
        assert dtype.name != "object"


def test_a_partition_without_rows_and_columns_without_values_have_the_same_types(tmp_path):
    rows = {"a": [], "b": [{"id": "1", "text": "one two three", "source": "s", "metadata": {"lang": "en"}}]}
    root = str(make_dataset(tmp_path / "v0", rows))
    df = read_dataframe(root, ["id", "metadata.lang"], ["shape_v1"], partition_bytes=None)
    empty, one = dask.compute(*df.to_delayed())
    assert (len(empty), len(one)) == (0, 1)
    for frame in (df, empty, one, df.compute(), df[LENGTH].to_frame().compute().join(df.compute()[["id"]])):
        assert (frame.dtypes == df.dtypes[list(frame.columns)]).all()
    assert one.iloc[0].isna().sum() == 4


def test_spans_of_whole_documents(worlds, gz):
    df = read_dataframe(gz, [], ["shape_v1"], spans=True, partition_bytes=MANY)
    found = df.compute()
    whole = [
        None if length is None else [[0, len(text), length]]
        for text, length in zip(expected(ROWS, "text"), expected(ROWS, LENGTH), strict=True)
    ]
    assert values(found[LENGTH]) == whole
    assert values(found[SPANS]) == expected(ROWS, SPANS)
    assert found[COUNT].dtype == "float64", "a bare number has no span"
    with pytest.raises(UsageError, match=r"attributes/shape_v1/a\.parquet holds .* spans=False"):
        read_dataframe(str(worlds["jsonl.zst", "parquet"]), [], ["shape_v1"], spans=True)


def test_frames_can_be_written_to(gz):
    frame = read_dataframe(gz, ["id"], ["shape_v1"], only=["n/c"]).compute()
    frame.loc[0, [COUNT, "id"]] = [7.0, "x"]
    assert frame[COUNT].tolist() == [7.0]
    assert frame["id"].tolist() == ["x"]


PROJECTIONS = {
    "one document column": (lambda df: df["id"].compute(), {"id"}, set()),
    "one attribute": (lambda df: df[COUNT].mean().compute(), set(), {COUNT}),
    "filter, then project": (lambda df: df[df[COUNT] > 4]["id"].compute(), {"id"}, {COUNT}),
    "filter on two sets": (
        lambda df: df[(df[COUNT] > 4) & (df[FIRST] == "the")][LENGTH].sum().compute(),
        set(),
        {COUNT, FIRST, LENGTH},
    ),
    "filtered length": (lambda df: len(df[df[COUNT] > 4]), set(), {COUNT}),
    "groupby": (lambda df: df.groupby("source")[LENGTH].mean().compute(), {"source"}, {LENGTH}),
    "groupby size": (lambda df: df.groupby("source").size().compute(), {"source"}, set()),
    "quantile": (lambda df: df[LENGTH].quantile([0.1, 0.9]).compute(), set(), {LENGTH}),
    "delayed": (lambda df: dask.compute(*df[["id", COUNT]].to_delayed()), {"id"}, {COUNT}),
    "partitions": (lambda df: df.partitions[[0, 2]]["source"].compute(), {"source"}, set()),
    "assign": (lambda df: df.assign(x=df[COUNT] * 2)["x"].sum().compute(), set(), {COUNT}),
    "a function of its own": (
        lambda df: df[["id"]].map_partitions(lambda part: part.assign(n=1.0)).n.sum().compute(),
        {"id"},
        set(),
    ),
    "field of the metadata": (lambda df: df["metadata.lang"].value_counts().compute(), {"metadata"}, set()),
    "value counts": (lambda df: df[SHORT].value_counts().compute(), set(), {SHORT}),
    "the first rows": (lambda df: df[[COUNT]].head(2), set(), {COUNT}),
    "nothing": (lambda df: df.index.compute(), set(), set()),
}


@pytest.mark.parametrize("partition_bytes", [MANY, None])
@pytest.mark.parametrize("name", PROJECTIONS)
def test_only_what_a_computation_needs_is_parsed(gz, parsed, name, partition_bytes):
    compute, documents, attributes = PROJECTIONS[name]
    df = read_dataframe(gz, DOCUMENT_COLUMNS, "all", partition_bytes=partition_bytes)
    parsed.clear()
    compute(df)
    aligned = {"id", "source"} if partition_bytes and documents and attributes else set()
    assert parsed.documents == documents | aligned
    assert parsed.attributes == attributes
    if not documents:
        assert parsed.documents_opened == []


@pytest.mark.parametrize("pair", FORMATS)
def test_projections_reach_every_format(worlds, parsed, pair):
    df = read_dataframe(str(worlds[pair]), DOCUMENT_COLUMNS, "all", partition_bytes=MANY)
    parsed.clear()
    df["text"].str.len().sum().compute()
    assert (parsed.documents, parsed.attributes) == ({"text"}, set())
    parsed.clear()
    df[COUNT].sum().compute()
    assert parsed.documents_opened == []
    assert parsed.attributes - {"id", "source"} == {COUNT}


def test_a_table_is_not_read_for_a_checksum_that_nobody_wants(worlds, parsed):
    df = read_dataframe(str(worlds["parquet", "jsonl.zst"]), ["id", "text"], partition_bytes=None)
    parsed.clear()
    df["id"].compute()
    assert len(parsed.documents_opened) == len(ROWS), "each once, through its footer"


def test_results_of_projections_are_right(gz):
    df = read_dataframe(gz, DOCUMENT_COLUMNS, "all", partition_bytes=MANY)
    counts, ids = expected(ROWS, COUNT), expected(ROWS, "id")
    kept = [id for id, count in zip(ids, counts, strict=True) if (count or 0) > 4]
    assert df[df[COUNT] > 4]["id"].compute().tolist() == kept
    assert len(df[df[COUNT] > 4]) == len(kept)
    assert df[COUNT].sum().compute() == sum(filter(None, counts))
    assert df["source"].value_counts().compute()["web"] == expected(ROWS, "source").count("web")
    assert df.partitions[1]["id"].compute().tolist() == dask.compute(df.to_delayed()[1])[0]["id"].tolist()


@pytest.mark.slow
def test_length_comes_from_the_journal(gz, parsed, monkeypatch):
    for partition_bytes in (MANY, None, 64_000_000):
        df = read_dataframe(gz, attributes="all", partition_bytes=partition_bytes)
        parsed.clear()
        assert len(df) == df.shape[0].compute() == len(df["id"]) == COUNT_ROWS
        assert df.map_partitions(len).compute().sum() == COUNT_ROWS
        assert sum(df.partitions[i].shape[0].compute() for i in range(df.npartitions)) == COUNT_ROWS
    parsed.clear()
    monkeypatch.setattr(PartitionSource, "count", None)
    assert len(df) == COUNT_ROWS, "no task is run"
    assert parsed.opened == []


@pytest.mark.parametrize("lost", ["convert", "tag"])
def test_length_that_the_documents_or_attributes_alone_tell_of(gz, tmp_path, parsed, lost):
    shutil.copytree(gz, tmp_path / "v0")
    shutil.rmtree(tmp_path / f"v0/_journal/{lost}")
    df = read_dataframe(str(tmp_path / "v0"))
    parsed.clear()
    assert len(df) == COUNT_ROWS
    assert parsed.opened == []


@pytest.mark.parametrize("pair", FORMATS)
def test_length_that_nobody_knows_is_counted_in_lines(worlds, tmp_path, parsed, pair):
    shutil.copytree(worlds[pair], tmp_path / "v0")
    shutil.rmtree(tmp_path / "v0/_journal")
    df = read_dataframe(str(tmp_path / "v0"), partition_bytes=None)
    parsed.clear()
    assert len(df) == COUNT_ROWS
    assert len(df.index.compute()) == COUNT_ROWS
    assert parsed.blocks == 0


def test_a_file_of_another_size_is_counted(gz, tmp_path):
    shutil.copytree(gz, tmp_path / "v0")
    rewrite(tmp_path / "v0/documents/a.jsonl.gz", lambda lines: lines[:-5])
    assert len(read_dataframe(str(tmp_path / "v0"))) == COUNT_ROWS - 5


def test_a_copied_dataset_is_proved_by_its_bytes(gz, tmp_path, parsed):
    shutil.copytree(gz, tmp_path / "v0", copy_function=shutil.copyfile)
    for partition_bytes in (MANY, None):
        df = read_dataframe(str(tmp_path / "v0"), attributes="all", partition_bytes=partition_bytes)
        assert values(df[COUNT].compute()) == expected(ROWS, COUNT)
    assert parsed.documents == set()


def test_threads_give_the_same(gz):
    df = read_dataframe(gz, DOCUMENT_COLUMNS, "all", partition_bytes=MANY)
    pd.testing.assert_frame_equal(df.compute(scheduler="threads"), df.compute())


def test_tasks_stay_small_and_settings_as_they_are(gz):
    before = dask.config.get("dataframe.convert-string", None)
    df = read_dataframe(gz, DOCUMENT_COLUMNS, "all", partition_bytes=1)
    graph = df.optimize().dask
    assert len(graph) == df.npartitions
    assert len(pickle.dumps(next(iter(graph.values())))) < 9000
    assert len(pickle.dumps(list(graph.values()))) < 9000 + 1500 * df.npartitions
    assert len(pickle.dumps(df["id"].optimize().expr)) < 0.5 * len(pickle.dumps(df.expr))
    assert dask.config.get("dataframe.convert-string", None) == before
    with dask.config.set({"dataframe.convert-string": True}):
        assert isinstance(read_dataframe(gz, [], ["shape_v1"])[SPANS].compute().dtype, pd.ArrowDtype)


def test_the_same_frame_has_the_same_name(gz, tmp_path):
    one, other = (read_dataframe(gz, ["id"], partition_bytes=MANY) for _ in range(2))
    assert one._name == other._name
    assert one._name != read_dataframe(gz, ["id"], partition_bytes=MANY, on_bad_record="null")._name
    shutil.copytree(gz, tmp_path / "v0", copy_function=shutil.copyfile)
    first = read_dataframe(str(tmp_path / "v0"), ["id"])._name
    os.utime(tmp_path / "v0/documents/a.jsonl.gz", (1, 1))
    assert read_dataframe(str(tmp_path / "v0"), ["id"])._name != first


def test_what_a_user_sees(gz):
    df = read_dataframe(gz, ["id"], ["scores_v1"])
    shown = repr(df)
    assert "read_dataframe" in shown
    assert "float64" in shown
    assert len(repr(df.expr)) < 300


def test_datasets_summaries_and_choices_of_shards(gz):
    dataset = dk.open_dataset(gz)
    summary = dk.tag(gz, ["char_length_v1"], dry_run=True, scheduler="synchronous", progress=False)
    for given in (dataset, summary, Path(gz), f"{gz}/documents"):
        assert len(read_dataframe(given, "id", only="n/")) == 4
    assert len(read_dataframe(gz, "id", prune=1)) == len(ROWS["a"])
    with pytest.raises(UsageError, match="type int"):
        read_dataframe(7)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "options, message",
    [
        ({"partition_bytes": 0}, "partition_bytes=0"),
        ({"on_bad_record": "quarantine"}, "expected one of fail, null"),
        ({"max_record_bytes": 0}, "max_record_bytes=0"),
        ({"prune": 0}, "prune=0"),
        ({"only": "nowhere"}, "no shard"),
        ({"partition_bytes": "64MB"}, "partition_bytes=.*expected"),
        ({"partition_bytes": 1.5}, "partition_bytes=.*expected"),
        ({"partition_bytes": True}, "partition_bytes=.*expected"),
        ({"columns": 5}, "columns=.*expected"),
        ({"columns": [5]}, "columns=.*expected"),
        ({"attributes": 5}, "attributes=.*expected"),
        ({"only": 5}, "only=.*expected"),
    ],
)
def test_wrong_options(gz, options, message):
    with pytest.raises(UsageError, match=message):
        read_dataframe(gz, **options)


def test_a_large_file_that_cannot_be_cut_is_worth_a_warning(gz, tmp_path, monkeypatch):
    shutil.copytree(gz, tmp_path / "v0")
    shutil.rmtree(tmp_path / "v0/_journal")
    monkeypatch.setattr(cutting, "LARGE_BYTES", 5000)
    with pytest.warns(
        cutting.LargePartitionWarning, match=r"documents/a\.jsonl\.gz has about .* nor 1 other shard"
    ) as told:
        read_dataframe(str(tmp_path / "v0"), partition_bytes=MANY)
    assert len(told) == 1
    assert Path(told[0].filename) == Path(__file__)
    read_dataframe(str(tmp_path / "v0"), ["id"], ["shape_v1"], partition_bytes=MANY)
    read_dataframe(gz, partition_bytes=MANY)


def test_the_reader_counts_what_it_is_not_asked_to_read(gz, parsed):
    partitions, source = cutting_of(gz)
    parsed.clear()
    assert [len(read_frame(part, source, [])) for part in partitions] == [part.rows for part in partitions]
    assert parsed.opened == []


def cutting_of(root: str):
    expression = read_dataframe(root, ["id"], partition_bytes=MANY).expr
    return expression.iterables[0], expression.args[0]


def lose_a_row(path: Path) -> None:
    """Edit a file so that it has a line less and as many bytes."""
    path.write_bytes(path.read_bytes().replace(b"\n", b" ", 1))


@pytest.mark.parametrize("partition_bytes", [MANY, None, 64_000_000])
@pytest.mark.parametrize("is_tagged", [True, False])
def test_length_after_an_edit_of_the_same_size(plain, is_tagged, partition_bytes):
    """The size alone is not what the journal spoke of."""
    path = plain / "documents/n/b.jsonl"
    size = path.stat().st_size
    lose_a_row(path)
    assert path.stat().st_size == size
    if not is_tagged:
        shutil.rmtree(plain / "_journal/tag")
    assert len(read_dataframe(str(plain), partition_bytes=partition_bytes)) == COUNT_ROWS - 1


def test_length_of_a_cut_file_after_an_edit_of_the_same_size(plain):
    lose_a_row(plain / "documents/a.jsonl")
    df = read_dataframe(str(plain), partition_bytes=MANY)
    assert df.npartitions > 8
    with pytest.raises(
        SourceChangedError, match=r"has 10 rows; expected 11 rows from row 0 on.*partition_bytes=None"
    ):
        len(df)
    assert len(read_dataframe(str(plain), partition_bytes=None)) == COUNT_ROWS - 1


def test_length_of_a_file_of_members_after_an_edit_of_the_same_size(gz, tmp_path):
    shutil.copytree(gz, tmp_path / "v0")
    path = tmp_path / "v0/documents/a.jsonl.gz"
    data = path.read_bytes()
    path.write_bytes(data[:4] + b"\x01" + data[5:])  # the time in the head of a member, which nobody reads
    assert len(read_dataframe(str(tmp_path / "v0"), partition_bytes=MANY)) == COUNT_ROWS


def test_length_of_a_copied_dataset_is_hashed_not_parsed(gz, tmp_path, parsed):
    shutil.copytree(gz, tmp_path / "v0", copy_function=shutil.copyfile)
    for partition_bytes in (MANY, None):
        df = read_dataframe(str(tmp_path / "v0"), partition_bytes=partition_bytes)
        parsed.clear()
        assert len(df) == COUNT_ROWS
        assert parsed.blocks == 0


def test_other_rows_than_promised(gz, monkeypatch):
    """A journal that tells another number of rows for the very file is not believed either."""
    original = cutting.EntryPoints.documents

    def wrong(self, shard, largest):
        extent = original(self, shard, largest)
        return replace(extent, rows=extent.rows + 1)

    monkeypatch.setattr(cutting.EntryPoints, "documents", wrong)
    df = read_dataframe(gz, ["id"], partition_bytes=None)
    with pytest.raises(SourceChangedError, match=r"has \d+ rows; expected \d+ rows, as the journal says"):
        df.compute()


@pytest.mark.parametrize("suffix", [".jsonl", ".parquet"])
def test_integers_that_float64_does_not_hold_are_errors(tmp_path, suffix):
    documents = tmp_path / "documents/a.jsonl"
    documents.parent.mkdir()
    documents.write_text(
        "".join(f'{{"id":"{n}","text":"t","source":"s","metadata":{{"n":{2**53 + n}}}}}\n' for n in (0, 1))
    )
    attributes = tmp_path / f"attributes/h/a{suffix}"
    attributes.parent.mkdir(parents=True)
    if suffix == ".parquet":
        pq.write_table(pa.table({"id": ["0", "1"], "hash": [2**53, 2**53 + 1]}), attributes)
    else:
        attributes.write_text(
            "".join(f'{{"id":"{n}","attributes":{{"hash":{2**53 + n}}}}}\n' for n in (0, 1))
        )
    for name in ("metadata.n", "hash"):
        names = (["id", name], []) if "." in name else (["id"], "h")
        df = read_dataframe(str(tmp_path), *names)
        with pytest.raises(
            SchemaError, match=f"documents/a.jsonl, row 1: (h/)?{name} is 9007199254740993; .*float64"
        ):
            df.compute()
    assert list(df["id"].compute()) == ["0", "1"]
