"""dedupe of documents, some of which are too short to be compared: which ones, with an index and a filter too."""

import json

import pytest

import dolma_dask as dk
from dolma_dask.verbs.dedupe.short import Least

from .conftest import write_lines

HERE = {"scheduler": "synchronous", "progress": False}

TEXTS = ["", " \u3000\n", "\u200b", "日本", "日本語", "one two", "one, two", "e\u0301é", "x" * 70]


def met(text, least):
    """Say the same in plain Python, of texts whose words stand between spaces."""
    return len(text) >= least.min_length and (not least.skip_empty or bool(text.strip()))


@pytest.mark.parametrize("least", [Least(skip_empty=True), Least(min_length=3), Least(True, 2)])
def test_short_documents_take_no_part(tmp_path, least):
    rows = [
        json.dumps({"id": str(number), "source": "s", "text": text, "metadata": {"again": text}})
        for number, text in enumerate(TEXTS * 2)
    ]
    write_lines(tmp_path / "v0/documents/a.jsonl", rows)
    expected = [len(TEXTS) + number for number, text in enumerate(TEXTS) if met(text, least)]
    options = {"name": "flags", **least.params(), **HERE}
    index = {"index": f"{tmp_path}/index"}
    for number, more in enumerate([{}, {"by": "metadata.again"}, index, {"bloom": f"{tmp_path}/f.bloom"}]):
        done = dk.dedupe(f"{tmp_path}/v0", **{**options, "name": f"flags{number}"}, **more)
        lines = (tmp_path / f"v0/attributes/flags{number}/a.jsonl").read_text().splitlines()
        flagged = [row["id"] for row in map(json.loads, lines) if row["attributes"]]
        assert flagged == list(map(str, expected))
        assert done.counts["documents_excluded"] == 2 * (len(TEXTS) - len(expected))


def test_words_are_those_between_boundaries_of_unicode(tmp_path):
    import pyarrow as pa

    texts = pa.array(["one two", "one", "one, two", None, "日本", ""], pa.large_string())
    assert [Least(min_words=n).met_by(texts).tolist() for n in (2, 3)] == [
        [True, False, True, False, True, False],
        [False, False, True, False, False, False],
    ]
