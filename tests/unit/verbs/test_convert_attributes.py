"""convert --attributes: what the new set may claim of its documents, and what is refused."""

import json

import pytest

import dolma_dask as dk
from dolma_dask.errors import StageError, UsageError
from dolma_dask.journal import Journal

from .conftest import document, write_lines

QUIET = {"progress": False, "scheduler": "synchronous"}


@pytest.fixture
def unproved(dataset):
    """A set that another tool made."""
    for name, numbers in (("x/a", range(6)), ("y/z/b", range(6, 10))):
        rows = [json.dumps({"id": f"d{number}", "source": "s", "n": number}) for number in numbers]
        write_lines(dataset / f"attributes/hand/{name}.jsonl.gz", rows)
    return dataset


def change_texts(root):
    write_lines(
        root / "documents/x/a.jsonl.gz", [document(number + 1, id=f"d{number}") for number in range(6)]
    )


def mixed(root, name, where):
    return dk.mix(str(root), to=str(root.parent / name), where=where, attributes=[name], **QUIET)


@pytest.mark.slow
def test_attributes_without_a_proof_get_none(unproved):
    root = str(unproved)
    dk.convert(root, to=root, attributes="hand", **QUIET)
    dk.convert(root, to=root, attributes="hand-nested", form="flat", rename="again", **QUIET)
    for name in ("hand", "hand-nested", "again"):
        assert mixed(unproved, name, "n > 3").counts["unproved_attribute_files"] == 2
    change_texts(unproved)
    dk.convert(root, to=root, attributes="hand", rename="late", **QUIET)
    assert mixed(unproved, "late", "n > 3").counts["unproved_attribute_files"] == 2


def test_a_proof_goes_over(tagged):
    root = str(tagged)
    dk.convert(root, to=root, attributes="char_length_v1", form="flat", rename="flat", **QUIET)
    assert mixed(tagged, "flat", "length > 3").counts["unproved_attribute_files"] == 0
    change_texts(tagged)
    with pytest.raises(StageError, match=r"is stale.*convert ... --attributes ... --rename flat --only x/a"):
        dk.mix(root, to=str(tagged.parent / "late"), where="length > 3", attributes=["flat"], **QUIET)


def test_a_file_that_was_changed_after_its_record_is_not_converted(tagged):
    rows = [json.dumps({"id": f"d{number}", "source": "s", "n": 1}) for number in range(6)]
    write_lines(tagged / "attributes/char_length_v1/x/a.jsonl.gz", rows)
    root = str(tagged)
    with pytest.raises(StageError, match=r"1 of 2 shards failed.*x/a.*not the file that `tag` wrote"):
        dk.convert(root, to=root, attributes="char_length_v1", rename="new", **QUIET)
    assert [record.shard for record in Journal(root, "convert_attributes").records.values()] == [
        "y/z/b.jsonl.gz"
    ]


def test_its_journal_is_its_own(unproved):
    root = str(unproved)
    dk.convert(root, to=root, attributes="hand", **QUIET)
    assert Journal(root, "convert").runs == []
    assert dk.convert(root, to=root, attributes="hand", **QUIET).skipped == 2


@pytest.mark.parametrize(
    "options",
    [
        {"mapping": "c4"},
        {"id": "x"},
        {"text": "x"},
        {"source_field": "x"},
        {"added": "x"},
        {"created": "x"},
        {"metadata": ["x"]},
        {"generated_id": "{row}"},
        {"under": "x"},
        {"shard_bytes": 10},
        {"format": "parquet"},
        {"on_bad_record": "quarantine"},
        {"max_bad_fraction": 0.5},
        {"max_record_bytes": 10},
    ],
)
def test_options_for_raw_files_are_refused(unproved, options):
    with pytest.raises(UsageError, match=f"{next(iter(options))}: for raw files only"):
        dk.convert(str(unproved), to=str(unproved), attributes="hand", **options, **QUIET)
    assert not (unproved / "attributes/hand-nested").exists()


def test_one_dataset_at_a_time(unproved):
    root = str(unproved)
    with pytest.raises(UsageError, match="found 2 inputs"):
        dk.convert([root, root], to=root, attributes="hand", **QUIET)
    assert dk.convert([root], to=root, attributes="hand", source="s", prune=1, **QUIET).done == 1


@pytest.mark.parametrize("options", [{"rename": "x"}, {"form": "flat"}])
def test_options_for_attributes_need_attributes(unproved, options):
    with pytest.raises(UsageError, match="of attributes"):
        dk.convert(str(unproved / "documents"), to=str(unproved.parent / "new"), **options, **QUIET)
