import shutil
import time
from pathlib import Path

import dask
import pytest
from partition_worlds import MANY, ROWS

import dolma_dask as dk
from dolma_dask.errors import SourceChangedError, UsageError
from dolma_dask.testing.tokenizer import train_tokenizer

HERE = {"scheduler": "synchronous", "progress": False}
ROWS_OF_64 = {"max_seq_length": 64, "max_rows_per_file": 3, "eos_id": 0}


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory) -> str:
    path = tmp_path_factory.mktemp("tokenizer") / "t.json"
    train_tokenizer([row["text"] for rows in ROWS.values() for row in rows], path, vocab_size=300)
    return str(path)


def bytes_of(root: Path) -> dict[str, bytes]:
    """Return the files but those of the segments, whose rows name the shards."""
    return {path.name: path.read_bytes() for path in root.iterdir() if path.is_file()}


@pytest.mark.slow
def test_the_bytes_are_those_of_the_verbs_on_the_same_documents(root, tmp_path, tokenizer):
    df = dk.read_dataframe(root, partition_bytes=MANY)
    bag = dk.read_bag(root, partition_bytes=MANY)
    v1 = dk.write_documents(df, str(tmp_path / "v1"))
    dk.ragged(v1, str(tmp_path / "r"), tokenizer=tokenizer, name="x", **HERE)
    dk.hdf5(v1, str(tmp_path / "h"), tokenizer=tokenizer, **ROWS_OF_64, **HERE)
    files = bytes_of(tmp_path / "h")
    assert len(files) > 6, "more files than partitions write one each"
    for number, frame in enumerate((df, bag, df.repartition(npartitions=2))):
        ragged, rows = tmp_path / f"r{number}", tmp_path / f"h{number}"
        done = dk.write_hdf5(frame, str(rows), tokenizer=tokenizer, **ROWS_OF_64)
        assert bytes_of(rows) == files, "however it is partitioned"
        assert (done.done, done.counts["documents_out"]) == (len(files) - 1, 74)
        again = dk.write_hdf5(frame, str(rows), tokenizer=tokenizer, **ROWS_OF_64)
        assert (again.done, again.skipped) == (0, len(files) - 1)
        dk.write_ragged(frame, str(ragged), tokenizer=tokenizer, name="x")
        assert sorted(path.name for path in rows.iterdir() if path.is_dir()) == ["_journal", "_segments"]
    assert bytes_of(tmp_path / "r0") == bytes_of(tmp_path / "r1") == bytes_of(tmp_path / "r")
    segments = [bytes_of(tmp_path / name / "_segments") for name in ("r", "r0", "h", "h0")]
    assert segments[0] == segments[1]
    assert segments[2] == segments[3]
    assert segments[2].keys() == {f"{name}.parquet" for name in files if name.endswith(".h5")}
    assert len(dk.open_ragged(str(tmp_path / "r2"))) == 74


@pytest.mark.slow
def test_packed_rows_are_those_of_the_verb_however_it_is_partitioned(root, tmp_path, tokenizer):
    df = dk.read_dataframe(root, partition_bytes=MANY)
    v1 = dk.write_documents(df, str(tmp_path / "v1"))
    packed = {**ROWS_OF_64, "mode": "LMData_VSL", "min_sequence_len": 2}
    dk.hdf5(v1, str(tmp_path / "h"), tokenizer=tokenizer, **packed, **HERE)
    for number, frame in enumerate((df, df.repartition(npartitions=2))):
        dk.write_hdf5(frame, str(tmp_path / f"h{number}"), tokenizer=tokenizer, **packed)
        assert bytes_of(tmp_path / f"h{number}") == bytes_of(tmp_path / "h")


@pytest.mark.parametrize(
    ("options", "message"),
    [({"mode": "DPO"}, "fields of whole records"), ({"shuffle": True}, "keeps the order")],
)
def test_what_only_files_of_documents_allow_is_refused(root, tmp_path, tokenizer, options, message):
    with pytest.raises(UsageError, match=message):
        dk.write_hdf5(dk.read_dataframe(root), str(tmp_path / "h"), tokenizer=tokenizer, **options)


@pytest.mark.parametrize("name", ["parquet", "dolma", "megatron", "mds"])
def test_every_format_has_the_bytes_of_the_verb(name, root, tmp_path, tokenizer):
    df = dk.read_dataframe(root, partition_bytes=None)
    v1 = dk.write_documents(df, str(tmp_path / "v1"))
    options = {"tokenizer": tokenizer, "name": "x", "format": name, "eos": "<|endoftext|>"}
    dk.ragged(v1, str(tmp_path / "a"), **options, **HERE)
    dk.write_ragged(df, str(tmp_path / "b"), **options)
    files = bytes_of(tmp_path / "a")
    assert bytes_of(tmp_path / "b") == files
    assert dk.write_ragged(df, str(tmp_path / "b"), **options).done == 0
    assert bytes_of(tmp_path / "b") == files


def test_the_wall_time_is_that_of_all_tasks(root, tmp_path, tokenizer):
    def slow(part):
        time.sleep(0.5)
        return part

    df = dk.read_dataframe(root)
    slowly = df.map_partitions(slow, meta=df._meta)
    assert dk.write_hdf5(slowly, str(tmp_path / "h"), tokenizer=tokenizer, **ROWS_OF_64).seconds > 0.5


def test_what_is_there_is_not_replaced_unasked(root, tmp_path, tokenizer):
    df = dk.read_dataframe(root, partition_bytes=None)
    to, rows = str(tmp_path / "r"), str(tmp_path / "h")
    dk.ragged(root, to, tokenizer=tokenizer, **HERE)
    dk.hdf5(root, rows, tokenizer=tokenizer, **ROWS_OF_64, **HERE)
    before = bytes_of(tmp_path / "r"), bytes_of(tmp_path / "h")
    with pytest.raises(UsageError, match="was made from"):
        dk.write_ragged(df, to, tokenizer=tokenizer, name="v0")
    with pytest.raises(UsageError, match="was made from"):
        dk.write_hdf5(df, rows, tokenizer=tokenizer, **ROWS_OF_64)
    assert (bytes_of(tmp_path / "r"), bytes_of(tmp_path / "h")) == before
    dk.write_hdf5(df[df.id != "a-0"], rows, tokenizer=tokenizer, **ROWS_OF_64, overwrite=True)
    assert bytes_of(tmp_path / "h") != before[1]
    with pytest.raises(UsageError, match="eos_id 0, now 1"):
        dk.write_hdf5(df, rows, tokenizer=tokenizer, **{**ROWS_OF_64, "eos_id": 1})
    with pytest.raises(UsageError, match="takes no argument 'max_length'"):
        dk.write_hdf5(df, rows, tokenizer=tokenizer, max_length=3)


def test_the_sums_may_be_lost_midway(root, tmp_path, tokenizer, monkeypatch):
    """As with a worker that is killed while it moves the staging files: the next attempt has the same answers of the others."""
    from dolma_dask.frames import publishing

    df, to = dk.read_dataframe(root, partition_bytes=None), tmp_path / "h"
    task = dk.write_hdf5(df, str(to), tokenizer=tokenizer, **ROWS_OF_64, compute=False)
    graph, moved = dict(task.dask), []
    sums = next(key for key in graph if "hdf5-sums" in str(key))
    staged = list(dask.get(graph, sorted(key for key in graph if str(key).startswith("hdf5-part"))))
    move = publishing.move

    def killed(url: str, target: str) -> None:
        if len(moved) == 2:
            raise KeyboardInterrupt
        moved.append(move(url, target))

    monkeypatch.setattr(publishing, "move", killed)
    with pytest.raises(KeyboardInterrupt):
        graph[sums].func(staged)
    monkeypatch.setattr(publishing, "move", move)
    tokens = graph[sums].func(staged)
    assert tokens == graph[sums].func(staged)
    assert len(tokens.records) == 5


@pytest.mark.parametrize("below", ["documents", "documents/x", "attributes/mine"])
def test_tokens_and_documents_among_documents_or_attributes_are_refused(root, tmp_path, tokenizer, below):
    """Folders of the dataset that is read, and of any that shows itself by its folders, are refused."""
    for frame in (dk.read_dataframe(root), dk.read_bag(root)):
        to = f"{root}/{below}"
        with pytest.raises(UsageError, match="lies among the documents or attributes of"):
            dk.write_ragged(frame, to, tokenizer=tokenizer)
        with pytest.raises(UsageError, match="lies among the documents or attributes of"):
            dk.write_hdf5(frame, to, tokenizer=tokenizer)
        with pytest.raises(UsageError, match="lies among the documents or attributes of"):
            dk.write_documents(frame, to)
    shutil.rmtree(f"{root}/attributes")
    with pytest.raises(UsageError, match="lies among"):
        dk.write_documents(dk.read_dataframe(root, ["id", "source", "text"]).assign(n=1), f"{root}/{below}")


def test_rows_of_other_tokens_than_there_are_in_the_end_do_not_appear(root, tmp_path, tokenizer):
    """As after the loss of a worker, when a function that draws at random is called again."""
    df = dk.read_dataframe(root, partition_bytes=None)
    task, other = (
        dk.write_hdf5(frame, str(tmp_path / "h"), tokenizer=tokenizer, **ROWS_OF_64, compute=False)
        for frame in (df, df[df.id != "a-0"])
    )

    def results(of, name):
        graph = dict(of.dask)
        return dask.get(graph, [key for key in graph if name in str(key)])

    graph = dict(task.dask)
    call = graph[next(key for key in graph if "finish" in str(key))].func
    rows, (tokens,) = results(task, "hdf5-rows"), results(other, "hdf5-sums")
    with pytest.raises(SourceChangedError, match="rows were computed of other tokens"):
        call([*rows, tokens])
    assert not bytes_of(tmp_path / "h")
