"""Files that do not belong together, or are not what they were: the right error, whether a shard is read whole or in parts."""

import json
import os
import shutil
from pathlib import Path

import pytest
from partition_worlds import COUNT, MANY, ROWS, expected, rewrite, values

import dolma_dask as dk
from dolma_dask.errors import (
    AlignmentError,
    BadRecordError,
    CorruptFileError,
    MissingAttributesError,
    SourceChangedError,
    StaleAttributesError,
)
from dolma_dask.frames.dataframe import read_dataframe

COUNT_ROWS = sum(map(len, ROWS.values()))


def swapped(lines: list[bytes]) -> list[bytes]:
    return [*lines[:30], lines[31], lines[30], *lines[32:]]


EDITS = {
    "short": (lambda lines: lines[:-1], r"has 39 rows, documents/a\.jsonl has 40; first difference at row 39 \(no row"),
    "long": (lambda lines: [*lines, lines[3]], r"has 41 rows, documents/a\.jsonl has 40; first difference at row 40 \(id 'a-3', expected the end"),
    "swapped": (swapped, r"has 40 rows, documents/a\.jsonl has 40; first difference at row 30 \(id 'a-31', expected 'a-30'"),
    "a row lost": (lambda lines: [*lines[:5], *lines[6:]], r"has 39 rows, .* first difference at row 5 \("),
    "wrong source": (
        lambda lines: [line.replace(b'"source":"web"', b'"source":"wob"').replace("bücher".encode(), "bächer".encode()) for line in lines],
        r"first difference at row 0 \(source ",
    ),
}  # fmt: skip
"""Changes of an attribute file, and what is said of them."""


@pytest.mark.parametrize("partition_bytes", [MANY, None])
@pytest.mark.parametrize("columns", [[COUNT], ["id", COUNT], ["text", COUNT]])
@pytest.mark.parametrize("name", EDITS)
def test_attributes_that_do_not_line_up(plain, name, columns, partition_bytes):
    change, message = EDITS[name]
    rewrite(plain / "attributes/shape_v1/a.jsonl", change)
    df = read_dataframe(str(plain), ["id", "text"], ["shape_v1"], partition_bytes=partition_bytes)
    assert partition_bytes is None or df.npartitions > 6
    with pytest.raises(AlignmentError, match=f"attributes/shape_v1/a.jsonl .*{message}"):
        df[columns].compute()


@pytest.mark.parametrize("partition_bytes", [MANY, None])
@pytest.mark.parametrize("columns", [[COUNT], ["id", COUNT], ["text", COUNT]])
def test_documents_with_other_text_and_equal_ids(plain, columns, partition_bytes):
    rewrite(plain / "documents/z.jsonl", lambda lines: [line.replace(b"the", b"THE") for line in lines])
    df = read_dataframe(str(plain), ["id", "text"], ["shape_v1"], partition_bytes=partition_bytes)
    with pytest.raises(
        StaleAttributesError, match=r"attributes/shape_v1/z\.jsonl is stale: documents/z\.jsonl .* Re-run"
    ):
        df[columns].compute()
    assert len(df["id"].compute()) == COUNT_ROWS, "a set that is not used is not opened"


def test_a_set_without_a_file(plain):
    (plain / "attributes/shape_v1/n/b.jsonl").unlink()
    with pytest.raises(MissingAttributesError, match=r"attributes/shape_v1/n/b\.jsonl is missing"):
        read_dataframe(str(plain), ["id"], ["shape_v1"])
    assert len(read_dataframe(str(plain), ["id"], ["scores_v1"]).compute()) == COUNT_ROWS


@pytest.mark.parametrize("partition_bytes", [MANY, None])
@pytest.mark.parametrize("path", ["attributes/shape_v1/a.jsonl.gz", "documents/a.jsonl.gz"])
def test_truncated_files(gz, tmp_path, path, partition_bytes):
    root = Path(shutil.copytree(gz, tmp_path / "v0"))
    file = root / path
    file.write_bytes(file.read_bytes()[:-9])
    with pytest.raises((CorruptFileError, StaleAttributesError), match=f"{path}: truncated"):
        read_dataframe(str(root), ["text"], ["shape_v1"], partition_bytes=partition_bytes)[
            ["text", COUNT]
        ].compute()


@pytest.mark.parametrize("partition_bytes", [MANY, None])
def test_attributes_that_nobody_can_prove_are_compared_row_by_row(plain, partition_bytes, parsed):
    shutil.rmtree(plain / "_journal")
    df = read_dataframe(str(plain), ["id"], ["shape_v1"], partition_bytes=partition_bytes)
    parsed.clear()
    assert values(df[COUNT].compute()) == expected(ROWS, COUNT)
    assert parsed.documents == {"id", "source"}
    rewrite(plain / "attributes/shape_v1/a.jsonl", swapped)
    df = read_dataframe(str(plain), ["id"], ["shape_v1"], partition_bytes=partition_bytes)
    with pytest.raises(AlignmentError, match="first difference at row 30"):
        df[COUNT].compute()


@pytest.mark.parametrize("partition_bytes", [MANY, None])
def test_attributes_edited_without_harm_to_the_rows_are_not_read(plain, partition_bytes):
    rewrite(
        plain / "attributes/shape_v1/a.jsonl",
        lambda lines: [line.replace(b'"id":', b'"id":  ') for line in lines],
    )
    for columns in ([COUNT], ["id", COUNT]):
        df = read_dataframe(str(plain), ["id"], ["shape_v1"], partition_bytes=partition_bytes)
        with pytest.raises(StaleAttributesError, match="not the file that `tag` wrote"):
            df[columns].compute()


@pytest.mark.parametrize("path", ["documents/a.jsonl", "attributes/shape_v1/a.jsonl"])
@pytest.mark.parametrize("partition_bytes", [MANY, None])
def test_files_written_after_the_dataset_was_opened(plain, path, partition_bytes):
    df = read_dataframe(str(plain), ["id"], ["shape_v1"], partition_bytes=partition_bytes)
    os.utime(plain / path, (1, 1))
    with pytest.raises(SourceChangedError, match=f"{path} has .* as when the dataset was opened"):
        df[["id", COUNT]].compute()
    (plain / path).unlink()
    with pytest.raises(SourceChangedError, match=f"{path} is gone"):
        df[["id", COUNT]].compute()


def test_documents_edited_to_the_same_size_are_not_read_at_old_places(plain):
    """The journal's places are those of other lines."""
    path = plain / "documents/z.jsonl"
    rewrite(path, lambda lines: lines[::-1])
    df = read_dataframe(str(plain), ["id", "text"], partition_bytes=MANY)
    with pytest.raises(SourceChangedError, match=r"z\.jsonl .*partition_bytes=None"):
        df["id"].compute()
    whole = read_dataframe(str(plain), ["id"], only="z", partition_bytes=None).compute()
    assert whole["id"].tolist() == [row["id"] for row in ROWS["z"]][::-1]


def test_lines_joined_within_a_part_are_found(plain):
    """All places of the journal are still starts of lines."""
    rewrite(
        plain / "documents/a.jsonl", lambda lines: [lines[0][:-1] + b" " * len(lines[1]) + b"\n", *lines[2:]]
    )
    df = read_dataframe(str(plain), ["id"], only="a.jsonl", partition_bytes=MANY)
    with pytest.raises(SourceChangedError, match=r"a\.jsonl has \d+ rows; expected \d+ rows from row 0 on"):
        df.compute()


@pytest.mark.parametrize("partition_bytes", [MANY, None])
def test_bad_records(plain, partition_bytes):
    path = plain / "documents/a.jsonl"
    rewrite(path, lambda lines: [*lines[:20], b"oops\n", *lines[20:]])
    shutil.rmtree(plain / "attributes")
    options = {"scheduler": "synchronous", "progress": False, "on_bad_record": "quarantine"}
    assert dk.tag(str(plain), ["char_length_v1"], **options).exit_status == 1
    length = "char_length_v1__char_length_v1__length"
    options = {"partition_bytes": partition_bytes}
    df = read_dataframe(str(plain), ["id", "text"], "all", **options)
    with pytest.raises(
        BadRecordError, match=r"documents/a\.jsonl, row 20, byte \d+: invalid json.*on_bad_record=.null"
    ):
        df[["id", length]].compute()
    with pytest.raises(
        BadRecordError, match=r"attributes/char_length_v1/a\.jsonl, row 20: no id.*could not be read"
    ):
        df[length].compute()
    df = read_dataframe(str(plain), ["id", "text"], "all", on_bad_record="null", **options)
    texts = expected(ROWS, "text")
    assert values(df["text"].compute()) == [*texts[:20], None, *texts[20:]]
    assert values(df[length].compute()) == [*map(len, texts[:20]), None, *map(len, texts[20:])]
    assert len(df) == COUNT_ROWS + 1


@pytest.mark.parametrize("partition_bytes", [MANY, None])
def test_documents_without_source(plain, partition_bytes):
    root = plain
    for path in (root / "documents").rglob("*.jsonl"):
        rewrite(
            path,
            lambda lines: [
                json.dumps(json.loads(line) | {"source": None}).encode() + b"\n" for line in lines
            ],
        )
    shutil.rmtree(root / "attributes")
    options = {"scheduler": "synchronous", "progress": False, "source": "given"}
    dk.tag(str(root), ["char_length_v1"], **options)
    length = "char_length_v1__char_length_v1__length"
    df = read_dataframe(str(root), ["source"], "all", source="given", partition_bytes=partition_bytes)
    assert set(df["source"].compute()) == {"given"}
    assert values(df[length].compute()) == list(map(len, expected(ROWS, "text")))
    df = read_dataframe(str(root), ["source"], "all", source="other", partition_bytes=partition_bytes)
    with pytest.raises(
        AlignmentError, match=r"source 'given', expected 'other'|was made from other documents"
    ):
        df[length].compute()


@pytest.mark.parametrize(
    "asked", [{"attributes": ["shape_v1"]}, {"columns": ["id"], "attributes": ["shape_v1"]}]
)
def test_a_set_without_any_row(plain, asked):
    """No key tells that it would have to be read."""
    shutil.rmtree(plain / "_journal")  # which knows its keys
    for path in (plain / "attributes/shape_v1").rglob("*.jsonl"):
        path.write_bytes(b"")
    with pytest.raises(
        AlignmentError, match=r"attributes/shape_v1/a\.jsonl has 0 rows, documents/a\.jsonl has 40"
    ):
        read_dataframe(str(plain), **asked)


def test_a_set_without_any_row_beside_no_documents(tmp_path):
    for folder in ("documents", "attributes/none"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "a.jsonl").write_bytes(b"")
    assert len(read_dataframe(str(tmp_path), attributes=["none"])) == 0


def test_a_source_that_was_given_once_and_then_left_out(tmp_path):
    (tmp_path / "documents").mkdir()
    lines = [json.dumps({"id": str(number), "text": "some words"}) for number in range(5)]
    (tmp_path / "documents/a.jsonl").write_text("\n".join(lines) + "\n")
    dk.tag(str(tmp_path), ["shape_v1"], source="web", progress=False, scheduler="synchronous")
    shutil.rmtree(tmp_path / "_journal")  # or nobody would compare the rows
    df = read_dataframe(str(tmp_path), ["id", "text"], ["shape_v1"])
    with pytest.raises(AlignmentError, match=r"row 0.*missing field.*'source'.*source=\.\.\., --source"):
        df.compute()
    with pytest.raises(AlignmentError, match=r"--source.*first difference at row 0"):
        read_dataframe(str(tmp_path), ["id", "text"], ["shape_v1"], on_bad_record="null").compute()
    assert len(read_dataframe(str(tmp_path), ["id"], ["shape_v1"], source="web").compute()) == 5
