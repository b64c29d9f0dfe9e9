"""Ids that are whole numbers: with --ids-as-text they are read as their decimal text, by everything that reads documents; without it they are bad records."""

import inspect
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dolma_dask as dk
from dolma_dask import cli
from dolma_dask.errors import BadRecordError, DolmaDaskError, SchemaError, StageError
from dolma_dask.io.attributes import AttributeFile
from dolma_dask.io.documents import DocumentFile
from dolma_dask.journal import Journal

WITHOUT = r"found a number \(`--ids-as-text` reads whole numbers as text, `dolma-dask convert` makes a dataset with the numbers as text\)"

LINES = [
    '{"id": 17, "text": "a", "source": "s"}',
    '{"text":"b","metadata":{"id":5,"attributes":{"id":6}},"source":"s","id"\t: -3\t}',
    '{"id":"\\u00e9","text":"c","source":"s"}',
    '{"id":123456789012345678901234567890,"text":"d","source":"s"}',
    '{"id":0,"text":"e","source":"s"}\r',
    '{"id":-0,"text":"f","source":"s"}',
    '{"\\u0069d":12,"text":"g","source":"s"}',
    '{"id":1,"id":2,"text":"h","source":"s"}',
]
IDS = ["17", "-3", "é", "123456789012345678901234567890", "0", "0", "12", "2"]
BAD = ["1e3", "1.0", "-1.5", "true", "null", "017", "[17]", "{}", "+1", "1_0"]


def documents(root: Path, lines: Sequence[str], shard: str = "a.jsonl") -> str:
    path = root / "documents" / shard
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(line + "\n" for line in lines))
    return str(root)


def attributes(root: Path, ids: Sequence[Any], shard: str = "a.jsonl") -> None:
    path = root / "attributes/mine" / shard
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = [{"id": one, "source": "s", "attributes": {"n": [[0, 1, float(n)]]}} for n, one in enumerate(ids)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def numbered(root: Path, rows: int = 12, form: type = int) -> str:
    """Write a dataset whose ids are numbers, or these numbers as text, and attributes of another tool."""
    lines = [json.dumps({"id": form(7 * n), "text": f"text {n}", "source": "s"}) for n in range(rows)]
    attributes(root, [form(7 * n) for n in range(rows)])
    return documents(root, lines)


def read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_ids_and_lines_are_those_of_text(tmp_path: Path) -> None:
    url = f"{documents(tmp_path, LINES)}/documents/a.jsonl"
    (block,) = DocumentFile(url, ("id", "raw", "metadata"), ids_as_text=True)
    assert not block.bad
    assert block.batch.column("id").to_pylist() == IDS
    raw = block.batch.column("raw").to_pylist()
    assert [json.loads(line)["id"] for line in raw] == IDS
    # other bytes stay
    assert raw[0] == b'{"id": "17", "text": "a", "source": "s"}\n'
    assert raw[1] == LINES[1].replace("-3", '"-3"').encode() + b"\n"
    assert raw[2] == LINES[2].encode() + b"\n"
    (alone,) = DocumentFile(url, ("raw",), ids_as_text=True)
    assert alone.batch.column("raw").to_pylist() == raw


@pytest.mark.parametrize("value", BAD)
def test_what_is_no_whole_number_stays_bad(tmp_path: Path, value: str) -> None:
    lines = [LINES[0], f'{{"id": {value}, "text": "x", "source": "s"}}', LINES[3]]
    url = f"{documents(tmp_path, lines)}/documents/a.jsonl"
    (block,) = DocumentFile(url, ("id", "raw"), ids_as_text=True)
    assert block.batch.column("id").to_pylist() == [IDS[0], None, IDS[3]]
    assert block.batch.column("raw").null_count == 1
    assert [(bad.row, bad.raw) for bad in block.bad] == [(1, lines[1].encode())]
    assert "--ids-as-text" not in str(block.bad[0])


@pytest.mark.parametrize("type_", [pa.int64(), pa.uint64(), pa.int8()])
def test_columns_of_tables(tmp_path: Path, type_: pa.DataType) -> None:
    ids = pa.array([17, 0, None, 3], type_)
    path, texts = str(tmp_path / "a.parquet"), ["a", "b", "c", "d"]
    pq.write_table(pa.table({"id": ids, "text": texts, "source": ["s"] * 4, "n": [0.5] * 4}), path)
    (block,) = DocumentFile(path, ("id", "raw"), ids_as_text=True)
    assert block.batch.column("id").to_pylist() == ["17", "0", None, "3"]
    assert json.loads(block.batch.column("raw")[0].as_py()) == {
        "id": "17", "text": "a", "source": "s", "n": 0.5,
    }  # fmt: skip
    assert [bad.row for bad in block.bad] == [2]
    (rows,) = AttributeFile(path, {"n": "number"}, ids_as_text=True)
    assert rows.ids.to_pylist() == ["17", "0", None, "3"]
    for opened in (DocumentFile(path), AttributeFile(path, {"n": "number"})):
        with pytest.raises(
            SchemaError, match="`--ids-as-text` reads whole numbers as text, `dolma-dask conv"
        ):
            list(opened)


def test_a_column_of_other_numbers_stays_refused(tmp_path: Path) -> None:
    path = str(tmp_path / "a.parquet")
    pq.write_table(pa.table({"id": [1.0], "text": ["a"], "source": ["s"]}), path)
    for opened in (DocumentFile(path, ids_as_text=True), AttributeFile(path, {}, ids_as_text=True)):
        with pytest.raises(SchemaError, match="double; expected"):
            list(opened)


def test_everything_that_takes_a_dataset_has_the_option() -> None:
    functions = [getattr(dk, name) for name in dk.__all__]
    takes = {f.__name__: inspect.signature(f).parameters for f in functions if inspect.isfunction(f)}
    lacking = {name for name, found in takes.items() if "dataset" in found and "ids_as_text" not in found}
    assert lacking == set()
    assert "tag" in takes
    assert "mix" in takes


def test_collections_have_text(tmp_path: Path) -> None:
    root = numbered(tmp_path / "v0")
    with pytest.raises(BadRecordError, match=WITHOUT):
        dk.read_dataframe(root, ["id"]).compute(scheduler="synchronous")
    for given in (
        {"dataset": root, "ids_as_text": True},
        {"dataset": dk.open_dataset(root, ids_as_text=True)},
    ):
        found = given.pop("dataset")
        frame = dk.read_dataframe(found, ["id", "n"], partition_bytes=200, **given)
        assert frame.npartitions > 1
        assert frame["id"].compute(scheduler="synchronous").tolist() == [str(7 * n) for n in range(12)]
        rows = dk.read_bag(found, ["id", "n"], **given).compute(scheduler="synchronous")
        assert rows[3] == {"id": "21", "n": 3.0}
    frame = dk.read_dataframe(root, ["id", "source", "n"], ids_as_text=True).assign(twice=lambda df: df.n * 2)
    with pytest.raises(DolmaDaskError, match="--ids-as-text"):
        dk.write_attributes(frame, root, "mine2", scheduler="synchronous", progress=False)
    dk.write_attributes(frame, root, "mine2", ids_as_text=True, scheduler="synchronous", progress=False)
    assert read(tmp_path / "v0/attributes/mine2/a.jsonl")[2]["id"] == "14"


def test_ids_align_whichever_side_has_numbers(tmp_path: Path) -> None:
    for name, ours, theirs in (("both", int, int), ("one", int, str), ("other", str, int)):
        root = numbered(tmp_path / name, form=ours)
        attributes(tmp_path / name, [theirs(7 * n) for n in range(12)])
        assert dk.validate(root, ids_as_text=True, progress=False).exit_status == 0
        assert dk.validate(root, progress=False).exit_status == 1
    attributes(tmp_path / "both", [7 * n + (n == 5) for n in range(12)])
    answer = dk.validate(str(tmp_path / "both"), ids_as_text=True, progress=False)
    assert answer.exit_status == 1
    assert "36" in str(answer)


def test_a_set_whose_first_rows_have_no_key(tmp_path: Path) -> None:
    root = numbered(tmp_path, 1200)
    rows = [{"id": 7 * n, "source": "s", "attributes": {}} for n in range(1200)]
    path = tmp_path / "attributes/mine/a.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert dk.validate(root, ids_as_text=True, progress=False).exit_status == 0
    frame = dk.read_dataframe(root, ["id"], attributes=["mine"], ids_as_text=True)
    assert len(frame.compute(scheduler="synchronous")) == 1200
    with pytest.raises(BadRecordError, match=WITHOUT):
        dk.read_dataframe(root, ["id"], attributes=["mine"]).compute(scheduler="synchronous")


def test_a_check_names_the_rows_that_are_bad_and_no_others(tmp_path: Path) -> None:
    root = numbered(tmp_path)
    attributes(tmp_path, [7 * n if n != 5 else 3.5 for n in range(12)])
    found = dk.validate(root, ids_as_text=True, progress=False).found
    assert {kind: item.count for kind, item in found.items()} == {"bad_attribute_row": 1}
    assert "a number that is not whole" in str(found["bad_attribute_row"].first)


def test_a_number_and_its_text_are_one_id(tmp_path: Path) -> None:
    root = documents(tmp_path, [LINES[0], '{"id":"17","text":"b","source":"s"}'])
    answer = dk.validate(root, ids_as_text=True, progress=False)
    assert answer.exit_status == 1
    assert "duplicate" in str(answer)
    flagged = dk.dedupe(root, by="id", name="same", ids_as_text=True, progress=False)
    assert flagged.counts["duplicates"] == 1


def test_attributes_and_digests_are_those_of_a_tree_with_text(tmp_path: Path) -> None:
    made = {}
    for form in (int, str):
        root = numbered(tmp_path / form.__name__, form=form)
        dk.tag(root, ["char_length_v1"], ids_as_text=form is int, progress=False)
        (record,) = Journal(root, "tag").records.values()
        data = (tmp_path / form.__name__ / "attributes/char_length_v1/a.jsonl").read_bytes()
        made[form] = data, record.ids_digest, record.content_digest
    assert made[int] == made[str]


def test_the_option_decides_what_is_finished(tmp_path: Path) -> None:
    root = documents(tmp_path, [*LINES, '{"id":"x","text":"x","source":"s"}'])
    aside: dict[str, Any] = {"on_bad_record": "quarantine", "max_bad_fraction": 1.0, "progress": False}
    first = dk.tag(root, ["char_length_v1"], **aside)
    assert first.counts["bad_records"] == 7
    assert "ids_as_text" not in Journal(root, "tag").runs[-1].params
    path = tmp_path / "attributes/char_length_v1/a.jsonl"
    assert read(path)[0]["id"] is None
    again = dk.tag(root, ["char_length_v1"], ids_as_text=True, **aside)
    assert (again.done, again.counts["bad_records"]) == (1, 0)
    assert Journal(root, "tag").runs[-1].params["ids_as_text"] is True
    assert read(path)[0]["id"] == "17"
    assert dk.tag(root, ["char_length_v1"], ids_as_text=True, **aside).skipped == 1


def test_a_mix_is_read_without_the_option(tmp_path: Path) -> None:
    root, to = numbered(tmp_path / "v0"), str(tmp_path / "v1")
    with pytest.raises(StageError, match=WITHOUT):
        dk.mix(root, to=to, where="n > 2", progress=False)
    dk.mix(root, to=to, where="n > 2", ids_as_text=True, progress=False)
    ids = dk.read_dataframe(to, ["id"])["id"].compute(scheduler="synchronous").tolist()
    assert ids == [str(7 * n) for n in range(3, 12)]


def test_a_list_of_a_mix_flags_numbers(tmp_path: Path) -> None:
    root, to = numbered(tmp_path / "v0"), str(tmp_path / "v1")
    (tmp_path / "gone.txt").write_text("7\n14\n")
    mixed = dk.mix(root, to=to, block=str(tmp_path / "gone.txt"), ids_as_text=True, progress=False)
    assert mixed.counts["documents_out"] == 10


def test_a_configuration_of_the_toolkit(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = numbered(tmp_path / "v0")
    stream = {
        "name": "s",
        "documents": [f"{root}/documents/*.jsonl"],
        "attributes": ["mine"],
        "filter": {"include": ["$.attributes[?(@.n && @.n[0] && @.n[0][2] >= 5)]"]},
        "output": {"path": str(tmp_path / "out"), "max_size_in_bytes": 10**6},
        "compression": {"input": "", "output": ""},
    }
    (tmp_path / "mixer.json").write_text(json.dumps({"streams": [stream]}))
    words = ["-c", str(tmp_path / "mixer.json"), "mix", "--no-progress"]
    assert cli.main(words) == 1
    assert "--ids-as-text" in capsys.readouterr().out
    assert cli.main([*words, "--ids-as-text"]) == 0
    assert [row["id"] for row in read(tmp_path / "out/s-0000.jsonl")] == [str(7 * n) for n in range(5, 12)]


def test_a_pipeline_says_it_once(tmp_path: Path) -> None:
    root = numbered(tmp_path / "v0")
    (tmp_path / "p.yaml").write_text(
        f"defaults: {{ids_as_text: true, progress: false}}\nstages:\n  - tag: {{dataset: {root}, taggers: [char_length_v1]}}\n"
        f"  - mix: {{dataset: {root}, to: {tmp_path}/v1, where: 'n > 2'}}\n  - report: {{dataset: {tmp_path}/v1, to: {tmp_path}/page.html}}\n"
    )
    assert dk.run(str(tmp_path / "p.yaml"), progress=False).exit_status == 0
    # the page reads the documents that were selected from as the mix did
    assert dk.report(str(tmp_path / "v1"), to=str(tmp_path / "again.html"), progress=False).exit_status == 0


def test_clusters_are_shown_as_they_were_read(tmp_path: Path) -> None:
    text = "the people of the winter garden have words that are read by all of the others in the village"
    lines = [json.dumps({"id": n, "text": text, "source": "s"}) for n in range(3)]
    root = documents(tmp_path, lines)
    dk.dedupe(root, how="fuzzy", ids_as_text=True, progress=False)
    assert "survivor 0" in str(dk.show_cluster(root, "1", ids_as_text=True))
    with pytest.raises(BadRecordError, match=WITHOUT):
        dk.show_cluster(root, "1")


def test_attributes_are_converted_with_text(tmp_path: Path) -> None:
    root = numbered(tmp_path)
    dk.convert(root, to=root, attributes="mine", form="flat", rename="flat", progress=False)
    rows = read(tmp_path / "attributes/flat/a.jsonl")
    assert [row["id"] for row in rows] == [str(7 * n) for n in range(12)]


def test_who_forgets_the_option_is_not_sent_to_tag(tmp_path: Path) -> None:
    root = documents(tmp_path / "v0", LINES[:1])
    dk.tag(root, ["char_length_v1"], ids_as_text=True, progress=False)
    with pytest.raises(StageError, match=r"the document could not be read: .*same options \(--ids-as-text"):
        dk.mix(
            root, to=str(tmp_path / "v1"), where="char_length_v1__char_length_v1__length > 0", progress=False
        )
