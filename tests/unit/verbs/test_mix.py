"""mix: bytes of kept documents, rules and their counts, alignment errors, formats, what may be written where."""

import json

import pytest

import dolma_dask as dk
from dolma_dask.errors import ExpressionError, MissingAttributesError, StageError, UsageError

from .conftest import TEXTS, document, read_lines, write_lines


def test_kept_documents_keep_every_byte(tmp_path):
    lines = [
        '{ "id":"a", "text":"x\\u0041", "source":"s", "metadata": {"n": 1e2, "big": 12345678901234567890, "k":1, "k":2} }',
        '{"text":"yy","source":"s","id":"b","added":"2020","extra":[1.0, null]}',
        '{"id":"c","text":"z","source":"s"}',
    ]
    write_lines(tmp_path / "v0/documents/a.jsonl.gz", lines)
    dk.tag(str(tmp_path / "v0"), ["char_length_v1"], progress=False)
    dk.mix(str(tmp_path / "v0"), to=str(tmp_path / "v1"), where="length >= 2", progress=False)
    assert read_lines(tmp_path / "v1/documents/a.jsonl.gz") == lines[:2]


def test_without_a_rule_all_is_copied(dataset):
    summary = dk.mix(str(dataset), to=str(dataset.parent / "v1"), progress=False)
    assert summary.counts["documents_out"] == 10
    for path in ("x/a.jsonl.gz", "y/z/b.jsonl.gz"):
        assert read_lines(dataset.parent / "v1/documents" / path) == read_lines(dataset / "documents" / path)


def test_rules_over_document_fields_and_attributes(tagged):
    where = "length >= 10 and not (id in ('d0', 'd5')) and source == 's'"
    summary = dk.mix(
        str(tagged), to=str(tagged.parent / "v1"), where=where, attributes=["char_length_v1"], progress=False
    )
    texts = (TEXTS * 2)[:10]
    expected = [f"d{i}" for i, text in enumerate(texts) if len(text) >= 10 and i not in (0, 5)]
    kept = [
        json.loads(line)["id"]
        for path in ("x/a", "y/z/b")
        for line in read_lines(tagged.parent / f"v1/documents/{path}.jsonl.gz")
    ]
    assert kept == expected
    assert summary.to_json()["counts"]["where char_length_v1__char_length_v1__length >= 10"] == sum(
        len(text) >= 10 for text in texts
    )
    assert any("holds for every row" in note for note in summary.notes)


def test_a_part_that_holds_for_no_row_is_reported(tagged):
    summary = dk.mix(
        str(tagged),
        to=str(tagged.parent / "v1"),
        where="length > 1e9",
        attributes=["char_length_v1"],
        progress=False,
    )
    assert summary.counts["documents_out"] == 0
    assert any("holds for none" in note for note in summary.notes)
    assert read_lines(tagged.parent / "v1/documents/x/a.jsonl.gz") == []


def test_ambiguous_and_unknown_names(tagged):
    to = str(tagged.parent / "v1")
    with pytest.raises(ExpressionError, match="whitespace_tokenizer_v1__whitespace_tokenizer_v1__length"):
        dk.mix(str(tagged), to=to, where="length > 1")
    with pytest.raises(ExpressionError, match="lenth"):
        dk.mix(str(tagged), to=to, where="lenth > 1")


def test_missing_attribute_file(tagged):
    (tagged / "attributes/char_length_v1/x/a.jsonl.gz").unlink()
    with pytest.raises(MissingAttributesError, match=r"x/a\.jsonl\.gz is missing"):
        dk.mix(str(tagged), to=str(tagged.parent / "v1"), where="length > 1", attributes=["char_length_v1"])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda rows: rows[:-1], "has 5 rows"),
        (lambda rows: [*rows, rows[-1]], "has 7 rows"),
        (lambda rows: [rows[1], rows[0], *rows[2:]], r"first difference at row 0 \(id 'd1', expected 'd0'\)"),
        (
            lambda rows: [row.replace('"source":"s"', '"source":"t"') for row in rows],
            "source 't', expected 's'",
        ),
    ],
)
def test_attributes_that_do_not_line_up_fail(tagged, change, message):
    path = tagged / "attributes/char_length_v1/x/a.jsonl.gz"
    write_lines(path, change(read_lines(path)))
    with pytest.raises(StageError, match=message):
        dk.mix(
            str(tagged),
            to=str(tagged.parent / "v1"),
            where="length > 1",
            attributes=["char_length_v1"],
            progress=False,
        )
    assert not (tagged.parent / "v1/documents/x/a.jsonl.gz").exists()


def test_stale_attributes_fail(tagged):
    lines = [document(number).replace("one two", "two one") for number in range(6)]
    write_lines(tagged / "documents/x/a.jsonl.gz", lines)
    with pytest.raises(StageError, match=r"StaleAttributesError.*same ids but other text"):
        dk.mix(
            str(tagged),
            to=str(tagged.parent / "v1"),
            where="length > 1",
            attributes=["char_length_v1"],
            progress=False,
        )


def test_unproved_attributes_are_counted(dataset):
    for name, count in (("x/a", range(6)), ("y/z/b", range(6, 10))):
        rows = [json.dumps({"source": "s", "id": f"d{number}", "toxicity": number / 10}) for number in count]
        write_lines(dataset / f"attributes/tox-0/{name}.jsonl.gz", rows)
    summary = dk.mix(str(dataset), to=str(dataset.parent / "v1"), where="toxicity < 0.35", progress=False)
    assert summary.counts["documents_out"] == 4
    assert summary.counts["unproved_attribute_files"] == 2


def test_formats(dataset):
    for file_format in ("parquet", "jsonl.zst", "jsonl"):
        dk.mix(str(dataset), to=str(dataset.parent / file_format), format=file_format, progress=False)
        back = dk.mix(
            str(dataset.parent / file_format),
            to=str(dataset.parent / f"{file_format}-back"),
            format="jsonl.gz",
            progress=False,
        )
        assert back.counts["documents_out"] == 10
        rows = [
            json.loads(line)
            for line in read_lines(dataset.parent / f"{file_format}-back/documents/x/a.jsonl.gz")
        ]
        assert rows == [json.loads(line) for line in read_lines(dataset / "documents/x/a.jsonl.gz")]


def test_never_over_its_own_input(dataset):
    with pytest.raises(UsageError, match="its own input"):
        dk.mix(str(dataset), to=str(dataset) + "/")


def test_left_over_outputs_are_not_left_to_be_read(dataset):
    to = dataset.parent / "v1"
    dk.mix(str(dataset), to=str(to), progress=False)
    (dataset / "documents/y/z/b.jsonl.gz").unlink()
    with pytest.raises(UsageError, match=r"does not make.*y/z/b"):
        dk.mix(str(dataset), to=str(to), progress=False)
    dk.mix(str(dataset), to=str(to), overwrite=True, progress=False)
    assert not (to / "documents/y/z/b.jsonl.gz").exists()


def test_summaries_are_datasets(dataset):
    summary = dk.mix(str(dataset), to=str(dataset.parent / "v1"), progress=False)
    assert dk.tag(summary, ["char_length_v1"], progress=False).done == 2


def test_another_dataset_does_not_replace_a_version_silently(dataset, tmp_path):
    to = str(tmp_path / "v1")
    dk.mix(str(dataset), to=to, progress=False)
    other = tmp_path / "other"
    write_lines(other / "documents/x/a.jsonl.gz", [document(30)])
    write_lines(other / "documents/y/z/b.jsonl.gz", [document(31)])
    with pytest.raises(UsageError, match=r"made from \.\./v0; this run would replace 2"):
        dk.mix(str(other), to=to, progress=False)
    dk.mix(str(other), to=to, overwrite=True, progress=False)


def test_overwrite_never_removes_documents_that_mix_has_not_made(dataset, tmp_path):
    precious = tmp_path / "precious"
    write_lines(precious / "documents/mine.jsonl.gz", [document(30)])
    with pytest.raises(UsageError, match=r"no mix has made, first 'documents/mine\.jsonl\.gz'"):
        dk.mix(str(dataset), to=str(precious), overwrite=True, progress=False)
    assert (precious / "documents/mine.jsonl.gz").exists()


@pytest.mark.parametrize("to", ["v0/documents", "v0/documents/new", "link"])
def test_never_into_its_own_input(dataset, tmp_path, to):
    (tmp_path / "link").symlink_to(dataset)
    with pytest.raises(UsageError, match="its own input"):
        dk.mix(str(dataset), to=str(tmp_path / to), overwrite=True, progress=False)


def test_an_incomplete_dataset_is_said_to_be_one(tmp_path):
    write_lines(tmp_path / "raw/a.jsonl", [document(0)])
    write_lines(tmp_path / "raw/b.jsonl", ["nonsense"])
    with pytest.raises(StageError):
        dk.convert(str(tmp_path / "raw"), to=str(tmp_path / "v0"), progress=False)
    summary = dk.mix(str(tmp_path / "v0"), to=str(tmp_path / "v1"), progress=False)
    assert any("is not complete: convert left 1 of its files out" in note for note in summary.notes)
    write_lines(tmp_path / "raw/b.jsonl", [document(1)])
    dk.convert(str(tmp_path / "raw"), to=str(tmp_path / "v0"), progress=False)
    summary = dk.mix(str(tmp_path / "v0"), to=str(tmp_path / "v1"), progress=False)
    assert not any("complete" in note for note in summary.notes)


def test_rules_over_fields_of_the_metadata(tmp_path):
    lines = [
        json.dumps(
            {
                "id": f"d{i}",
                "source": "s",
                "text": "t" * i,
                "metadata": {"lang": "en" if i % 2 else "fr", "score": i / 4},
            }
        )
        for i in range(8)
    ]
    write_lines(tmp_path / "v0/documents/a.jsonl.gz", [*lines, '{"id":"x","source":"s","text":""}'])
    root = str(tmp_path / "v0")
    dk.tag(root, ["char_length_v1"], progress=False)
    where = "metadata.lang == 'en' and (metadata.score >= 1 or length < 2)"
    summary = dk.mix(root, to=str(tmp_path / "v1"), where=where, progress=False)
    assert read_lines(tmp_path / "v1/documents/a.jsonl.gz") == [lines[1], lines[5], lines[7]]
    assert summary.to_json()["counts"]["where metadata.lang == 'en'"] == 4
    dk.report(str(tmp_path / "v1"), to=str(tmp_path / "page.html"), progress=False)
    with pytest.raises(ExpressionError, match=r"metadata\.lang"):
        dk.mix(root, to=str(tmp_path / "v2"), where="metadata.lnag == 'en'", progress=False)
    with pytest.raises(ExpressionError, match="string"):
        dk.mix(root, to=str(tmp_path / "v2"), where="metadata.lang > 3", progress=False)
