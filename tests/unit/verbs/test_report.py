"""report: the whole chain from its journals, the pass over the signals, what is refused, and input that means harm."""

import json
import os
import shutil
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import fsspec
import h5py
import pytest

import dolma_dask as dk
from dolma_dask.cli import main
from dolma_dask.engine import fold
from dolma_dask.errors import MissingAttributesError, StageError, UsageError
from dolma_dask.journal import Journal
from dolma_dask.pages.history import public_name
from dolma_dask.testing.tokenizer import train_tokenizer

from .conftest import TEXTS, document, read_lines, write_lines
from .report_pages import LENGTH, ODD, QUIET, lines_of, page_of, stages

LENGTHS = [len(text) for text in (TEXTS * 2)[:10]]
"""Lengths of the documents of `dataset`."""


def attribute_rows(rows: list[tuple[str, dict[str, float | None]]]) -> list[str]:
    """Rows as another tool writes them: flat."""
    return [json.dumps({"source": "s", "id": identity, **values}) for identity, values in rows]


@pytest.fixture(scope="module")
def chain(tmp_path_factory) -> Path:
    """Raw files -> v0, tagged -> v1 -> tokens; two bad lines on the way."""
    root = tmp_path_factory.mktemp("chain")
    write_lines(root / "raw/a.jsonl.gz", [*lines_of(range(25)), "{", "[]"])
    write_lines(root / "raw/b/c.jsonl.gz", lines_of(range(25, 60)))
    dk.convert(str(root / "raw"), to=str(root / "v0"), **ODD, **QUIET)
    dk.tag(str(root / "v0"), ["char_length_v1"], **QUIET)
    dk.tag(str(root / "v0"), ["whitespace_tokenizer_v1"], **QUIET)
    where = "30 < length <= 70 and source == 'odd'"
    v1 = dk.mix(str(root / "v0"), to=str(root / "v1"), where=where, attributes=["char_length_v1"], **QUIET)
    train_tokenizer(lines_of(range(60)), root / "tokenizer.json", 300)
    dk.ragged(v1, str(root / "tokens"), tokenizer=str(root / "tokenizer.json"), **QUIET)
    return root


def documents_of(root: Path) -> dict[tuple[str, int], dict]:
    """Return documents by shard and row."""
    return {
        (path.relative_to(root / "documents").as_posix(), row): json.loads(line)
        for path in sorted((root / "documents").rglob("*.jsonl.gz"))
        for row, line in enumerate(read_lines(path))
    }


PACKED: dict[str, tuple[dict[str, Any], int, float | None]] = {
    "LMData": ({}, 1, None),
    "LMData_VSL": ({"min_sequence_len": 2}, 1, 1.1),
    "Summarization": ({"prompt_key": "text", "completion_key": "source"}, 1, 1.0),
    "DPO": ({"prompt_key": "text", "chosen_key": "source", "rejected_key": "id"}, 2, 2.0),
}
"""Options of modes, how many sequences of a row's length stand side by side, and how many sequences a row has, at least."""


@pytest.mark.parametrize("mode", PACKED)
def test_packed_rows_are_shown(mode, chain, tmp_path):
    options, sides, sequences = PACKED[mode]
    packed = str(tmp_path / "h5")
    made = dk.hdf5(
        str(chain / "v1"),
        packed,
        mode=mode,
        tokenizer=str(chain / "tokenizer.json"),
        max_seq_length=64,
        eos="<|endoftext|>",
        **options,
        **QUIET,
    )
    content, _ = page_of(chain / "v1", tokens=[str(chain / "tokens"), packed])
    assert [row["verb"] for row in content["stages"]][-2:] == ["ragged", "hdf5"]
    assert stages(content)["hdf5"]["tokens"] == made.counts["tokens"]
    (table,) = (table for table in content["results"] if table["section"] == "Packed rows")
    (cells,) = table["rows"]
    found = dict(zip(table["columns"], cells, strict=True))
    with h5py.File(f"{packed}/part-000000-00000.h5") as file:
        data = file["data"][:]
    predicted = int(data[:, 1::3].sum()) if sides == 2 else int(data[:, 1].sum())
    assert (found["mode"], found["rows"], found["files"]) == (mode, len(data), 1)
    assert found["tokens to predict"] == predicted
    assert found["padding"] == made.counts["pad_tokens"]
    filled = predicted + found.get("tokens only read", 0)
    assert filled + found["padding"] == sides * 64 * len(data)
    assert found["packing efficiency"] == pytest.approx(filled / (sides * 64 * len(data)))
    assert ("tokens only read" in found) == (mode in ("Summarization", "DPO"))
    assert found.get("sequences per row", 0) >= (sequences or 0)
    assert "left out" not in found


@pytest.mark.parametrize("length", [24, 44], ids=["all", "some"])
def test_documents_that_make_no_row_are_told_apart(length, chain, tmp_path):
    packed = str(tmp_path / "h5")
    options = {"tokenizer": str(chain / "tokenizer.json"), "max_seq_length": length, **QUIET}
    dk.hdf5(
        str(chain / "v1"), packed, mode="Summarization", prompt_key="text", completion_key="source", **options
    )
    left = json.loads(Path(f"{packed}/data_params.json").read_text())["post-process"]["discarded_files"]
    content, _ = page_of(chain / "v1", tokens=[str(chain / "tokens"), packed])
    (table,) = (table for table in content["results"] if table["section"] == "Packed rows")
    assert left
    assert left == table["rows"][0][table["columns"].index("left out")]
    assert "too long" in table["caption"]


def test_packed_rows_of_other_documents_are_refused(chain, tmp_path):
    packed = str(tmp_path / "h5")
    options = {"tokenizer": str(chain / "tokenizer.json"), "max_seq_length": 32, **QUIET}
    dk.hdf5(str(chain / "v1"), packed, **options)
    other = tmp_path / "other"
    write_lines(other / "documents/z.jsonl.gz", lines_of(range(3)))
    with pytest.raises(UsageError, match="made from other documents"):
        page_of(other, tokens=[packed])


def test_the_chain_is_told_as_it_was(chain, plain):
    content, notes = page_of(chain / "v1", tokens=[str(chain / "tokens")])
    every, kept = documents_of(chain / "v0").values(), documents_of(chain / "v1").values()
    size, kept_size = (sum(len(item["text"].encode()) for item in items) for items in (every, kept))
    assert notes == ()
    rows = [
        (row["verb"], row["documents_in"], row["documents_out"], row["text_bytes"], row["bad_records"], row["note"])
        for row in content["stages"]
    ]  # fmt: skip
    assert rows == [
        ("convert", 62, 60, size, 2, ""),
        ("tag", 60, 60, size, 0, "char_length_v1, whitespace_tokenizer_v1"),
        ("mix", 60, len(kept), kept_size, 0, "from v0"),
        ("ragged", len(kept), len(kept), kept_size, 0, stages(content)["ragged"]["note"]),
    ]
    assert [row["shards"] for row in content["stages"]] == [2, 2, 2, 2]
    assert stages(content)["ragged"]["tokens"] == sum(map(len, dk.open_ragged(str(chain / "tokens"))))
    assert stages(content)["mix"]["bytes_out"] == sum(
        path.stat().st_size for path in (chain / "v1/documents").rglob("*.gz")
    )
    bad = [(row["reason"], row["records"], row["file"]) for row in content["quarantine"]]
    assert bad == [("invalid json", 1, "a.jsonl.gz"), ("not an object", 1, "a.jsonl.gz")]
    assert content["where"] == "30 < length <= 70 and source == 'odd'"
    assert {(row["source"], row["documents"], row["kept_documents"]) for row in content["sources"]} == {
        ("even", 30, 0),
        ("odd", 30, len(kept)),
    }
    lengths = [len(item["text"]) for item in every]
    assert [(row["rule"], row["matched_documents"]) for row in content["rules"]] == [
        ("30 < length", sum(length > 30 for length in lengths)),
        ("length <= 70", sum(length <= 70 for length in lengths)),
        ("source == 'odd'", 30),
    ]


def test_signals_have_counts_and_bounds_and_the_deciding_ones_stand_first(chain, plain):
    first, *others = page_of(chain / "v1")[0]["signals"]
    assert first["key"] == LENGTH
    assert first["threshold"] == [[">", 30.0], ["<=", 70.0]]
    lengths = [len(item["text"]) for item in documents_of(chain / "v0").values()]
    assert (first["n"], first["min"], first["max"]) == (60, min(lengths), max(lengths))
    assert sum(first["counts"]) == 60
    assert sum(first["kept_counts"]) == len(documents_of(chain / "v1"))
    assert first["quantiles"]["0.5"] == sorted(lengths)[29]
    assert {(signal["key"].partition("__")[0], *signal["threshold"]) for signal in others} == {
        ("whitespace_tokenizer_v1",)
    }


@pytest.mark.parametrize(
    "where, partial",
    [
        ("(source == 's' and length >= 9) or (source == 't' and length >= 12)", [[">=", 9.0], [">=", 12.0]]),
        ("not (length < 9)", []),
    ],
    ids=["by group", "denied"],
)
def test_signals_that_a_rule_reads_in_any_way_are_cut(where, partial, tagged, plain):
    mixed(tagged, where)
    first, *others = page_of(tagged.with_name("v1"))[0]["signals"]
    assert (first["key"], first["is_cut"], first["threshold"]) == (LENGTH, True, [])
    assert first["partial"] == partial
    assert [signal["is_cut"] for signal in others] == [False]


def test_examples_are_documents_that_one_condition_decides(chain, plain):
    content = page_of(chain / "v1", examples=2)[0]["examples"]
    every = documents_of(chain / "v0")
    for example in content:
        item = every[example["shard"], example["row"]]
        assert (example["id"], example["source"]) == (item["id"], "odd")
        assert (example["value"], example["excerpt"]) == (len(item["text"]), item["text"])
        held = example["value"] > 30 if example["rule"] == "30 < length" else example["value"] <= 70
        assert held == (example["kind"] == "just inside")
    assert [(row["rule"], row["kind"]) for row in content] == [
        (rule, side)
        for rule in ("30 < length", "length <= 70")
        for side in ("just inside", "just outside")
        for _ in range(2)
    ]


def test_equal_data_gives_equal_bytes_whatever_runs_it(chain, monkeypatch):
    tokens = [str(chain / "tokens")]
    content, _ = page_of(chain / "v1", "one", tokens=tokens)
    monkeypatch.setattr(fold, "MAX_TASKS", 1)
    page_of(chain / "v1", "two", tokens=tokens, scheduler="threads")
    for suffix in (".html", ".json"):
        data = (chain / f"one{suffix}").read_bytes()
        assert data == (chain / f"two{suffix}").read_bytes()
        assert str(chain).encode() not in data
    newest = max(record.finished for record in Journal(str(chain / "tokens"), "ragged").records.values())
    assert content["created"] == f"{datetime.fromtimestamp(newest, UTC):%Y-%m-%dT%H:%M:%SZ}"


@pytest.mark.parametrize(
    "given, shown",
    [
        ("wiki/v1", "wiki/v1"),
        ("/home/someone/data/wiki/", "wiki"),
        ("file:///home/someone/data/wiki", "wiki"),
        ("s3://corpus/wiki/v1", "s3://corpus/wiki/v1"),
        ("s3://key:secret@corpus/wiki", "s3://corpus/wiki"),
        ("", ""),
    ],
)
def test_the_name_of_a_dataset_shows_no_private_path(given, shown):
    assert public_name(given) == shown


def test_a_copied_chain_reads_its_own_parent(chain, tmp_path, plain):
    for name in ("v0", "v1"):
        shutil.copytree(chain / name, tmp_path / "copy" / name)
    shutil.rmtree(tmp_path / "copy/v0/attributes/char_length_v1")
    with pytest.raises(UsageError, match="copy/v0 has no attribute set"):
        page_of(tmp_path / "copy/v1")


def test_a_moved_chain_is_still_followed_and_a_lost_parent_is_said(chain, tmp_path, plain):
    for name in ("v0", "v1", "tokens"):
        shutil.copytree(chain / name, tmp_path / "moved" / name)
    hidden = chain.with_name("hidden")
    chain.rename(hidden)
    try:
        content, _ = page_of(tmp_path / "moved/v1")
        assert list(stages(content)) == ["convert", "tag", "mix"]
        shutil.rmtree(tmp_path / "moved/v0")
        content, notes = page_of(tmp_path / "moved/v1")
    finally:
        hidden.rename(chain)
    assert list(stages(content)) == ["mix"]
    assert content["rules"] == content["signals"] == []
    assert any("made from v0, which is not there" in note for note in notes)
    assert content["remarks"] == list(notes), "who only sees the page is told too"


def test_only_some_shards(chain, plain):
    content, _ = page_of(chain / "v1", tokens=str(chain / "tokens"), only=["b/"])
    assert [(row["shards"], row["documents_in"]) for row in content["stages"][:3]] == [(1, 35)] * 3
    assert sum(row["documents"] for row in content["sources"]) == 35
    assert content["quarantine"] == []


def test_a_dataset_that_nothing_is_known_of_has_a_page_too(dataset, plain):
    content, _ = page_of(dataset, title="Mine")
    size = sum(len(text.encode()) for text in (TEXTS * 2)[:10])
    assert (content["title"], content["created"], content["signals"], content["where"]) == (
        "Mine",
        "–",
        [],
        None,
    )
    (row,) = content["stages"]
    assert (row["verb"], row["documents_out"], row["text_bytes"]) == ("read", 10, size)
    (row,) = content["sources"]
    assert (row["source"], row["documents"], row["kept_documents"]) == ("s", 10, None)


@pytest.fixture
def tokenizer(tmp_path) -> str:
    train_tokenizer(TEXTS, tmp_path / "t.json", 300)
    return str(tmp_path / "t.json")


@pytest.mark.parametrize("prune, read", [(None, LENGTHS), (1, LENGTHS[:6])], ids=["all", "some shards"])
def test_tokens_straight_from_a_rule(prune, read, tagged, tokenizer, plain):
    options = {
        "tokenizer": tokenizer,
        "where": "length > 9",
        "attributes": ["char_length_v1"],
        "prune": prune,
    }
    tokens = dk.ragged(str(tagged), str(tagged.parent / "out"), **options, **QUIET).target
    content, notes = page_of(tagged, tokens=[tokens, tokens])
    assert list(stages(content)) == ["tag", "ragged"]
    assert content["where"] == "length > 9"
    assert content["sources"][0]["kept_documents"] == sum(length > 9 for length in read)
    assert not any("made again" in row["note"] for row in content["stages"])
    assert notes == (("1 shard of v0 is not in out and not counted",) if prune else ())


# ------------------------------------------------------------------------------------------------ what has changed since


@pytest.fixture
def v1(tagged) -> str:
    """A new version of `tagged`."""
    return mixed(tagged)


def mixed(tagged: Path, where: str = "length > 3", **options) -> str:
    to = str(tagged.with_name("v1"))
    options = {"attributes": ["char_length_v1"], **options}
    return dk.mix(str(tagged), to=to, where=where, **options, **QUIET).target


def test_names_that_became_ambiguous_later_still_mean_what_they_meant(tagged, v1, plain):
    for name in ("x/a", "y/z/b"):
        ids = [json.loads(line)["id"] for line in read_lines(tagged / f"documents/{name}.jsonl.gz")]
        rows = attribute_rows([(identity, {"other__length": 1.0}) for identity in ids])
        write_lines(tagged / f"attributes/other/{name}.jsonl.gz", rows)
    content, _ = page_of(v1)
    assert content["signals"][0]["key"] == LENGTH
    assert "other__length" in {signal["key"] for signal in content["signals"]}


def test_a_set_that_is_not_finished_is_left_out_unless_the_rule_needs_it(tagged, v1, plain):
    (tagged / "attributes/whitespace_tokenizer_v1/x/a.jsonl.gz").unlink()
    content, notes = page_of(v1)
    assert [signal["key"] for signal in content["signals"]] == [LENGTH]
    assert any("whitespace_tokenizer_v1 is left out" in note for note in notes)
    (tagged / "attributes/char_length_v1/x/a.jsonl.gz").unlink()
    with pytest.raises(MissingAttributesError, match="is missing"):
        page_of(v1)


def test_what_was_deleted_or_replaced_is_not_counted(tagged, plain):
    shutil.rmtree(tagged / "attributes/whitespace_tokenizer_v1")
    path = tagged / "attributes/char_length_v1/x/a.jsonl.gz"
    write_lines(path, [line + " " * number for number, line in enumerate(read_lines(path))])
    content, _ = page_of(tagged)
    (row,) = content["stages"]
    assert (row["note"], row["documents_in"], row["shards"]) == ("char_length_v1", 4, 1)
    assert content["signals"] == [], "a set that is not as it was written is left out"


def change_texts(root: Path) -> None:
    lines = [document(number).replace("one", "two") for number in range(6)]
    write_lines(root / "documents/x/a.jsonl.gz", lines)


def test_stale_attributes_that_the_rule_needs_make_no_page(tagged, v1, plain):
    change_texts(tagged)
    with pytest.raises(StageError, match="is stale") as caught:
        page_of(v1)
    assert [failure.error for failure in caught.value.failures] == ["StaleAttributesError"]
    assert not tagged.with_name("page.html").exists()


HARM = {
    "short": lambda root, path: write_lines(path, read_lines(path)[:-1]),
    "cut": lambda root, path: path.write_bytes(path.read_bytes()[:-10]),
    "broken row": lambda root, path: write_lines(path, [*read_lines(path)[:-1], "oops"]),
    "two files": lambda root, path: path.with_name("b.jsonl.zst").write_bytes(b"x"),
    "stale": lambda root, path: (change_texts(root), dk.tag(str(root), ["char_length_v1"], **QUIET)),
}


@pytest.mark.parametrize("harm", HARM)
def test_a_set_that_does_not_fit_is_left_out(tagged, v1, plain, harm):
    HARM[harm](tagged, tagged / "attributes/whitespace_tokenizer_v1/y/z/b.jsonl.gz")
    content, notes = page_of(v1)
    (note,) = (note for note in notes if "left out" in note)
    assert note.startswith("attribute set whitespace_tokenizer_v1 is left out: ")
    assert ("is stale" in note) == (harm == "stale")
    assert [(signal["key"], signal["n"]) for signal in content["signals"]] == [(LENGTH, 10)]
    assert content["sources"][0]["documents"] == 10


def test_converted_attributes_are_no_documents_and_may_clash(tagged, v1, plain):
    dk.convert(str(tagged), to=str(tagged), attributes="char_length_v1", form="flat", rename="flat", **QUIET)
    content, _ = page_of(tagged)
    assert [(row["verb"], row["documents_in"], row["note"]) for row in content["stages"]] == [
        ("tag", 10, "char_length_v1, whitespace_tokenizer_v1"),
        ("convert_attributes", 10, "char_length_v1 to flat"),
    ]
    content, notes = page_of(v1)
    assert any("attribute set flat is left out" in note for note in notes)
    assert {signal["key"].partition("__")[0] for signal in content["signals"]} == {
        "char_length_v1",
        "whitespace_tokenizer_v1",
    }


def test_a_rule_that_was_changed_for_some_shards_is_said(tagged, v1, plain):
    mixed(tagged, "length > 12", only=["y/"], overwrite=True)
    content, notes = page_of(v1)
    for note in (notes[-1], stages(content)["mix"]["note"]):
        assert "1 shard was made with another rule" in note
        assert "run mix again" in note
        assert "made again since" not in note
    mixed(tagged, "length > 12")
    assert page_of(v1)[1] == ()


def test_equal_conditions_are_one(tagged, plain):
    content, _ = page_of(mixed(tagged, f"length > 12 and {LENGTH} > 12 and source == 's' and length > 12"))
    assert [(row["rule"], row["matched_documents"]) for row in content["rules"]] == [
        ("length > 12", sum(length > 12 for length in LENGTHS)),
        ("source == 's'", 10),
    ]
    assert {example["rule"] for example in content["examples"]} == {"length > 12"}


# ------------------------------------------------------------------------------------------------ calls


def test_a_rehearsal_writes_nothing(chain, tmp_path):
    summary = dk.report(str(chain / "v1"), to=str(tmp_path / "a.html"), dry_run=True, **QUIET)
    assert summary.planned == ("a.jsonl.gz", "b/c.jsonl.gz")
    assert "signals of v0; journals: convert in v0, tag in v0, mix in v1" in summary.notes[-1]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("to", ["report", "report.htm", ".html", "folder/", "report.json"])
def test_a_page_ends_in_html(dataset, to):
    with pytest.raises(UsageError, match=r"ends in \.html"):
        dk.report(str(dataset), to=to, **QUIET)


def test_a_page_may_be_a_path_object(dataset, plain):
    to = dataset.with_name("paths.html")
    dk.report(str(dataset), to=to, **QUIET)
    assert to.is_file()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"to": None}, "to=None is of type NoneType"),
        ({"to": 3}, "to=3 is of type int"),
        ({"to": "x.html", "examples": "3"}, "examples is '3'"),
        ({"to": "x.html", "examples": True}, "examples is True"),
    ],
)
def test_arguments_of_other_types_are_refused(dataset, options, message):
    with pytest.raises(UsageError, match=message):
        dk.report(str(dataset), **options, **QUIET)


@pytest.mark.parametrize("folder", ["documents", "attributes/new"])
def test_a_page_lies_not_among_the_files_of_the_dataset(dataset, folder):
    before = sorted(dataset.rglob("*"))
    with pytest.raises(UsageError, match="lies among the documents or attributes of"):
        dk.report(str(dataset), to=str(dataset / folder / "page.html"), **QUIET)
    assert sorted(dataset.rglob("*")) == before


def test_a_damaged_journal_is_said(chain, tmp_path, plain):
    shutil.copytree(chain / "v0", tmp_path / "v0")
    shutil.copytree(chain / "v1", tmp_path / "v1")
    for segment in (tmp_path / "v1/_journal/mix").iterdir():
        segment.write_bytes(b"\x00\xff garbage\n")
    to = tmp_path / "page.html"
    summary = dk.report(str(tmp_path / "v1"), to=str(to), **QUIET)
    assert any("v1: _journal/mix/" in note and "no record of mix is in" in note for note in summary.notes)
    assert "that no record of mix is in" in to.read_text()
    compared = dk.report(str(tmp_path / "v1"), compare=str(tmp_path / "v0"), to=str(to), **QUIET)
    assert any("no record of mix is in" in note for note in compared.notes)


@pytest.mark.parametrize("name", ["page.html", "page.json"])
def test_a_file_that_is_no_report_is_not_replaced(dataset, plain, name):
    dataset.with_name(name).write_text("precious")
    with pytest.raises(UsageError, match="is no report"):
        page_of(dataset)
    assert dataset.with_name(name).read_text() == "precious"
    page_of(dataset, overwrite=True)
    page_of(dataset)  # a report may be replaced


@pytest.mark.parametrize("options", [{"title": "a\ud800"}, {"source": "a\udcff"}, {"name": "a\udcff"}])
def test_names_that_are_not_utf8_are_refused_before_anything_is_written(dataset, options):
    with pytest.raises(UsageError, match=r"a\\ud.*: text that is not UTF-8; expected UTF-8"):
        page_of(dataset, **options)
    assert list(dataset.parent.glob("*.html")) == []
    assert not (dataset / "_journal/report").exists()


def test_a_folder_whose_name_is_not_utf8_has_no_page(dataset):
    other = dataset.rename(os.fsdecode(os.fsencode(dataset) + b"\xff"))
    with pytest.raises(
        UsageError, match=r"v0\\udcff': text that is not UTF-8; expected .* Rename the folder"
    ):
        page_of(other)


def test_the_page_may_lie_in_an_object_store(dataset, plain):
    for _ in range(2):
        dk.report(str(dataset), to="memory://reports/deep/a.html", **QUIET)
    store = fsspec.filesystem("memory")
    assert json.loads(store.cat("/reports/deep/a.json"))["dataset"] == "v0"
    assert store.cat("/reports/deep/a.html").startswith(b"<meta")


def test_tokens_must_be_tokens_of_this_dataset(chain, dataset, plain):
    with pytest.raises(UsageError, match="has no journal of ragged"):
        page_of(dataset, tokens=[str(dataset)])
    with pytest.raises(UsageError, match="made from other documents"):
        page_of(dataset, tokens=[str(chain / "tokens")])


def tokens_of(dataset: object, tokenizer: str, verb=dk.ragged, **options) -> str:
    """Tokenize some documents of a dataset into a folder beside it."""
    to = Path(str(dataset)).with_name("tokens")
    return verb(str(dataset), str(to), tokenizer=tokenizer, **options, **QUIET).target


def other_tokens(made: str, tagged: Path, tokenizer: str) -> str:
    """Make a version, and tokens of other documents than it has."""
    if made == "an earlier state":
        folder = tokens_of(mixed(tagged, prune=1), tokenizer)
        mixed(tagged)
        return folder
    v1 = mixed(tagged)
    if made == "some shards":
        return tokens_of(v1, tokenizer, prune=1)
    rule = {"where": "length > 9", "attributes": ["char_length_v1"]} if made == "another rule" else {}
    return tokens_of(tagged, tokenizer, **rule)


OTHER = {
    "an earlier state": "1 of 2",
    "some shards": "1 of 2",
    "another version": "of 2",
    "another rule": "of 2",
}


@pytest.mark.parametrize("made", OTHER)
def test_tokens_of_other_documents_make_no_number(made, tagged, tokenizer, plain):
    folder = other_tokens(made, tagged, tokenizer)
    content, notes = page_of(tagged.with_name("v1"), tokens=[folder])
    (told,) = (note for note in notes if "numbers are left out" in note)
    assert told in content["remarks"]
    assert f"{OTHER[made]} shards" in told
    assert stages(content)["ragged"]["documents_out"] is stages(content)["ragged"]["tokens"] is None


@pytest.mark.parametrize("verb", [dk.ragged, dk.hdf5])
def test_tokens_that_a_rule_made_of_a_version_are_not_of_all_of_it(verb, tagged, tokenizer, plain):
    v1 = mixed(tagged)
    dk.tag(v1, ["char_length_v1"], **QUIET)
    rule = {"where": "length > 9", **({"eos_id": 0} if verb is dk.hdf5 else {})}
    content, notes = page_of(v1, tokens=[tokens_of(v1, tokenizer, verb, **rule)])
    (note,) = (note for note in notes if "numbers are left out" in note)
    assert f"{verb.__name__} of tokens kept" in note
    assert stages(content)[verb.__name__]["documents_out"] is None


@pytest.mark.parametrize("moved", [False, True])
def test_tokens_of_documents_without_a_journal_are_known_by_their_files(moved, dataset, tokenizer, plain):
    folder = tokens_of(dataset, tokenizer)
    if moved:
        dataset = shutil.copytree(dataset, dataset.with_name("copy"))
    content, notes = page_of(dataset, tokens=[folder])
    assert notes == ()
    assert stages(content)["ragged"]["documents_out"] == 10
    write_lines(dataset / "documents/x/a.jsonl.gz", [document(7)])
    content, notes = page_of(dataset, tokens=[folder])
    assert " in 1 of 2 shards" in notes[0]
    assert stages(content)["ragged"]["documents_out"] is None


def test_negative_examples_are_refused(dataset):
    with pytest.raises(UsageError, match="examples is -1"):
        page_of(dataset, examples=-1)


def test_the_command(chain, tmp_path, monkeypatch, capsys, plain):
    monkeypatch.chdir(chain)
    words = ["report", "v1", "--to", str(tmp_path / "a.html"), "--tokens", "tokens", "--examples", "1"]
    assert main([*words, "--scheduler", "synchronous", "--no-progress", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["counts"] == {"documents_in": 60, "signals": 2, "stages": 4}
    assert json.loads((tmp_path / "a.json").read_text())["dataset"] == "v1"


# ------------------------------------------------------------------------------------------------ harm, and tables of other verbs


def test_hostile_documents_stay_text(tmp_path):
    evil = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\u202e\u0000{{ 7*7 }}" + "𝕏" * 700
    texts = [evil, "", "\ufeff", "a\r\nb", "x" * 5000]
    rows = [
        json.dumps({"id": f"<b>{number}&", "text": text, "source": f"<i>{number % 2}"})
        for number, text in enumerate(texts)
    ]
    write_lines(tmp_path / "v0/documents/<script>.jsonl.gz", [*rows, "{broken"])
    values = [0.0, -0.0, 1e308, -1e308, None]
    attributes = [
        json.dumps({"id": f"<b>{n}&", "source": f"<i>{n % 2}", "evil": value, "`k`<x>": 5e-324, "none": None})
        for n, value in enumerate(values)
    ]
    unreadable = json.dumps({"id": None, "error": "broken"})
    write_lines(tmp_path / "v0/attributes/evil/<script>.jsonl.gz", [*attributes, unreadable])
    where = "evil <= 0 and source != '</style><script>'"
    v1 = dk.mix(str(tmp_path / "v0"), to=str(tmp_path / "v1"), where=where, **ODD, **QUIET)
    content, _ = page_of(v1.target, title="<script>title</script>")
    text = (tmp_path / "page.html").read_text()
    for raw in (
        "<script>alert",
        "<img",
        "<b>0",
        "<i>0",
        "<script>title",
        "<script>.jsonl",
        "</style><script>'",
    ):
        assert raw not in text
    assert [row["documents"] for row in content["sources"]] == [3, 2]
    assert content["stages"][0]["bad_records"] == 1
    (bad,) = content["quarantine"]
    assert (bad["verb"], bad["reason"], bad["file"]) == ("mix", "invalid json", "<script>.jsonl.gz")
    signals = {signal["key"]: signal for signal in content["signals"]}
    assert (signals["evil"]["n"], signals["evil"]["nulls"]) == (4, 1)
    assert (signals["evil"]["min"], signals["evil"]["max"]) == (-1e308, 1e308)
    inside = [example for example in content["examples"] if example["kind"] == "just inside"]
    assert [(example["value"], example["row"]) for example in inside] == [(0.0, 0), (0.0, 1), (-1e308, 3)]
    assert inside[0]["excerpt"] == evil[:600] + "…"
    assert [example["row"] for example in content["examples"] if example["kind"] == "just outside"] == [2]


def test_a_rule_that_keeps_nothing_and_signals_without_values(tmp_path):
    write_lines(tmp_path / "v0/documents/a.jsonl", [document(number) for number in range(3)])
    rows = attribute_rows([(f"d{number}", {"x": float(number), "y": None}) for number in range(3)])
    write_lines(tmp_path / "v0/attributes/s/a.jsonl", rows)
    content, _ = page_of(
        dk.mix(str(tmp_path / "v0"), to=str(tmp_path / "v1"), where="x > 10 and x < 0", **QUIET).target
    )
    assert content["sources"][0]["kept_documents"] == 0
    assert content["examples"] == []
    assert [row["matched_documents"] for row in content["rules"]] == [0, 0]
    assert sum(content["signals"][0]["kept_counts"]) == 0


def test_what_other_verbs_found_stands_in_tables(dataset, plain):
    root = str(dataset)
    dk.tag(root, ["char_length_v1"], **QUIET)
    dk.dedupe(root, **QUIET)
    dk.quantiles(root, ["length"], by="source", **QUIET)
    dk.quantiles(root, ["length"], by=["source", "id"], name="both", **QUIET)
    dk.validate(root, **QUIET)
    content, _ = page_of(dk.mix(root, to=str(dataset.with_name("v1")), where="exact is None", **QUIET).target)
    results = {table["title"]: table for table in content["results"]}
    assert results["v0"]["rows"] == []
    assert "nothing is wrong" in results["v0"]["caption"]
    assert results["exact in v0, by source"]["rows"] == [
        ["s", 10, 4, sum(len(text.encode()) for text in TEXTS[:4]), 4, 2]
    ]
    survivors = results["exact in v0, largest clusters"]["rows"]
    assert survivors[0] == ["d0", 2, "s", "x/a.jsonl.gz", 0]
    rows = results["v0/quantiles/quantiles.json, by source"]["rows"]
    assert [row[:3] for row in rows] == [[LENGTH, "all", 10], [LENGTH, "s", 10]]
    assert len(results["v0/quantiles/both.json, by source and id"]["rows"]) > 10
    assert len(stages(content)) == 5
    assert stages(content)["quantiles"]["documents_in"] == 10, "both files are of the same documents"


def test_duplicates_say_which_documents_were_compared(dataset, plain):
    root = str(dataset)
    dk.tag(root, ["char_length_v1"], **QUIET)
    dk.dedupe(root, name="all", **QUIET)
    dk.dedupe(root, name="long", where="length >= 8", **QUIET)
    content, _ = page_of(root)
    captions = {table["title"]: table["caption"] for table in content["results"]}
    assert "took no part" not in captions["all in v0, by source"]
    assert captions["long in v0, by source"].endswith(
        " 2 documents took no part: only those for which length >= 8 holds were compared."
    )
    assert stages(content)["dedupe"]["note"] == "all, long"


@pytest.mark.slow
@pytest.mark.parametrize("how", ["exact", "fuzzy"])
def test_a_stale_set_of_duplicates_is_left_out_by_name(dataset, plain, how):
    root = str(dataset)
    dk.tag(root, ["char_length_v1"], **QUIET)
    dk.dedupe(root, how=how, **QUIET)
    content, notes = page_of(dataset)
    keys = [signal["key"] for signal in content["signals"]]
    assert keys == [LENGTH, "fuzzy__cluster_size", "fuzzy__similarity"][: 1 if how == "exact" else 3]
    assert not content["left_out"]
    assert not any("left out" in note for note in notes)
    (dataset / f"attributes/{how}/x/a.jsonl.gz").unlink()
    change_texts(dataset)
    dk.tag(root, ["char_length_v1"], **QUIET)
    for gone in (True, False):
        if not gone:
            write_lines(dataset / f"attributes/{how}/x/a.jsonl.gz", ["{}"])
        content, notes = page_of(dataset)
        assert [signal["key"] for signal in content["signals"]] == [LENGTH]
        (note,) = (note for note in notes if "left out" in note)
        assert note.startswith(f"attribute set {how} is left out: ")
        assert f"--name {how}" in note
        assert content["left_out"] == [note]
        assert f"attribute set {how} is left out" in dataset.with_name("page.html").read_text().replace(
            "<wbr>", ""
        )


def test_checks_of_documents_that_were_made_again_are_left_out(dataset, plain):
    root, v1 = str(dataset), str(dataset.with_name("v1"))
    dk.mix(root, to=v1, where="id != 'd0'", **QUIET)
    dk.validate(v1, **QUIET)
    content, notes = page_of(v1)
    assert [row["verb"] for row in content["stages"]][-1] == "validate"
    assert not any("made again" in note for note in notes)
    dk.mix(root, to=v1, where="id != 'd0' and id != 'd1'", overwrite=True, **QUIET)
    content, notes = page_of(v1)
    assert [row["verb"] for row in content["stages"]][-1] == "mix", "its count is what is left"
    assert not [table for table in content["results"] if table["section"] == "Checks"]
    assert any("validate of v1 looked at documents that were made again" in note for note in notes)


@pytest.mark.parametrize("mended", ["read again", "taken away"])
def test_checks_of_an_incomplete_dataset_are_left_out_once_it_is_complete(mended, tmp_path, plain):
    raw, v0, v1 = tmp_path / "raw", str(tmp_path / "v0"), str(tmp_path / "v1")
    write_lines(raw / "a.jsonl.gz", [document(0)])
    (raw / "b.jsonl.gz").write_bytes(b"no gzip")
    with pytest.raises(StageError):
        dk.convert(str(raw), to=v0, **QUIET)
    dk.validate(v0, **QUIET)
    dk.mix(v0, to=v1, **QUIET)
    content, _ = page_of(v1)
    (table,) = (table for table in content["results"] if table["section"] == "Checks")
    assert "v0 is not complete" in table["caption"]
    assert page_of(v1)[0]["results"] == content["results"], "what has not changed stays"
    (raw / "b.jsonl.gz").unlink()
    if mended == "read again":
        write_lines(raw / "b.jsonl.gz", [document(1)])
    else:
        write_lines(raw / "a.jsonl.gz", [document(0), document(1)])
    dk.convert(str(raw), to=v0, **QUIET)
    dk.mix(v0, to=v1, **QUIET)
    content, notes = page_of(v1)
    assert "not complete" not in str(content)
    assert any(
        "validate of v0 looked at documents that were made again since, or before" in note for note in notes
    )
    dk.validate(v0, **QUIET)
    content, notes = page_of(v1)
    assert [table for table in content["results"] if table["section"] == "Checks"]
    assert not any("looked at documents" in note for note in notes)


def test_problems_that_validate_found_are_an_alarm(dataset, plain):
    lines = read_lines(dataset / "documents/x/a.jsonl.gz")
    write_lines(dataset / "documents/x/a.jsonl.gz", [*lines, lines[0]])
    assert dk.validate(str(dataset), **QUIET).exit_status == 1
    (table,) = page_of(dataset)[0]["results"]
    assert table["is_alarm"]
    assert table["rows"][0][:2] == ["duplicate id", 1]
    assert "x/a.jsonl.gz, row 6" in table["rows"][0][2]
