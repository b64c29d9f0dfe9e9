"""dedupe by paragraph: over datasets and groups, what mix makes of it, what is refused; items are proved in tests/property/test_paragraph_duplicates.py."""

import json
from collections import defaultdict
from itertools import chain

import numpy as np
import pytest

import dolma_dask as dk
from dolma_dask.errors import StageError, UsageError
from dolma_dask.verbs.dedupe.paragraphs import flags

from .conftest import read_lines, write_lines

HERE = {"scheduler": "synchronous", "progress": False}
MENU = "Home | About"

TEXTS = {
    "a.jsonl": [
        f"{MENU}\nOne é story.\n",
        f"{MENU}\r\nno",
        "the\n\nonly blank line so far",
        "\n\n\n",
        "x" * 50_000,
        "",
    ],
    "b/c.jsonl.gz": [f"{MENU}\nOne é story.\n{MENU}", "no", "x" * 50_000, "\n" * 20, f"end\n{MENU}"],
}
WILD = "日本語\U0001f468\u200d\U0001f469 \u0085 e\u0301\n"


def make(root, shards=TEXTS, **fields):
    number = 0
    for name, texts in shards.items():
        lines = []
        for text in texts:
            number += 1
            source = {"source": "web" if number % 2 else "books"}
            lines.append(json.dumps({"id": str(number), "text": text, **source, **fields}))
        write_lines(root / "documents" / name, lines)
    return str(root)


def read(root, name="paragraphs"):
    """Return the attributes of all documents, without the name of the set in their keys."""
    paths = sorted((root / "attributes" / name).rglob("*.jsonl*"))
    rows = [json.loads(line)["attributes"] for path in paths for line in read_lines(path)]
    return [{key.removeprefix(name): value for key, value in row.items()} for row in rows]


def expected(texts, flags=lambda paragraph, before: paragraph in before, group=lambda number: 0):
    """Return spans and share of documents in their order; those of group None take no part."""
    groups, rows = defaultdict(set), []
    for number, text in enumerate(texts, 1):
        before = groups[group(number)]
        spans, start = [], 0
        for part in text.split("\n") if text and group(number) is not None else []:
            end = min(start + len(part) + 1, len(text))
            if end > start and flags(part, before):
                spans.append([start, end, 1])
            if end > start:
                before.add(part)
            start = end
        share = sum(end - start for start, end, _ in spans) / max(len(text), 1)
        rows.append({**({"": spans} if spans else {}), "__share": [[0, len(text), round(share, 5)]]})
    return rows


EVERY = [*chain.from_iterable(TEXTS.values())]


@pytest.mark.parametrize("form", ["jsonl.gz", "parquet"])
def test_all_but_the_first_are_flagged_over_the_whole_dataset(tmp_path, form):
    root = make(tmp_path / "v0", {**TEXTS, "d.jsonl": [WILD, WILD * 2]})
    done = dk.dedupe(root, unit="paragraph", format=form, **HERE)
    wanted = expected([*EVERY, WILD, WILD * 2])
    if form != "parquet":
        assert json.dumps(read(tmp_path / "v0")) == json.dumps(wanted)
    kept = [number for number, row in enumerate(wanted) if row["__share"][0][2] < 0.5]
    mixed = dk.mix(root, to=f"{tmp_path}/v1", where="paragraphs__share < 0.5", **HERE)
    assert mixed.counts["documents_out"] == len(kept)
    dk.mix(
        root,
        to=f"{tmp_path}/v2",
        replace=[{"span": "$.attributes.paragraphs", "min_score": 1, "replacement": ""}],
        **HERE,
    )
    texts = [
        json.loads(line)["text"]
        for path in sorted((tmp_path / "v2/documents").rglob("*.jsonl*"))
        for line in read_lines(path)
    ]
    assert "".join(texts).count("story") == 1
    spans = sum(len(row.get("", ())) for row in wanted)
    assert done.counts["duplicates"] == spans == sum(row.duplicates for row in done.sources)
    assert done.counts["characters_marked"] == sum(e - s for row in wanted for s, e, _ in row.get("", ()))


def test_what_enough_documents_have_is_flagged_in_all_of_them(tmp_path):
    root = make(tmp_path / "v0")
    dk.dedupe(root, unit="paragraph", min_copies=3, name="menus", **HERE)
    held = [set(text.removesuffix("\n").split("\n")) for text in EVERY if text]
    wanted = expected(EVERY, lambda part, _: sum(part in one for one in held) >= 3)
    assert read(tmp_path / "v0", "menus") == wanted


def test_datasets_groups_rules_and_parts(tmp_path):
    root, other = make(tmp_path / "v0"), make(tmp_path / "w0")
    both = dk.dedupe(root, others=[other], unit="paragraph", **HERE)
    wanted = expected(EVERY * 2)
    assert read(tmp_path / "v0") + read(tmp_path / "w0") == wanted
    assert sum(row.duplicates for row in both.sources) == both.counts["duplicates"]
    dk.dedupe(root, unit="paragraph", within="source", where='id != "1"', name="own", **HERE)
    groups = lambda number: None if number == 1 else number % 2  # noqa: E731
    assert read(tmp_path / "v0", "own") == expected(EVERY, group=groups)
    part = dk.dedupe(root, unit="paragraph", only=["b/*"], name="part", **HERE)
    assert read(tmp_path / "v0", "part")[:6] == [{"__share": [[0, len(text), 0.0]]} for text in EVERY[:6]]
    assert read(tmp_path / "v0", "part")[6:] == expected(TEXTS["b/c.jsonl.gz"])
    assert "are kept" in part.notes[-1]
    longest = dk.dedupe(root, unit="paragraph", keep="longest", name="long", **HERE)
    assert longest.counts["duplicates"] > 0


def test_a_document_of_very_many_paragraphs(tmp_path, monkeypatch):
    """Neighbours become one span; a row that no reader would take is an error."""
    monkeypatch.setattr(flags, "JOINED", 6)
    root = make(tmp_path / "v0", {"a.jsonl": ["a", "a\n" * 9 + "b\n" + "a\n" * 9]})
    dk.dedupe(root, unit="paragraph", **HERE)
    assert read(tmp_path / "v0")[1][""] == [[0, 18, 1], [20, 38, 1]]
    text = "".join(f"a\n{number}\n" for number in range(4000))
    root = make(tmp_path / "w0", {"a.jsonl": ["a", text]})
    with pytest.raises(StageError, match="--max-record-bytes"):
        dk.dedupe(root, unit="paragraph", max_record_bytes=40_000, **HERE)


def test_shares_are_written_as_none_or_all_only_if_they_are():
    shares = flags.told_apart(np.array([0, 1e-9, 0.5, 1 - 1e-7, 1]))
    assert [round(share, 5) for share in shares.tolist()] == [0, 0.00001, 0.5, 0.99999, 1]


def test_spans_of_paragraphs_are_no_flags_of_documents(tmp_path):
    root = make(tmp_path / "v0")
    dk.dedupe(root, unit="paragraph", **HERE)
    with pytest.raises(UsageError, match="no set of duplicates"):
        dk.quantiles(root, ["paragraphs__share"], over="kept", **HERE)
    with pytest.raises(UsageError, match="such as paragraphs__share"):
        dk.mix(root, to=f"{tmp_path}/v1", where="paragraphs is None", **HERE)
    assert dk.validate(root, **HERE).exit_status == 0
    report = dk.report(root, to=f"{tmp_path}/page.html")
    assert report is None or "paragraph" in (tmp_path / "page.html").read_text()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"separator": "-"}, "without unit='paragraph'"),
        ({"min_length": 3, "how": "fuzzy"}, "min_length with how='fuzzy'; expected how='exact'"),
        ({"min_length": 3, "by": "metadata.n"}, "min_length with by='metadata.n', which are numbers"),
        ({"unit": "word"}, "'document' or 'paragraph'"),
        ({"unit": "paragraph", "how": "fuzzy"}, "expected 'word' or 'char'"),
        ({"unit": "paragraph", "by": "id"}, "paragraphs are of texts"),
        ({"unit": "paragraph", "stride": 2}, "without ngram"),
        ({"unit": "paragraph", "num_perm": 8}, "expected how='fuzzy'"),
        ({"unit": "paragraph", "separator": ""}, "one character or more"),
        ({"unit": "paragraph", "separator": r"\n\n"}, r"\$'\\n\\n'"),
        ({"unit": "paragraph", "min_copies": 1}, "min_copies=1"),
        ({"unit": "paragraph", "min_words": 1 << 63}, "min_words=9223372036854775808"),
        ({"unit": "paragraph", "ngram": 2, "stride": 1 << 63}, "stride=9223372036854775808"),
        ({"unit": "paragraph", "min_copies": 2, "keep": "longest"}, "no paragraph survives"),
    ],
)
def test_options_that_do_not_go_together_are_refused(tmp_path, options, said):
    with pytest.raises(UsageError, match=said):
        dk.dedupe(make(tmp_path / "v0", metadata={"n": 1}), **options, **HERE)
