"""tag: paths, one pass, experiments, error rows, plug-in objects, resuming per attribute set."""

import base64
import json

import pytest

import dolma_dask as dk
from dolma_dask.errors import BadRecordBudgetError, StageError, UsageError
from dolma_dask.io.artifacts import Artifacts
from dolma_dask.io.quarantine import RecordPolicy
from dolma_dask.journal import Journal
from dolma_dask.placement import choose
from dolma_dask.taggers.registry import get_tagger
from dolma_dask.taggers.scoring import locked_seconds
from dolma_dask.verbs.tag import verb as verbs_of_tag
from dolma_dask.verbs.tag.output import FEW_TAGGERS, PIECE_BYTES, TagOutput, TagStage

from .conftest import TEXTS, document, read_lines, write_lines


def test_rows_line_up_and_folders_are_kept(tagged):
    rows = [json.loads(line) for line in read_lines(tagged / "attributes/char_length_v1/x/a.jsonl.gz")]
    assert [row["id"] for row in rows] == [f"d{number}" for number in range(6)]
    key = "char_length_v1__char_length_v1__length"
    assert [row["attributes"][key] for row in rows] == [[[0, len(text), float(len(text))]] for text in TEXTS]
    assert (tagged / "attributes/whitespace_tokenizer_v1/y/z/b.jsonl.gz").exists()


def test_a_single_file_keeps_its_folder(tmp_path):
    write_lines(tmp_path / "documents/deep/er/only.jsonl.gz", [document(0)])
    dk.tag(str(tmp_path), ["char_length_v1"], progress=False)
    assert (tmp_path / "attributes/char_length_v1/deep/er/only.jsonl.gz").exists()


def test_experiment_puts_all_taggers_in_one_set(dataset):
    dk.tag(str(dataset), ["char_length_v1", "whitespace_tokenizer_v1"], experiment="exp", progress=False)
    row = json.loads(read_lines(dataset / "attributes/exp/x/a.jsonl.gz")[0])
    assert list(row["attributes"]) == ["exp__char_length_v1__length", "exp__whitespace_tokenizer_v1__length"]


def test_a_further_tagger_does_not_redo_the_others(tagged):
    before = {record.unit: record.finished for record in Journal(str(tagged), "tag").records.values()}
    summary = dk.tag(str(tagged), ["char_length_v1", "gopher_v2"], progress=False)
    assert summary.done == 2
    after = {record.unit: record.finished for record in Journal(str(tagged), "tag").records.values()}
    assert all(after[unit] == finished for unit, finished in before.items())
    assert dk.tag(str(tagged), ["char_length_v1", "gopher_v2"], progress=False).skipped == 2


def test_an_unreadable_document_keeps_its_row_with_an_error(tmp_path):
    write_lines(tmp_path / "documents/a.jsonl.gz", [document(0), "nonsense", document(2)])
    with pytest.raises(StageError, match=r"row 1, byte \d+: invalid json"):
        dk.tag(str(tmp_path), ["char_length_v1"], progress=False)
    assert not (tmp_path / "attributes/char_length_v1").exists() or not list(
        (tmp_path / "attributes/char_length_v1").iterdir()
    )
    summary = dk.tag(str(tmp_path), ["char_length_v1"], on_bad_record="quarantine", progress=False)
    assert summary.exit_status == 1
    assert summary.counts["bad_records"] == 1
    rows = [json.loads(line) for line in read_lines(tmp_path / "attributes/char_length_v1/a.jsonl.gz")]
    assert rows[1]["id"] is None
    assert rows[1]["attributes"] == {}
    assert "invalid_json" in rows[1]["error"]
    assert [row["id"] for row in rows] == ["d0", None, "d2"]
    mixed = dk.mix(
        str(tmp_path),
        to=str(tmp_path.parent / f"{tmp_path.name}-v1"),
        where="length >= 0",
        on_bad_record="quarantine",
        max_bad_fraction=0.5,
        progress=False,
    )
    assert mixed.counts["documents_out"] == 2
    assert mixed.counts["bad_records"] == 1


def test_source_may_be_given_once(tmp_path):
    write_lines(tmp_path / "documents/a.jsonl.gz", ['{"id":"1","text":"x"}'])
    with pytest.raises(StageError, match="source"):
        dk.tag(str(tmp_path), ["char_length_v1"], progress=False)
    dk.tag(str(tmp_path), ["char_length_v1"], source="wiki", progress=False)
    assert json.loads(read_lines(tmp_path / "attributes/char_length_v1/a.jsonl.gz")[0])["source"] == "wiki"


@pytest.mark.parametrize(
    ("taggers", "message"),
    [(["gopher_v3"], "gopher_v2"), ([], "no taggers"), (["char_length_v1", "char_length_v1"], "twice")],
)
def test_wrong_taggers_are_named(dataset, taggers, message):
    with pytest.raises(UsageError, match=message):
        dk.tag(str(dataset), taggers)


def test_two_documents_files_never_share_an_attribute_file(dataset):
    write_lines(dataset / "documents/x/a.jsonl", [document(0)])
    with pytest.raises(UsageError, match="written by more than one input"):
        dk.tag(str(dataset), ["char_length_v1"], format="parquet")


def test_an_open_dataset_sees_attributes_made_since(dataset):
    opened = dk.open_dataset(str(dataset))
    dk.tag(opened, ["char_length_v1"], progress=False)
    kept = dk.mix(opened, to=str(dataset.parent / "v1"), where="length > 5", progress=False)
    assert 0 < kept.counts["documents_out"] < 10


def test_counts_do_not_depend_on_which_set_was_made_when(dataset):
    dk.tag(str(dataset), ["gopher_v2"], progress=False)
    summary = dk.tag(str(dataset), ["gopher_v2", "char_length_v1"], progress=False)
    assert summary.counts["documents_in"] == 10
    (dataset / "attributes/char_length_v1/x/a.jsonl.gz").unlink()
    assert dk.tag(str(dataset), ["char_length_v1", "gopher_v2"], progress=False).counts["documents_in"] == 10


def test_rows_with_errors_stay_in_sight(tmp_path):
    write_lines(tmp_path / "documents/a.jsonl.gz", [document(0), "nonsense", document(2)])
    dk.tag(str(tmp_path), ["char_length_v1", "gopher_v2"], on_bad_record="quarantine", progress=False)
    again = dk.tag(str(tmp_path), ["gopher_v2"], on_bad_record="quarantine", progress=False)
    assert (again.done, again.exit_status, again.counts["bad_records"]) == (0, 1, 1)
    dk.tag(
        str(tmp_path),
        ["gopher_v2", "char_length_v1"],
        on_bad_record="quarantine",
        overwrite=True,
        progress=False,
    )
    assert (tmp_path / "_quarantine/tag/a.jsonl.gz.jsonl").exists()


def test_an_experiment_keeps_its_taggers(dataset):
    dk.tag(str(dataset), ["char_length_v1"], experiment="e", progress=False)
    with pytest.raises(
        UsageError, match="holds the attributes of char_length_v1, which are not requested now"
    ):
        dk.tag(str(dataset), ["whitespace_tokenizer_v1"], experiment="e", progress=False)
    assert (
        dk.tag(
            str(dataset), ["char_length_v1", "whitespace_tokenizer_v1"], experiment="e", progress=False
        ).done
        == 2
    )


def test_a_set_has_one_format(dataset):
    dk.tag(str(dataset), ["char_length_v1"], progress=False)
    with pytest.raises(UsageError, match="in another format"):
        dk.tag(str(dataset), ["char_length_v1"], format="parquet", progress=False)
    dk.tag(str(dataset), ["char_length_v1"], format="parquet", overwrite=True, progress=False)
    assert not (dataset / "attributes/char_length_v1/x/a.jsonl.gz").exists()
    assert dk.mix(str(dataset), to=str(dataset.parent / "v1"), where="length > 5", progress=False).failed == 0


def test_a_file_of_another_tool_in_another_format_stays(dataset):
    write_lines(dataset / "attributes/char_length_v1/x/a.jsonl", ['{"id": "d0", "attributes": {}}'])
    for overwrite in False, True:
        with pytest.raises(UsageError, match="1 file that no tag has made"):
            dk.tag(str(dataset), ["char_length_v1"], overwrite=overwrite, progress=False)


def test_another_format_for_some_shards_leaves_the_others(tagged):
    dk.tag(str(tagged), ["char_length_v1"], format="parquet", only=["x/*"], overwrite=True, progress=False)
    found = {path.name for path in (tagged / "attributes/char_length_v1").rglob("*.*")}
    assert found == {"a.parquet", "b.jsonl.gz"}


@pytest.mark.parametrize("one", ["char_length_v1", dk.get_tagger("char_length_v1")])
def test_one_tagger_needs_no_list(dataset, one):
    assert dk.tag(str(dataset), one, progress=False).done == 2
    assert [path.name for path in (dataset / "attributes").iterdir()] == ["char_length_v1"]


def test_a_hostile_journal_removes_nothing_outside_of_the_dataset(tmp_path):
    root, precious = tmp_path / "lake/v0", tmp_path / "precious.txt"
    (root / "documents").mkdir(parents=True)
    (root / "documents/a.jsonl").write_text('{"id": "1", "text": "x", "source": "s"}\n')
    precious.write_text("precious")
    dk.tag(str(root), ["char_length_v1"], scheduler="synchronous", progress=False)
    for segment in root.glob("_journal/tag/*.jsonl"):
        segment.write_text(
            segment.read_text().replace('"path":"attributes/', '"path":"../../precious.txt","x":"')
        )
    assert "precious" in "".join(path.read_text() for path in root.glob("_journal/tag/*.jsonl"))
    summary = dk.tag(str(root), ["char_length_v1"], scheduler="synchronous", progress=False, overwrite=True)
    assert summary.done == 1
    assert precious.read_text() == "precious"


def test_the_row_that_a_tagger_fails_on_is_that_of_the_file(tmp_path):
    @dk.tagger(name="share_v1", types="share")
    def share(text: str) -> float:
        return 1 / len(text)

    texts = ["a" * (3 << 20), "", "b"]
    rows = [json.dumps({"id": f"d{n}", "text": text, "source": "s"}) for n, text in enumerate(texts)]
    write_lines(tmp_path / "documents/a.jsonl.gz", rows)
    with pytest.raises(StageError, match="failed on row 1: ZeroDivisionError"):
        dk.tag(str(tmp_path), share, scheduler="synchronous", progress=False)


@pytest.mark.parametrize("taggers", [len, [len], dk.Summary])
def test_a_function_without_the_decorator_is_named(dataset, taggers):
    with pytest.raises(UsageError, match=r"is not a tagger; expected .* The decorator `tagger` makes one"):
        dk.tag(str(dataset), taggers)


VERBS_OVER_BAD_RECORDS = {
    "convert": lambda root, **options: dk.convert(f"{root}/raw", to=f"{root}/v1", **options),
    "tag": lambda root, **options: dk.tag(f"{root}/v0", ["char_length_v1"], **options),
    "dedupe": lambda root, **options: dk.dedupe(f"{root}/v0", **options),
    "block": lambda root, **options: dk.block(f"{root}/v0", f"{root}/list.txt", name="b", **options),
    "mix": lambda root, **options: dk.mix(f"{root}/v0", to=f"{root}/v2", **options),
}


@pytest.mark.parametrize("verb", VERBS_OVER_BAD_RECORDS)
def test_one_rule_for_bad_records(tmp_path, verb):
    """Within the share that was asked for nothing is wrong, above it something is, whether or not the verb keeps their rows."""
    for folder in ("raw", "v0/documents"):
        write_lines(tmp_path / folder / "a.jsonl", ["nonsense", *map(document, range(199))])
    (tmp_path / "list.txt").write_text("d1\n")
    call, options = VERBS_OVER_BAD_RECORDS[verb], {"scheduler": "synchronous", "progress": False}
    summary = call(tmp_path, on_bad_record="quarantine", **options)
    assert (summary.counts["bad_records"], summary.exit_status) == (1, 0)
    stricter = {**options, "on_bad_record": "quarantine", "max_bad_fraction": 0.001, "overwrite": True}
    try:
        summary = call(tmp_path, **stricter)
    except BadRecordBudgetError as error:
        summary = error
    assert summary.exit_status == 1
    assert "1 of 200 rows are bad (0.500%); allowed are 0.100% (max_bad_fraction)" in str(summary)


@pytest.mark.parametrize(
    "suffix, how", [("jsonl.gz", "by spans"), ("jsonl.gz", "by bytes"), ("parquet", "by pages")]
)
def test_a_document_with_more_attributes_than_readers_take_is_refused(tmp_path, monkeypatch, suffix, how):
    """Spans of many lines: its row stays, without them, so that what was written can be read."""
    spans = {"by spans": 846, "by bytes": 720, "by pages": 846}[
        how
    ]  # six for each line, of 12 bytes and more
    monkeypatch.setattr(verbs_of_tag, "MAX_RECORD_BYTES", 8000)
    texts = ["a line\n" * 3, "a\n" * (spans // 6), "", "b"]
    lines = [json.dumps({"id": f"d{row}", "text": text, "source": "s"}) for row, text in enumerate(texts)]
    write_lines(tmp_path / "documents/a.jsonl.gz", lines)
    call = {"progress": False, "format": suffix, "max_record_bytes": 8000, "scheduler": "synchronous"}
    taggers = ["char_length_v1", "redpajama_v2_lines"]
    with pytest.raises(StageError, match=r"row 1: too large; expected .*8,000 bytes \(max_record_bytes\)"):
        dk.tag(str(tmp_path), taggers, **call)
    summary = dk.tag(str(tmp_path), taggers, on_bad_record="quarantine", max_bad_fraction=0.5, **call)
    assert (summary.exit_status, summary.counts["bad_records"]) == (0, 1)
    (kept,) = (tmp_path / "_quarantine/tag").glob("*")
    record = json.loads(kept.read_text())
    assert (record["row"], record["reason"]) == (1, "too_large")
    assert json.loads(base64.b64decode(record["raw_base64"])) == {"id": "d1", "text": texts[1]}
    assert dk.validate(str(tmp_path), max_record_bytes=8000, progress=False).exit_status == 0
    names = ["length", "rps_lines_num_words"]
    rows = dk.read_dataframe(str(tmp_path), columns=["id", *names], short=True).compute()
    assert rows["length"].tolist() == [float(len(text)) for text in texts]
    assert rows["rps_lines_num_words"].isna().tolist() == [False, True, False, False]
    # another set of the same shard leaves what was set aside
    dk.tag(str(tmp_path), ["gopher_v2"], **call)
    assert kept.exists()
    assert (
        dk.tag(str(tmp_path), taggers, on_bad_record="quarantine", max_bad_fraction=0.5, **call).skipped == 1
    )
    # a limit that has room for it takes it
    monkeypatch.setattr(verbs_of_tag, "MAX_RECORD_BYTES", 80_000)
    assert (
        dk.tag(str(tmp_path), taggers, overwrite=True, **{**call, "max_record_bytes": 80_000}).counts[
            "bad_records"
        ]
        == 0
    )
    assert not kept.exists()


@pytest.mark.parametrize(
    "taggers, place",
    [
        (["gopher_v2"], "synchronous"),
        (["gopher_v2", "code_secrets_v1"], "processes"),
        (["language_langid_v1"], "processes"),
        (["pii_presidio_v1"], "processes"),  # whose speed nobody has measured
    ],
)
def test_slow_taggers_pay_for_processes_earlier(taggers, place):
    """Threads would not help: what they call holds the interpreter's lock."""
    known = tuple(map(get_tagger, taggers))
    stage = TagStage(
        (TagOutput("", "set", known, None, Artifacts(), 1, False),),
        RecordPolicy(),
        "tag",
        locked=locked_seconds(known),
    )
    assert choose(stage.cost, [300_000] * 8, 4) == place


def test_many_taggers_of_a_large_shard_give_the_bytes_of_a_few(tmp_path):
    """They take the texts of a block in pieces."""
    names = [
        *("char_length_v1", "char_length_with_paragraphs_v1", "whitespace_tokenizer_v1", "doc_count_v1"),
        *("gopher_v2", "c4_v2", "random_number_v1", "not_alphanum_paragraph_v1", "health_v1"),
    ]
    lines = [
        *(document(number, text=TEXTS[number % len(TEXTS)] * (number % 7) * 60) for number in range(900)),
        "nonsense",
        document(900, text="long " * 400_000),
        document(901),
    ]
    found = []
    for passes in ([names], [names[:4], names[4:]]):
        root = tmp_path / str(len(passes))
        write_lines(root / "documents/a.jsonl", lines)
        for taggers in passes:
            dk.tag(str(root), taggers, on_bad_record="quarantine", progress=False)
        assert (root / "documents/a.jsonl").stat().st_size > 3 * PIECE_BYTES
        found.append({path.parent.name: path.read_bytes() for path in root.glob("attributes/*/*")})
    assert len(names) > FEW_TAGGERS
    assert sorted(found[0]) == sorted(names)
    assert found[0] == found[1]
