"""The limits of health find what they are for, and the page says so; languages are told where the package for them is."""

import json
import random
from importlib.util import find_spec

import numpy as np
import pyarrow as pa
import pytest

import dolma_dask as dk
from dolma_dask.errors import UsageError
from dolma_dask.taggers.health import LIMITS, MEANINGS, TAGGERS
from dolma_dask.taggers.registry import get_tagger

PROSE = (
    "It was late when the train came in. Nobody had slept, and she said caf\u00e9 life wasn\u2019t for her.\n"
    * 3
)
MESSES = {
    "mojibake": PROSE.encode().decode("cp1252"),
    "replacements": PROSE + "PK\ufffd\ufffd\x03\ufffd",
    "controls": PROSE.replace(" ", " \x12", 3),
    "html": PROSE + "Fish &amp; chips<br/>",
    "script": PROSE + "window.onload = function() { init(); };",
    "roff": PROSE + ".SH NAME\n\\fBls\\fR lists",
    "wiki": PROSE + "[[Category:Trains]]",
    "latex": PROSE + "\\section{Trains}",
    "foreign_letters": PROSE + "\u0441\u043a\u0430\u0447\u0430\u0442\u044c \u0431\u0435\u0441\u043f\u043b\u0430\u0442\u043d\u043e " * 9,
    "mixed_words": PROSE + "p\u0430yp\u0430l",
    "repeated_lines": PROSE + "Home | News\n" * 9,
    "cut_off": PROSE + "Read [more]",
    "encoded": PROSE + "iVBORw0KGgoAAAANSUhEUgAAAAUAAAAFCAYAAACNbyblAAAAHElEQVQI12P4",
    "longest_word": PROSE + "x" * 501,
}  # fmt: skip


def health(*texts):
    batch = pa.RecordBatch.from_arrays([pa.array(texts, pa.large_string())], names=["text"])
    return get_tagger("health_v1")(batch).to_pylist()


@pytest.mark.parametrize("signal", LIMITS)
def test_each_limit_finds_its_mess_alone(signal):
    unique = "".join(f"{number}. {line}\n" for number, line in enumerate(PROSE.splitlines()))
    clean, found = health(unique, MESSES[signal].replace(PROSE, unique))
    assert [name for name, limit in LIMITS.items() if clean[name] > limit] == []
    others = {"replacements": {"controls"}, "mojibake": {"repeated_lines"}, "controls": {"repeated_lines"}}
    above = {name for name, limit in LIMITS.items() if found[name] > limit}
    assert signal in above
    assert above <= {signal, *others.get(signal, ())}
    assert LIMITS.keys() == MEANINGS.keys()


@pytest.mark.parametrize(
    "text",
    [
        "\u00ab\u00a0LIBERT\u00c9\u00a0\u00bb, dit-il, l\u2019\u00e9t\u00e9\u00a0\u00bb et \u00ab c\u2019est caf\u00e9\u2026\u00bb",
        "\u201eMEN\u00dc\u201c und \u00bbSpa\u00df\u00ab",
        "AMANH\u00c3 \u00c9\u201d",
        "temperature 20 \u00b0C \u00b1 2, \u00a35 \u2013 \u20ac6",
        "\u0420\u0456\u043a \u0421\u0451\u043c\u0433\u0430",
    ],
)
def test_what_is_written_on_purpose_is_no_mojibake(text):
    assert health(text)[0]["mojibake"] == 0
    assert health(text.encode().decode("latin-1"))[0]["mojibake"] > 0.05


@pytest.mark.parametrize(
    "piece",
    [
        "a",
        "\n",
        "<a ",
        "[[x",
        "{{x",
        "\\aa{",
        "\u00c3",
        "\u00e0\u2026",
        "\n==x",
        "a\u0416",
        '":',
        "0" * 40 + ".",
    ],
)
def test_long_texts_take_linear_time(piece):
    text = piece * (200_000 // len(piece))
    (found,) = health(text)
    assert all(np.isfinite(list(found.values())))


ENGLISH = "It was late when the train came in, and nobody had slept. "
GERMAN = "Es war schon sp\u00e4t, als der Zug endlich ankam, und niemand hatte geschlafen. "
TEXTS = {
    "en": ENGLISH * 3,
    "de": GERMAN * 3,
    "both": ENGLISH * 3 + GERMAN * 3,
    "noise": " ".join(
        "".join(random.Random(n).choices("abcdefghijklmnopqrstuvwxyz", k=6)) for n in range(40)
    ),
    "empty": "",
}
HERE = {"scheduler": "synchronous", "progress": False}


def write_texts(folder):
    (folder / "v0/documents").mkdir(parents=True)
    for shard, names in (("a", ("en", "de")), ("b", ("both", "noise", "empty"))):
        rows = [json.dumps({"id": name, "text": TEXTS[name], "source": "s"}) + "\n" for name in names]
        (folder / f"v0/documents/{shard}.jsonl").write_text("".join(rows))
    return str(folder / "v0")


@pytest.mark.skipif(find_spec("pycld2") is None, reason="needs pycld2")
def test_the_language_of_each_document_is_told_and_counted(tmp_path):
    root = write_texts(tmp_path)
    summary = dk.tag(root, ["health_language_v1"], **HERE)
    key = "health_language_v1__health_language_v1__"
    table = dk.read_table(root, ["id"], ["health_language_v1"])
    found = {row["id"]: (row[f"{key}language"], row[f"{key}doubt"]) for row in table.to_pylist()}
    limit = TAGGERS[1].limits["doubt"]
    assert found["en"][0] == "en"
    assert found["de"][0] == "de"
    assert {name for name, (_, doubt) in found.items() if doubt > limit} == {"both", "noise", "empty"}
    assert found["noise"] == found["empty"] == (None, 1.0)
    (rows,) = summary.found.values()
    counts = {row.language: (row.documents, row.in_doubt) for row in rows}
    assert counts["unknown"] == (2, 2)
    assert sum(documents for documents, _ in counts.values()) == len(TEXTS)
    assert sum(row.share for row in rows) == pytest.approx(1)
    content = tmp_path / "page.json"
    dk.report(root, to=str(tmp_path / "page.html"), **HERE)
    assert f"{key}doubt" in {row["key"] for row in json.loads(content.read_text())["junk"]}


def test_health_goes_on_without_the_package_for_languages(tmp_path, monkeypatch):
    root = write_texts(tmp_path)
    monkeypatch.setattr("dolma_dask.extras.find_spec", lambda package: None)
    summary = dk.tag(root, ["health_v1", "health_language_v1"], **HERE)
    (note,) = summary.notes
    assert note.startswith("left out: the tagger health_language_v1 needs the package pycld2")
    assert sorted(path.name for path in (tmp_path / "v0/attributes").iterdir()) == ["health_v1"]
    with pytest.raises(
        UsageError, match=r"health_language_v1 needs the package pycld2.*dolma-dask\[language\]"
    ):
        dk.tag(root, ["health_language_v1"], **HERE)
