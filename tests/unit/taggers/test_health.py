"""The limits of health find what they are for, and the page says so."""

import numpy as np
import pyarrow as pa
import pytest

from dolma_dask.taggers.health import LIMITS, MEANINGS
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
