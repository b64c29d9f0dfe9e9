"""mix with dropped documents: every row that does not go on is named with its reasons, which add up with the summary; an output like others."""

import gzip
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import dolma_dask as dk
from dolma_dask.errors import UsageError
from dolma_dask.outputs.dropped import DroppedSink

from .conftest import read_lines, write_lines

HERE: dict[str, Any] = {"progress": False, "scheduler": "synchronous"}
QUARANTINE = {"on_bad_record": "quarantine", "max_bad_fraction": 0.9}
FILTERS = {
    "include": ["$.metadata[?(@.n < 60)]", "$.metadata[?(@.n > 70)]"],
    "exclude": ["$.metadata[?(@.n == 3)]"],
}
ALL = {
    "where": "metadata.n != 5 and id != 'd7' and length >= 4",
    **FILTERS,
    "min_text_length": 6,
    **QUARANTINE,
}


def line(number: int) -> str:
    text = "é" * (number % 5) + "x" * (number * 7 % 23)
    return json.dumps(
        {"id": f"d{number}", "source": f"s{number % 2}", "text": text, "metadata": {"n": number}}
    )


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    """Ninety documents in two shards, tagged with their lengths; the first shard has a line that cannot be read."""
    write_lines(tmp_path / "v0/documents/a.jsonl.gz", [*map(line, range(50)), "{broken", line(50)])
    write_lines(tmp_path / "v0/documents/b/c.jsonl", [*map(line, range(51, 90))])
    dk.tag(str(tmp_path / "v0"), ["char_length_v1"], **QUARANTINE, **HERE)
    return tmp_path / "v0"


def mixed(corpus: Path, **options: Any) -> Any:
    places = {"to": str(corpus.parent / "v1"), "dropped": str(corpus.parent / "dropped")}
    return dk.mix(str(corpus), **{**places, **options}, **HERE)


def rows_of(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(text) for path in sorted(folder.rglob("*.jsonl.gz")) for text in read_lines(path)]


def stored(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*.jsonl.gz"))}


def stamps(folder: Path) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in folder.rglob("*.jsonl*")}


def wanted(summary: Any) -> dict[str, int]:
    """How many rows each reason must have by the counts of the summary."""
    counts = summary.counts
    readable = counts["documents_in"] - counts["bad_records"]
    amounts = {"bad record": counts["bad_records"]}
    includes = [rule for rule in summary.rules if rule.kind == "include"]
    for rule in summary.rules:
        amounts[rule.name] = rule.matched if rule.kind == "exclude" else readable - rule.matched
    if len(includes) > 1:  # those of the test let no document in together
        for rule in includes:
            del amounts[rule.name]
        amounts[" or ".join(rule.name for rule in includes)] = readable - sum(
            rule.matched for rule in includes
        )
    for count in ("too_short", "not_sampled", "beyond_cut"):
        amounts[count.replace("_", " ")] = counts.get(f"documents_{count}", 0)
    return {name: amount for name, amount in amounts.items() if amount}


@pytest.mark.parametrize(
    "options",
    [
        ALL,
        ALL | {"sample": 0.6},
        ALL | {"downsample": 0.5, "by": "source"},
        {"sample": 0.6, **QUARANTINE},
        {"include": FILTERS["include"][:1], **QUARANTINE},
        QUARANTINE,
    ],
)
def test_reasons_add_up_with_the_summary(corpus, options):
    summary = mixed(corpus, **options)
    rows = rows_of(corpus.parent / "dropped")
    assert summary.counts["documents_in"] == summary.counts["documents_out"] + len(rows)
    assert dict(summary.others)["dropped"].counts["documents_dropped"] == len(rows)
    reasons = Counter(reason for row in rows for reason in row["reasons"])
    assert dict(reasons) == wanted(summary)
    assert all(row["reasons"] for row in rows)


def test_every_row_is_kept_or_named_with_its_place(corpus):
    mixed(corpus, **ALL)
    documents = {shard: read_lines(corpus / "documents" / shard) for shard in ("a.jsonl.gz", "b/c.jsonl")}
    kept = [text for name in documents for text in read_lines(corpus.parent / "v1/documents" / name)]
    left = []
    for row in rows_of(corpus.parent / "dropped"):
        text = documents[row["shard"]][row["row"]]
        if row["reasons"] == ["bad record"]:
            assert (text, row["id"], row["source"]) == ("{broken", None, None)
        else:
            assert {name: json.loads(text)[name] for name in ("id", "source")} == {
                name: row[name] for name in ("id", "source")
            }
        left.append(text)
    assert sorted(kept + left) == sorted(text for texts in documents.values() for text in texts)
    seven = next(row for row in rows_of(corpus.parent / "dropped") if row["id"] == "d7")
    assert seven["reasons"] == ["where id != 'd7'"]


def test_lines_are_those_of_the_definition_also_with_documents(tmp_path):
    strange = '{"id":"\\"\\u00e9\\n", "text" : "x",\t"source":"s","metadata":{"big":12345678901234567890}} '
    write_lines(tmp_path / "v0/documents/a.jsonl", [strange, line(1)])
    mixed(tmp_path / "v0", where="source != 's'", dropped_documents=True)
    place = '"source":"s","shard":"a.jsonl","row":0,"reasons":["where source != \'s\'"]'
    assert read_lines(tmp_path / "dropped/a.jsonl.gz") == [
        '{"id":"\\"é\\n",' + place + f',"document":{strange}}}'
    ]


def test_a_document_that_would_be_taken_several_times_is_named_once(tmp_path):
    write_lines(tmp_path / "v0/documents/a.jsonl", [line(0), line(20)])
    summary = mixed(tmp_path / "v0", sample=3.0, min_text_length=1)
    assert summary.counts["documents_too_short"] == 3
    assert [(row["id"], row["reasons"]) for row in rows_of(tmp_path / "dropped")] == [("d0", ["too short"])]


def test_it_is_made_later_alone_and_again_for_another_rule_or_form(corpus):
    mixed(corpus, dropped=None, **ALL)
    before = stamps(corpus.parent / "v1")
    summary = mixed(corpus, **ALL)
    assert (summary.done, dict(summary.others)["dropped"].done) == (0, 2)
    assert stamps(corpus.parent / "v1") == before
    made, first = stamps(corpus.parent / "dropped"), stored(corpus.parent / "dropped")
    assert dict(mixed(corpus, **ALL).others)["dropped"].done == 0
    assert stamps(corpus.parent / "dropped") == made
    with pytest.raises(UsageError, match="other options: documents"):
        mixed(corpus, dropped_documents=True, **ALL)
    with pytest.raises(UsageError, match=r"where .*, now \"id != 'd1'\""):
        mixed(corpus, to=None, where="id != 'd1'", **QUARANTINE)
    mixed(corpus, to=None, dropped_documents=True, overwrite=True, **ALL)
    assert [row.pop("document", None) is None for row in rows_of(corpus.parent / "dropped")].count(True) == 1
    (corpus.parent / "dropped/a.jsonl.gz").unlink()
    mixed(corpus, to=None, overwrite=True, **ALL)
    assert stored(corpus.parent / "dropped") == first


def test_files_appear_whole_or_not_at_all(corpus, monkeypatch):
    whole = mixed(corpus, dropped=str(corpus.parent / "other"), to=None, **ALL)
    assert whole.counts["documents_dropped"]
    with monkeypatch.context() as patch:
        patch.setattr(DroppedSink, "write", lambda self, rows: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises((KeyboardInterrupt, dk.errors.InterruptedStageError)):
            mixed(corpus, **ALL)
    assert stored(corpus.parent / "dropped") == {}
    for share in ("1/2", "2/2"):
        mixed(corpus, share=share, **ALL)
    assert stored(corpus.parent / "dropped") == stored(corpus.parent / "other")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"shuffle": True}, "in a call of their own"),
        ({"max_size": 1000}, "in a call of their own"),
        ({"dropped": None, "dropped_documents": True}, "without `dropped`"),
        ({"dropped": "v0"}, "is or holds"),
        ({"dropped": "v1"}, "is or holds"),
        ({"dropped": "v1/documents/x"}, "among the documents"),
        ({"dropped": "v0/attributes/x"}, "among the documents or attributes"),
        ({"dropped": "."}, "is or holds"),
    ],
)
def test_what_cannot_be_is_refused(corpus, options, message):
    if options.get("dropped"):
        options = options | {"dropped": str(corpus.parent / options["dropped"])}
    with pytest.raises(UsageError, match=message):
        mixed(corpus, **options)
    assert not (corpus.parent / "v1").exists()


def test_paths_that_would_be_those_of_other_outputs_are_refused(tmp_path):
    for name in ("a", "documents/a"):
        write_lines(tmp_path / f"v0/documents/{name}.jsonl.gz", [line(1)])
    with pytest.raises(UsageError, match="more than one input"):
        mixed(tmp_path / "v0")


def test_no_output_of_dropped_rows_costs_nothing(corpus, monkeypatch):
    """No reasons are put together, no row is held."""
    from dolma_dask.reading.kept import transform

    monkeypatch.setattr(transform, "Reasons", None)
    assert mixed(corpus, dropped=None, **ALL).done == 2
    with gzip.open(corpus.parent / "v1/documents/a.jsonl.gz") as file:
        assert file.read()
