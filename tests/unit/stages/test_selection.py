"""Which attribute sets a rule reads, and what it may name."""

import pytest

import dolma_dask as dk
from dolma_dask.errors import ExpressionError, UsageError
from dolma_dask.mixing.where import parse
from dolma_dask.stages.selection import select


def test_only_the_needed_sets_are_read(tagged):
    dataset = dk.open_dataset(str(tagged))
    chosen = select(dataset, "char_length_v1__length > 3", ())
    assert chosen.sets is not None
    assert list(chosen.sets.files) == ["char_length_v1"]
    (source,) = chosen.work(dataset.shards[0]).sources
    assert list(source.kinds) == ["char_length_v1__char_length_v1__length"]
    assert source.proof is not None


def test_document_fields_need_no_attributes(tagged):
    chosen = select(dk.open_dataset(str(tagged)), parse("source == 's'"), ())
    assert chosen.sets is None


def test_rules_are_objects_too(tagged):
    rule = parse("char_length_v1__char_length_v1__length > 3") & ~parse("id == 'd1'")
    summary = dk.mix(str(tagged), to=str(tagged.parent / "v1"), where=rule, progress=False)
    assert 0 < summary.counts["documents_out"] < 10


def test_errors(tagged):
    dataset = dk.open_dataset(str(tagged))
    with pytest.raises(ExpressionError, match="text"):
        select(dataset, "text == 'x'", ())
    with pytest.raises(UsageError, match="no attribute set 'nothing'; it has: char_length_v1"):
        select(dataset, "length > 3", ["nothing"])
    with pytest.raises(ExpressionError, match=r"length >"):
        select(dataset, "length >", ())


def test_a_key_with_many_spans_cannot_be_a_rule(dataset):
    @dk.tagger(name="words_v1", types={"word": "spans"}, version=1)
    def words(text: str) -> list[tuple[int, int, float]]:
        return [(i, i + 1, 1.0) for i in range(len(text))]

    dk.tag(str(dataset), [words], progress=False)
    with pytest.raises(UsageError, match="many spans per document"):
        select(dk.open_dataset(str(dataset)), "word > 0", ())


def test_two_sets_with_one_key_clash(tagged):
    (tagged / "attributes/copy").mkdir()
    for path in (tagged / "attributes/char_length_v1").rglob("*.gz"):
        target = tagged / "attributes/copy" / path.relative_to(tagged / "attributes/char_length_v1")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(path.read_bytes())
    with pytest.raises(UsageError, match="two attribute sets, char_length_v1 and copy"):
        select(dk.open_dataset(str(tagged)), "length > 3", ["char_length_v1", "copy"])
