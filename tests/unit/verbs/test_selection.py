"""Attribute sets that a rule reads, and names that it may use."""

import json

import pytest

import dolma_dask as dk
from dolma_dask.errors import (
    CorruptFileError,
    ExpressionError,
    MissingAttributesError,
    SchemaError,
    UsageError,
)
from dolma_dask.io.records import RuleCount
from dolma_dask.reading.columns import find_columns
from dolma_dask.reading.selection import select
from dolma_dask.rules.values import once_each
from dolma_dask.rules.where import parse

from .conftest import TEXTS, document, write_lines


def test_rules_are_objects_too(tagged):
    rule = parse("char_length_v1__char_length_v1__length > 3") & ~parse("id == 'd1'")
    summary = dk.mix(str(tagged), to=str(tagged.parent / "v1"), where=rule, progress=False)
    assert 0 < summary.counts["documents_out"] < 10


def test_errors(tagged):
    dataset = dk.open_dataset(str(tagged))
    with pytest.raises(ExpressionError, match="rules do not look at texts; compare what a tagger makes"):
        select(dataset, "text == 'x'", ())
    with pytest.raises(
        ExpressionError,
        match=r"no column is named lang.*; if it is a field of the metadata, write metadata.lang",
    ):
        select(dataset, "lang == 'en'", ())
    with pytest.raises(UsageError, match="no attribute set 'nothing'; it has: char_length_v1"):
        select(dataset, "length > 3", ["nothing"])


def test_a_rule_over_texts_of_a_dataset_without_attributes(dataset):
    opened = dk.open_dataset(str(dataset))
    with pytest.raises(ExpressionError, match="rules do not look at texts"):
        select(opened, "id == 'a' and text == 'x'", ())
    with pytest.raises(
        UsageError, match=r"has no attributes.*A field of the metadata is named metadata.lang"
    ):
        select(opened, "lang == 'en'", ())
    with pytest.raises(UsageError, match="the rule names length, but"):
        select(opened, "id == 'a' and length > 3", ())


@pytest.mark.parametrize(
    "value, found", [("'a'", "a number and a string"), ("[1]", "a list or an object and a number")]
)
def test_fields_of_several_kinds_are_named(tmp_path, value, found):
    rows = [{"n": 1}, {"n": json.loads(value.replace("'", '"'))}]
    lines = [
        json.dumps({"id": f"{i}", "text": "t", "source": "s", "metadata": m}) for i, m in enumerate(rows)
    ]
    write_lines(tmp_path / "documents/a.jsonl", lines)
    with pytest.raises(SchemaError, match=rf"metadata\.n is {found} in different documents"):
        select(dk.open_dataset(str(tmp_path)), "metadata.n == 1", ())


def test_a_key_with_many_spans_cannot_be_a_rule(dataset):
    @dk.tagger(name="words_v1", types={"word": "spans"}, version=1)
    def words(text: str) -> list[tuple[int, int, float]]:
        return [(i, i + 1, 1.0) for i in range(len(text))]

    dk.tag(str(dataset), [words], progress=False)
    with pytest.raises(UsageError, match="many spans per document"):
        select(dk.open_dataset(str(dataset)), "word > 0", ())


def copy_set(root, name="copy"):
    """Make a second set with the same keys."""
    for path in (root / "attributes/char_length_v1").rglob("*.gz"):
        target = root / f"attributes/{name}" / path.relative_to(root / "attributes/char_length_v1")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(path.read_bytes())


def test_two_sets_with_one_key_clash(tagged):
    copy_set(tagged)
    dataset = dk.open_dataset(str(tagged))
    for names in ((), ("char_length_v1", "copy")):
        with pytest.raises(
            ExpressionError,
            match=r"several columns: `char_length_v1/\S+`, `copy/\S+`; write one",
        ):
            select(dataset, "char_length_v1__length > 3", names)
    chosen = select(dataset, "char_length_v1__length > 3", ["copy"])
    assert list(chosen.sets.files) == ["copy"]


@pytest.mark.parametrize("names", [(), ("char_length_v1", "copy", "whitespace_tokenizer_v1")])
def test_a_clash_of_keys_that_the_rule_does_not_name_is_none(tagged, names):
    copy_set(tagged)
    dataset = dk.open_dataset(str(tagged))
    chosen = select(dataset, "whitespace_tokenizer_v1__length > 3", names)
    read = {
        source.name: list(source.kinds)
        for source in chosen.sets.sources(dataset.shards[0], sorted(chosen.rule.names))
    }
    key = "whitespace_tokenizer_v1__whitespace_tokenizer_v1__length"
    assert read == {name: [] for name in names} | {"whitespace_tokenizer_v1": [key]}
    assert select(dataset, None, names).sets is None or len(select(dataset, None, names).sets.files) == 3


def test_sets_that_a_rule_does_not_need_may_be_unfinished(tagged):
    (tagged / "attributes/whitespace_tokenizer_v1/x/a.jsonl.gz").unlink()
    dataset = dk.open_dataset(str(tagged))
    chosen = select(dataset, "char_length_v1__length > 3", ())
    assert chosen.sets is not None
    assert list(chosen.sets.files) == ["char_length_v1"]
    with pytest.raises(MissingAttributesError, match=r"whitespace_tokenizer_v1/x/a\.jsonl\.gz is missing"):
        select(dataset, "whitespace_tokenizer_v1__length > 3", ())


def test_a_set_that_cannot_be_read_is_never_absent(tmp_path):
    """Or a short name would stand for the column of another set, and a key of two sets for that of one."""
    write_lines(tmp_path / "documents/a.jsonl", [document(0), document(1)])
    for name, key in (("g", "g__n"), ("h", "h__n")):
        rows = [json.dumps({"id": f"d{row}", "source": "s", key: row}) for row in (0, 1)]
        write_lines(tmp_path / f"attributes/{name}/a.jsonl", rows)
    dataset = dk.open_dataset(str(tmp_path))
    with pytest.raises(ExpressionError, match="short for several columns: g__n, h__n"):
        select(dataset, "n > 0", ())
    path = tmp_path / "attributes/h/a.jsonl"
    _, *others = path.read_text().splitlines(keepends=True)
    path.write_text("oops\n" + "".join(others))
    with pytest.raises(ExpressionError, match="short for several columns: g__n, h__n"):
        select(dataset, "n > 0", ())
    for damaged in ("oops\n", "\0" * 10):
        path.write_text(damaged)
        for rule in ("n > 0", "g__n > 0"):
            with pytest.raises(
                CorruptFileError, match=r"attribute set h cannot be read: .*h/a\.jsonl.*--attributes"
            ):
                select(dataset, rule, ())
        with pytest.raises(CorruptFileError, match="attribute set h cannot be read"):
            find_columns(dataset, ["n"])
        with pytest.raises(CorruptFileError, match="attribute set h cannot be read"):
            dk.mix(str(tmp_path), to=str(tmp_path / "new"), exclude="$.attributes[?(@.g__n)]", progress=False)
        selection = select(dataset, "n > 0", ["g"])
        assert selection.sets is not None
        assert list(selection.sets.files) == ["g"]


@pytest.mark.parametrize(
    "rule",
    ["length == 'a'", "source > 3", "length + id > 3", "id in (1, 2)", "length", "id == 'x' or created < 5"],
)
def test_types_are_checked_before_any_shard_is_read(tagged, rule):
    (tagged / "attributes/whitespace_tokenizer_v1").rename(tagged / "away")
    with pytest.raises(ExpressionError):
        select(dk.open_dataset(str(tagged)), rule, ())


def test_every_kind_of_key_is_known_without_rows(tmp_path):
    write_lines(tmp_path / "documents/a.jsonl", [document(0)])
    values = {"n": 1, "b": True, "s": "x", "d": {"k": 0.5}}
    write_lines(tmp_path / "attributes/h/a.jsonl", [json.dumps({"id": "d0", "source": "s", **values})])
    dataset = dk.open_dataset(str(tmp_path))
    for rule in ("n > 0", "b", "s == 'x'", "d.k > 0", "n is not None and b != False and s < 'y'"):
        assert select(dataset, rule, ()).sets is not None
    for rule in ("n == 'x'", "b > False", "s", "d.k == 'x'"):
        with pytest.raises(ExpressionError):
            select(dataset, rule, ())
    for rule in ("True", "source == 's'"):
        assert select(dataset, rule, ()).sets is None


def test_equal_parts_of_a_rule_count_once(tagged):
    rule = "length > 20 and char_length_v1__char_length_v1__length > 20 and length > 20"
    options = {"where": rule, "attributes": ["char_length_v1"], "progress": False, "scheduler": "synchronous"}
    summary = dk.mix(str(tagged), to=str(tagged.parent / "v1"), **options)
    expected = sum(len(text) > 20 for text in (TEXTS * 2)[:10])
    assert expected > 0
    assert summary.rules == (RuleCount("where", "char_length_v1__char_length_v1__length > 20", expected),)
    assert summary.counts["documents_out"] == expected


def test_a_first_row_without_attributes_hides_no_others(tmp_path):
    write_lines(tmp_path / "documents/a.jsonl", [document(0), document(1)])
    rows = ['{"id":"d0","source":"s"}', '{"id":"d1","source":"s","attributes":{"h__n":[[0,1,5]]}}']
    write_lines(tmp_path / "attributes/h/a.jsonl", rows)
    selection = select(dk.open_dataset(str(tmp_path)), "n > 0", ())
    assert selection.sets is not None
    assert once_each(selection.sets.columns) == ["h__n"]
