"""Arguments that all verbs share: what is refused before anything is read or written, and a word as a list of one."""

import json
import math

import pytest

import dolma_dask as dk
from dolma_dask.errors import UsageError
from dolma_dask.io.quarantine import RecordPolicy
from dolma_dask.options.base import words_of

from .conftest import document, write_lines


def calls(root, tokenizer="t.json"):
    """Every verb over the dataset `root`, ready to take wrong arguments."""
    v0, to = str(root), str(root.parent / "out")
    return {
        "convert": lambda **more: dk.convert(v0 + "/documents", to=to, **more),
        "tag": lambda **more: dk.tag(v0, ["char_length_v1"], **more),
        "mix": lambda **more: dk.mix(v0, to=to, **more),
        "ragged": lambda **more: dk.ragged(v0, to, tokenizer=tokenizer, **more),
        "report": lambda **more: dk.report(v0, to=to + ".html", **more),
        "validate": lambda **more: dk.validate(v0, **more),
        "quantiles": lambda **more: dk.quantiles(v0, ["length"], **more),
        "dedupe": lambda **more: dk.dedupe(v0, **more),
        "block": lambda **more: dk.block(v0, v0 + "/list.txt", **more),
        "hdf5": lambda **more: dk.hdf5(v0, to, tokenizer=tokenizer, **more),
    }


VERBS = ("convert", "tag", "mix", "ragged", "report", "validate", "quantiles", "dedupe", "block", "hdf5")


@pytest.mark.parametrize("verb", VERBS)
def test_misspelled_arguments_are_refused_and_named(dataset, verb):
    before = sorted(dataset.parent.rglob("*"))
    with pytest.raises(UsageError, match=r"no argument 'dryrun'; did you mean 'dry_run'\?"):
        calls(dataset)[verb](dryrun=True)
    with pytest.raises(UsageError, match=r"no argument 'zzz'; expected one of .*only"):
        calls(dataset)[verb](zzz=1)
    assert sorted(dataset.parent.rglob("*")) == before


def test_arguments_of_the_verb_itself_are_near_too(dataset):
    with pytest.raises(UsageError, match="did you mean 'where'"):
        calls(dataset)["mix"](wher="length > 1")
    with pytest.raises(UsageError, match="did you mean 'experiment'"):
        calls(dataset)["tag"](experment="e")


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("only", [[], (), "", [""], ["x", ""]])
def test_only_with_nothing_in_it_does_not_mean_all(dataset, verb, only):
    before = sorted(dataset.parent.rglob("*"))
    with pytest.raises(UsageError, match="`only` was given with nothing in it"):
        calls(dataset)[verb](only=only)
    assert sorted(dataset.parent.rglob("*")) == before


def test_only_may_be_one_word(dataset):
    to = dataset.parent / "v1"
    assert dk.mix(str(dataset), to=str(to), only="y/z", progress=False).done == 1
    assert [path.name for path in (to / "documents").rglob("*.gz")] == ["b.jsonl.gz"]
    assert dk.tag(str(dataset), "char_length_v1", only="*a.jsonl.gz", progress=False).done == 1
    raw = str(dataset / "documents")
    assert dk.convert(raw, to=str(dataset.parent / "v2"), only="x/", progress=False).done == 1


@pytest.mark.parametrize(
    ("verb", "more", "message"),
    [
        ("convert", {"format": "csv"}, "format='csv'; expected one of jsonl.gz, jsonl.zst, jsonl, parquet"),
        ("convert", {"form": "wide"}, "form='wide'; expected one of nested, flat"),
        ("tag", {"format": "csv"}, "format='csv'"),
        ("mix", {"format": "csv"}, "format='csv'"),
        ("mix", {"on_bad_record": "skip"}, "on_bad_record='skip'; expected one of fail, quarantine"),
        ("tag", {"on_bad_record": "skip"}, "on_bad_record='skip'"),
        ("ragged", {"max_bad_fraction": -1}, "max_bad_fraction=-1; expected a share"),
        ("convert", {"max_record_bytes": 0}, "max_record_bytes=0; expected a whole number"),
        ("mix", {"attributes": [""]}, "`attributes` was given with nothing in it"),
        ("mix", {"attributes": []}, "`attributes` was given with nothing in it"),
        ("report", {"tokens": [""]}, "`tokens` was given with nothing in it"),
        ("mix", {"where": 5}, "where=5 is of type int; expected an expression"),
        ("ragged", {"where": ["a"]}, "where=.* is of type list"),
        ("mix", {"attributes": 5}, "attributes=5; expected words"),
    ],
)
def test_values_that_mean_nothing_are_refused(dataset, verb, more, message):
    before = sorted(dataset.parent.rglob("*"))
    with pytest.raises(UsageError, match=message):
        calls(dataset)[verb](**{"progress": False, **more})
    assert sorted(dataset.parent.rglob("*")) == before


@pytest.mark.parametrize(
    "wrong",
    [
        {"on_bad_record": "skip"},
        {"max_bad_fraction": -0.1},
        {"max_bad_fraction": 1.1},
        {"max_bad_fraction": math.nan},
        {"max_bad_fraction": "0.1"},
        {"max_record_bytes": 0},
        {"max_record_bytes": 1.5},
    ],
)
def test_policies_are_checked(wrong):
    with pytest.raises(UsageError, match=next(iter(wrong))):
        RecordPolicy(**wrong)


def test_the_ends_of_a_policy_are_taken():
    assert RecordPolicy("quarantine", 0, 1).max_bad_fraction == 0
    assert RecordPolicy("quarantine", 1).max_bad_fraction == 1


def test_words():
    assert words_of("x", ()) == ()
    assert words_of("x", "ab") == ("ab",)
    assert words_of("x", ["a", "b"]) == ("a", "b")
    assert words_of("x", [], may_be_empty=True) == ()


def test_no_metadata_is_a_choice(tmp_path):
    write_lines(tmp_path / "raw/a.jsonl", [document(0, more=1)])
    dk.convert(str(tmp_path / "raw"), to=str(tmp_path / "v0"), metadata=[], format="jsonl", progress=False)
    assert "metadata" not in json.loads((tmp_path / "v0/documents/a.jsonl").read_text())


def test_a_dataset_is_a_place_or_an_object(tmp_path):
    with pytest.raises(UsageError, match="the dataset is of type int"):
        dk.mix(5, to=str(tmp_path / "v1"))


@pytest.mark.parametrize("name", ["status", "report", "open_ragged", "validate", "mix", "what_if", "schema"])
def test_nothing_is_no_dataset(name, tmp_path):
    more = {"report": {"to": str(tmp_path / "x.html")}, "mix": {"to": str(tmp_path / "v1")}}.get(name, {})
    with pytest.raises(UsageError, match="of type NoneType"):
        getattr(dk, name)(None, **more)


def test_files_that_nobody_reads_are_refused_unless_they_are_skipped(dataset):
    (dataset / "documents/README").write_text("x")
    (dataset / "documents/notes.csv").write_text("x")
    calls = [
        lambda **more: dk.mix(str(dataset), to=str(dataset.parent / "v1"), dry_run=True, **more),
        lambda **more: dk.read_dataframe(str(dataset), ["id"], **more),
        lambda **more: dk.validate(str(dataset), progress=False, **more),
    ]
    for call in calls:
        with pytest.raises(UsageError, match=r"1 file that nobody would read .*notes\.csv.*--skip '\*\.csv'"):
            call()
        assert call(skip="*.csv") is not None
        assert call(only="x/a") is not None
    assert any("notes.csv" in note for note in dk.status(str(dataset)).notes)
    assert not any("notes.csv" in note for note in dk.status(str(dataset), skip=["*.csv"]).notes)


@pytest.mark.parametrize("name", ["a.jsonl", "a.txt"])
def test_a_missing_source_names_the_options_that_give_it(tmp_path, name):
    write_lines(tmp_path / "raw" / name, ['{"id":"1","text":"x"}'])
    with pytest.raises(dk.errors.DolmaDaskError, match="--source NAME"):
        dk.convert(str(tmp_path / "raw"), to=str(tmp_path / "v0"), progress=False)
