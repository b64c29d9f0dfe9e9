"""mix: bytes of kept documents, rules and their counts, formats, what may be written where."""

import json
from pathlib import Path
from typing import Any

import pytest

import dolma_dask as dk
from dolma_dask.errors import ExpressionError, StageError, UsageError
from dolma_dask.results.summary import Summary

from .conftest import TEXTS, document, read_lines, write_lines

SHARD = "documents/x/a.jsonl.gz"


def mixed(root: Path, to: str = "v1", **options: Any) -> Summary:
    """Mix a dataset into a folder beside it."""
    return dk.mix(str(root), to=str(root.parent / to), progress=False, **options)


def test_kept_documents_keep_every_byte(tmp_path):
    lines = [
        '{ "id":"a", "text":"x\\u0041", "source":"s", "metadata": {"n": 1e2, "big": 12345678901234567890, "k":1, "k":2} }',
        '{"text":"yy","source":"s","id":"b","added":"2020","extra":[1.0, null]}',
        '{"id":"c","text":"z","source":"s"}',
    ]
    write_lines(tmp_path / "v0/documents/a.jsonl.gz", lines)
    dk.tag(str(tmp_path / "v0"), ["char_length_v1"], progress=False)
    for to, where, kept in (("v1", "length >= 2", lines[:2]), ("v2", None, lines)):
        mixed(tmp_path / "v0", to, where=where)
        assert read_lines(tmp_path / to / "documents/a.jsonl.gz") == kept


def test_rules_over_document_fields_and_attributes(tagged):
    where = "length >= 10 and not (id in ('d0', 'd5')) and source == 's'"
    summary = mixed(tagged, where=where, attributes=["char_length_v1"])
    texts = (TEXTS * 2)[:10]
    expected = [f"d{i}" for i, text in enumerate(texts) if len(text) >= 10 and i not in (0, 5)]
    paths = [tagged.parent / f"v1/documents/{path}.jsonl.gz" for path in ("x/a", "y/z/b")]
    assert [json.loads(line)["id"] for path in paths for line in read_lines(path)] == expected
    key = "where char_length_v1__char_length_v1__length >= 10"
    assert {rule.name: rule.matched for rule in summary.rules}[key] == sum(len(text) >= 10 for text in texts)
    assert any("holds for every row" in note for note in summary.notes)


def test_a_part_that_holds_for_no_row_is_reported(tagged):
    summary = mixed(tagged, where="length > 1e9", attributes=["char_length_v1"])
    assert summary.counts["documents_out"] == 0
    assert any("holds for none" in note for note in summary.notes)
    assert read_lines(tagged.parent / "v1" / SHARD) == []


@pytest.mark.parametrize(
    ("idle", "beside", "note"),
    [
        ({"seed": 3}, {"shuffle": True}, "nothing is drawn without"),
        ({"seed": 3}, {"sample": 0.5}, "nothing is drawn without"),
        ({"seed": 3}, {"downsample": 4}, "nothing is drawn without"),
        ({"name": "new"}, {"shards": 2}, "files have the names of those that are read"),
        ({"format": "jsonl", "to": None}, {"to": "v3"}, "without to none are written"),
    ],
)
def test_options_that_do_nothing_are_said_to(
    tagged: Path, idle: dict[str, Any], beside: dict[str, Any], note: str
) -> None:
    def notes(**options: Any) -> str:
        to = options.pop("to", "v2")
        where = {"to": None if to is None else str(tagged.parent / to), "dropped": None if to else str(tagged.parent / "gone")}  # fmt: skip
        return "\n".join(dk.mix(str(tagged), dry_run=True, progress=False, **options, **where).notes)

    assert f"{next(iter(idle))} has no effect: " in notes(**idle)
    assert note in notes(**idle)
    assert "has no effect" not in notes(**idle | beside)
    assert "has no effect" not in notes()


def test_unproved_attributes_are_counted(dataset):
    for name, count in (("x/a", range(6)), ("y/z/b", range(6, 10))):
        rows = [json.dumps({"source": "s", "id": f"d{number}", "toxicity": number / 10}) for number in count]
        write_lines(dataset / f"attributes/tox-0/{name}.jsonl.gz", rows)
    summary = mixed(dataset, where="toxicity < 0.35")
    assert summary.counts["documents_out"] == 4
    assert summary.counts["unproved_attribute_files"] == 2


@pytest.mark.parametrize("file_format", ["parquet", "jsonl.zst", "jsonl"])
def test_formats(dataset, file_format):
    mixed(dataset, format=file_format)
    assert mixed(dataset.parent / "v1", "v2", format="jsonl.gz").counts["documents_out"] == 10
    back, first = (
        [json.loads(line) for line in read_lines(root / SHARD)] for root in (dataset.parent / "v2", dataset)
    )
    assert back == first


def test_left_over_outputs_are_not_left_to_be_read(dataset):
    mixed(dataset)
    (dataset / "documents/y/z/b.jsonl.gz").unlink()
    with pytest.raises(UsageError, match=r"does not make.*y/z/b"):
        mixed(dataset)
    mixed(dataset, overwrite=True)
    assert not (dataset.parent / "v1/documents/y/z/b.jsonl.gz").exists()


def test_another_dataset_does_not_replace_a_version_silently(dataset):
    mixed(dataset)
    other = dataset.parent / "other"
    write_lines(other / SHARD, [document(30)])
    write_lines(other / "documents/y/z/b.jsonl.gz", [document(31)])
    with pytest.raises(UsageError, match=r"made from \.\./v0; this run would replace 2"):
        mixed(other)
    mixed(other, overwrite=True)


def test_overwrite_never_removes_documents_that_mix_has_not_made(dataset):
    precious = dataset.parent / "v1/documents/mine.jsonl.gz"
    write_lines(precious, [document(30)])
    with pytest.raises(UsageError, match=r"no mix has made, first 'documents/mine\.jsonl\.gz'"):
        mixed(dataset, overwrite=True)
    assert precious.exists()


@pytest.mark.parametrize("to", ["v0/", "v0/documents", "v0/documents/new", "link"])
def test_never_into_its_own_input(dataset, to):
    (dataset.parent / "link").symlink_to(dataset)
    with pytest.raises(UsageError, match="its own input"):
        mixed(dataset, to, overwrite=True)


@pytest.mark.parametrize("to", ["v0/attributes", "v0/attributes/new", "v0/documents/new"])
def test_never_among_the_documents_or_attributes_of_any_dataset(dataset, to):
    other = dataset.parent / "v1"
    mixed(dataset)
    dk.tag(str(dataset), ["char_length_v1"], progress=False)
    target = str(dataset.parent / to)
    calls = [
        lambda: dk.mix(str(other), to=target, progress=False),
        lambda: dk.convert(str(other / "documents"), to=target, source="s", progress=False),
    ]
    before = sorted(dataset.rglob("*"))
    for call in calls:
        with pytest.raises(UsageError, match="lies among the documents or attributes of"):
            call()
    assert sorted(dataset.rglob("*")) == before


def test_summaries_are_datasets(dataset):
    assert dk.tag(mixed(dataset), ["char_length_v1"], progress=False).done == 2


def test_an_incomplete_dataset_is_said_to_be_one(tmp_path):
    write_lines(tmp_path / "raw/a.jsonl", [document(0)])
    write_lines(tmp_path / "raw/b.jsonl", ["nonsense"])
    with pytest.raises(StageError):
        dk.convert(str(tmp_path / "raw"), to=str(tmp_path / "v0"), progress=False)
    notes = mixed(tmp_path / "v0").notes
    assert any("is not complete: convert left 1 of its files out" in note for note in notes)
    write_lines(tmp_path / "raw/b.jsonl", [document(1)])
    dk.convert(str(tmp_path / "raw"), to=str(tmp_path / "v0"), progress=False)
    assert not any("complete" in note for note in mixed(tmp_path / "v0").notes)


def test_rules_over_fields_of_the_metadata(tmp_path):
    rows = [{"id": f"d{i}", "source": "s", "text": "t" * i} for i in range(8)]
    lines = [
        json.dumps(
            {**row, "metadata": {"lang": "en" if i % 2 else "fr", "score": i / 4, "p": {"q": {"r": f"h{i}"}}}}
        )
        for i, row in enumerate(rows)
    ]
    root = tmp_path / "v0"
    write_lines(root / "documents/a.jsonl.gz", [*lines, '{"id":"x","source":"s","text":""}'])
    dk.tag(str(root), ["char_length_v1"], progress=False)
    summary = mixed(root, where="metadata.lang == 'en' and (metadata.score >= 1 or length < 2)")
    assert read_lines(tmp_path / "v1/documents/a.jsonl.gz") == [lines[1], lines[5], lines[7]]
    assert summary.to_json()["rules"][0]["matched"] == 4
    dk.report(str(tmp_path / "v1"), to=str(tmp_path / "page.html"), progress=False)
    with pytest.raises(ExpressionError, match=r"metadata\.lang"):
        mixed(root, "v2", where="metadata.lnag == 'en'")
    for name in ("metadata.lang", "metadata.p.q.r"):
        with pytest.raises(ExpressionError, match="string"):
            mixed(root, "v2", where=f"{name} > 3")
    mixed(root, "v3", where="metadata.p.q.r in ('h2', 'h5') or metadata.p.q.r is None and id == 'x'")
    assert read_lines(tmp_path / "v3/documents/a.jsonl.gz") == [
        lines[2],
        lines[5],
        '{"id":"x","source":"s","text":""}',
    ]
