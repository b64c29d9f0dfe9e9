from pathlib import Path

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
    return {path.name: path.read_bytes() for path in root.iterdir() if path.is_file()}


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
        assert [path.name for path in rows.iterdir() if path.is_dir()] == ["_journal"]
    assert bytes_of(tmp_path / "r0") == bytes_of(tmp_path / "r1") == bytes_of(tmp_path / "r")
    assert len(dk.open_ragged(str(tmp_path / "r2"))) == 74


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


def test_rows_of_other_tokens_than_there_are_in_the_end_do_not_appear(root, tmp_path, tokenizer):
    """As after the loss of a worker, when a function that draws at random is called again."""
    from dolma_dask.verbs.collections import hdf5

    df = dk.read_dataframe(root, partition_bytes=None)
    task = dk.write_hdf5(df, str(tmp_path / "h"), tokenizer=tokenizer, **ROWS_OF_64, compute=False)
    graph = dict(task.dask)
    finish = next(key for key in graph if "finish" in str(key))
    other = dk.write_hdf5(
        df[df.id != "a-0"], str(tmp_path / "h"), tokenizer=tokenizer, **ROWS_OF_64, compute=False
    )
    import dask

    (made, others) = (
        dask.get(
            dict(each.dask),
            [key for key in dict(each.dask) if "hdf5-rows" in str(key) or "hdf5-sums" in str(key)],
        )
        for each in (task, other)
    )
    call = graph[finish].func
    tokens = next(item for item in others if isinstance(item, hdf5.Tokens))
    rows = [item for item in made if not isinstance(item, hdf5.Tokens)]
    with pytest.raises(SourceChangedError, match="rows were computed of other tokens"):
        call([*rows, tokens])
    assert not bytes_of(tmp_path / "h")
