"""Kinds of output: a sink and its plan are a verb; what decides bytes is in the key and in the journal."""

import json
import re

import msgspec
import pytest
from example_sink import TextFile, TextOutput, TextSink, texts

import dolma_dask as dk
from dolma_dask.clusters import Placement
from dolma_dask.engine import Task
from dolma_dask.engine.documents import DocumentStage, file_plan
from dolma_dask.engine.execution import check_sendable
from dolma_dask.errors import StageError, UsageError
from dolma_dask.frames.options import WriteOptions
from dolma_dask.frames.partitions import collection_of, shard_names
from dolma_dask.frames.shards import documents_of, write_each
from dolma_dask.io.quarantine import RecordPolicy
from dolma_dask.sinks.documents import DocumentSink

HERE = {"scheduler": "synchronous", "progress": False}
TEXTS = {"a": ["one", "two", "three"], "b": [], "sub/c": ["four"]}


@pytest.fixture
def root(tmp_path):
    for shard, texts_of_shard in TEXTS.items():
        path = tmp_path / f"v0/documents/{shard}.jsonl"
        path.parent.mkdir(exist_ok=True, parents=True)
        rows = [{"id": f"{shard}{n}", "source": "s", "text": text} for n, text in enumerate(texts_of_shard)]
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return tmp_path


def write(root, **options):
    return texts(str(root / "v0"), str(root / "out"), **HERE, **options)


def written(root):
    return {str(path.relative_to(root / "out")): path.read_text() for path in (root / "out").rglob("*.txt")}


def test_there_is_a_file_for_each_shard_of_the_documents_that_a_rule_keeps(root):
    summary = write(root, where="id != 'a1'")
    assert written(root) == {"a.txt": "one\n---\nthree\n---\n", "b.txt": "", "sub/c.txt": "four\n---\n"}
    assert (summary.done, summary.counts["documents_out"]) == (3, 3)
    assert write(root, where="id != 'a1'").skipped == 3
    assert write(root, where="id != 'x'", overwrite=True).notes == (
        "id != 'x' holds for every row: it drops nothing",
    )


def test_an_option_that_decides_bytes_is_in_the_key_and_replaces_nothing_unasked(root):
    write(root)
    before = written(root)
    with pytest.raises(UsageError, match="of a finished texts with other options: between '---', now '=='"):
        write(root, between="==")
    assert written(root) == before
    write(root, between="==", overwrite=True)
    assert written(root)["sub/c.txt"] == "four\n==\n"


def test_bad_records_that_were_set_aside_are_in_the_way_of_no_further_run(root):
    with (root / "v0/documents/a.jsonl").open("a") as file:
        file.write("{broken\n")
    options = {"on_bad_record": "quarantine", "max_bad_fraction": 0.5}
    assert write(root, **options).done == 3
    assert (root / "out/_quarantine/texts/a.jsonl.jsonl").exists()
    assert write(root, **options).skipped == 3


def test_a_file_of_two_shards_and_one_among_the_documents_are_refused(root):
    (root / "v0/documents/a.jsonl.gz").write_bytes(b"")
    with pytest.raises(UsageError, match=r"1 output paths would .* first 'a\.txt'"):
        write(root)
    (root / "v0/documents/a.jsonl.gz").unlink()
    with pytest.raises(UsageError, match="lies among the documents or attributes"):
        texts(str(root / "v0"), str(root / "v0/attributes/mine"), **HERE)


def test_an_output_takes_the_partitions_of_a_collection_too(root):
    collection = collection_of(dk.read_dataframe(str(root / "v0")), "write_texts")
    output = TextOutput(str(root / "out"), "---")
    documents = documents_of(shard_names(collection.npartitions), None)
    paths = {shard: f"{number}.txt" for number, shard in enumerate(documents.shards)}
    plan = file_plan(output, documents, paths, RecordPolicy(), {"between": "---"}, version=1)
    options = WriteOptions(scheduler="synchronous")
    assert write_each(collection.texts(), plan, options).done == len(paths)
    assert "".join(written(root)[path] for path in paths.values()) == "".join(
        f"{text}\n---\n" for texts_of_shard in TEXTS.values() for text in texts_of_shard
    )
    assert write_each(collection.texts(), plan, options).skipped == len(paths)


def test_an_error_of_a_sink_itself_says_whose_it_is_and_where(root, monkeypatch):
    monkeypatch.setattr(TextFile, "write", lambda writer, texts: 1 / 0)
    with pytest.raises(StageError) as failed:
        write(root)
    first = failed.value.failures[0]
    assert re.fullmatch(
        r"division by zero; raised by texts of a.jsonl in TextSink.write \(example_sink.py, line \d+\), "
        r".*<lambda> \(test_sink.py, line \d+\)",
        first.message,
    )
    assert first.message in str(failed.value)
    assert not written(root).keys() - {"b.txt"}


def test_an_error_of_a_sink_for_a_collection_keeps_its_traceback(root, monkeypatch, tmp_path):
    monkeypatch.setattr(DocumentSink, "write", lambda sink, rows: 1 / 0)
    frame = dk.read_dataframe(str(root / "v0"))
    with pytest.raises(ZeroDivisionError) as failed:
        dk.write_documents(frame, str(tmp_path / "new"), scheduler="synchronous")
    assert failed.traceback[-1].name == "<lambda>"
    assert "raised by write_documents of part-00000.jsonl.gz in" in failed.value.__notes__[0]


def test_a_sink_that_does_not_close_its_writer_is_a_failure(root, monkeypatch):
    monkeypatch.setattr(TextSink, "__exit__", lambda sink, *error: None)
    with pytest.raises(
        StageError, match=r"TextFile of a.txt was never closed, so that its file did not appear"
    ):
        texts(str(root / "v0"), str(root / "out"), **HERE)


def test_a_struct_that_no_module_brings_is_refused_by_name_before_it_is_sent(root, monkeypatch):
    own = msgspec.defstruct(
        "Own", [("root", str)], namespace={"verb": "own", "columns": ("text",)}, module="__main__"
    )
    stage = DocumentStage((own("x"),), RecordPolicy(), "own")
    task = Task("a", (), (), None)
    with pytest.raises(
        UsageError, match="Own is a msgspec struct that no module brings; make it a dataclass"
    ):
        check_sendable(stage, task, Placement(scheduler="processes", workers=2))
