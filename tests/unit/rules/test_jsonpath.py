"""JSONPath on rows: what the Dolma toolkit 1.2.1 answered for them, and what is mended."""

from typing import Any

import pytest

from dolma_dask.errors import ExpressionError
from dolma_dask.rules.jsonpath import find, parse_path

VALUES: list[dict[str, Any]] = [
    {"k": [[0, 5, 1]]},
    {"k": [[0, 5, 1.0]]},
    {"k": [[0, 5, 0.3], [2, 3, 2.0]]},
    {"k": []},
    {},
    {"k": None},
    {"k": 0.7},
    {"k": "abc"},
    {"k": {"en": 0.9, "de": 0.1}},
    {"j": [[0, 5, 1.0]], "k": [[0, 5, -0.5]]},
    {"k": True},
    {"k": False},
    {"k": 0},
    {"k": ""},
    {"k": [1, 2, 3]},
    {"k": {"a": [5, 6]}},
    {"k": "b'c"},
]
ROWS = [
    {
        "id": str(row),
        "text": f"hello world {row}",
        "metadata": {"lang": "en" if row % 2 else "fr", "n": row},
        "attributes": found,
    }
    for row, found in enumerate(VALUES)
]
ALL = list(range(len(ROWS)))
HAVE = [row for row in ALL if row != 4]

TOOLKIT = {
    "$.attributes[?(@.k)]": HAVE,
    "$.attributes.k": HAVE,
    "$.attributes[?(@.k && @.k[0])]": [0, 1, 2, 9, 14],
    "$.attributes[?(@.k[0][2] > 0.5)]": [0, 1],
    "$.attributes[?(0.5 < @.k[0][2])]": [0, 1],
    "$.attributes[?(@.k[0][2] > 5e-1)]": [0, 1],
    "$.attributes[?( @.k[0] [2]>0.5 )]": [0, 1],
    "$.attributes[?(@['k'][0][2] > 0.5)]": [0, 1],
    "$.attributes[?(@.k[0][2] < -0.1)]": [9],
    "$.attributes[?(@.k == 'abc')]": [7],
    "$.attributes[?(!@.k)]": [4],
    "$.attributes[?(@.k == null)]": [5],
    "$.attributes[?(@.k != null)]": [row for row in ALL if row != 5],
    "$.attributes[?(@.k == true)]": [10],
    "$.attributes[?(@.k == 0)]": [12],
    "$.attributes[?(@.k > 0.5)]": [6],
    "$.attributes[?(@.k.en > 0.5)]": [8],
    "$.attributes[?(@.k > 'abb')]": [],
    "$.attributes.k[?(@[2] > 0.5)]": [0, 1, 2],
    "$.attributes.k[0][?(@ > 1)]": [0, 1, 2, 9],
    "$.attributes[?(@.k[*][2] > 0.5)]": [0, 1],
    "$.attributes.k[*]": [0, 1, 2, 8, 9, 14, 15],
    "$.attributes.k[1]": [2, 14],
    "$.attributes.k[1:]": [2, 14],
    "$.attributes.k[:1][2]": [0, 1, 2, 9],
    "$.attributes.k[0,1]": [0, 1, 2, 9, 14],
    "$.attributes[?(@.k[0:1])]": [0, 1, 2, 9, 14],
    "$.attributes['k','j']": HAVE,
    "$.attributes.k.length()": [0, 1, 2, 3, 9, 14],
    "$..k": HAVE,
    "$.*": ALL,
    "$..*": ALL,
    "$.attributes.*": HAVE,
    "$.nope": [],
    "$.metadata[?(@.lang == 'en')]": ALL[1::2],
    "$[?(@.metadata.lang == 'en')]": ALL[1::2],
    "$[?(@.attributes.k && @.metadata.n > 3)]": ALL[5:],
    "$.attributes[?($.metadata.n > 3)]": ALL[4:],
    "$.attributes[?(@.k || @.j)]": HAVE,
    "$.attributes[?((@.k && @.j) || @.k == 'abc')]": [7, 9],
    "$.attributes[?(@.k && !@.j)]": [row for row in HAVE if row != 9],
    "$.attributes[?(!(@.k && @.j))]": [row for row in ALL if row != 9],
    "$.attributes[?(@.k[0][2] > @.k[0][0])]": [0, 1, 2],
    "$.attributes[?(@.k.a[0] == 5)]": [15],
    "$.attributes[?(@.k ~= 'a.c')]": [7],
    "$.attributes[?(2 in @.k)]": [14],
    "$.text[?(@ == 'hello world 3')]": [3],
}

MENDED = {
    "$.attributes[?(@.k && @.k[0] && @.k[0][2] >= 1.0)]": [0, 1],  # the toolkit: 1
    "$.attributes[?(@.k[0][2] >= 1)]": [0, 1],  # 0
    "$.attributes[?(@.k[0][2] == 1)]": [0, 1],  # 0
    "$.attributes[?(@.k[0][2] != 1)]": [row for row in ALL if row > 1],  # and 1
    "$.attributes[?(@.k.length() > 1)]": [2, 14],  # none
    '$.attributes[?(@.k == "abc")]': [7],  # an error
    "$.attributes[?(@.k == 'b\\'c')]": [16],  # none
    "$.attributes[?(@.k in ['abc', 0.7])]": [6, 7],  # an error
    "$.attributes[?(@.k nin ['abc'])]": [row for row in HAVE if row != 7],  # and 4
    "$.attributes[?(@.k size 1)]": [0, 1, 9, 15],  # and 4
    "$.attributes[?(@.k anyOf [1])]": [14],  # 4
    "$.attributes[?(@.k subsetOf [1,2,3,4])]": [3, 14],  # and 4
    "$.attributes.k[-1]": [0, 1, 2, 9, 14],  # an error
}


@pytest.mark.parametrize("text", [*TOOLKIT, *MENDED])
def test_rows_that_match(text: str) -> None:
    found = [row for row, value in enumerate(ROWS) if find(parse_path(text), value)]
    assert found == {**TOOLKIT, **MENDED}[text]


def test_the_row_may_be_written_as_the_toolkit_publishes_it() -> None:
    assert parse_path("$@.attributes[?(@.k && $@.m[0] > 1)]") == parse_path(
        "$.attributes[?(@.k && $.m[0] > 1)]"
    )


def test_true_is_no_number() -> None:
    path = parse_path("$.attributes[?(@.k == 1)]")
    assert find(path, {"attributes": {"k": 1.0}})
    assert not find(path, {"attributes": {"k": True}})


def test_escapes_in_strings() -> None:
    path = parse_path(r"$.attributes[?(@.k == 'a\tb\u00e9\ud83d\ude00\\')]")
    assert find(path, {"attributes": {"k": "a\tbé😀\\"}})


@pytest.mark.parametrize(
    "text, place",
    [
        ("attributes.k", 0),
        ("@.k", 0),
        ("", 0),
        ("$.attributes[?@.k]", 14),
        ("$.attributes[?(@.k", 18),
        ("$.attributes[?(@.k >)]", 20),
        ("$.a[1:2:0]", 9),
        ("$.a['b]", 4),
        ("$.a b", 4),
        ("$.attributes[?(@.k & @.j)]", 19),
        ("$" + ".a[?(" * 60, 0),
    ],
)  # fmt: skip
def test_errors_mark_the_place(text: str, place: int) -> None:
    with pytest.raises(ExpressionError) as caught:
        parse_path(text)
    if place:
        assert caught.value.details["position"] == place
    assert text[:90] in str(caught.value)
