"""One record of options as Python, a docstring, a terminal and YAML take it."""

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import numpy as np
import pytest

from dolma_dask.errors import UsageError
from dolma_dask.options.base import OUTPUT, Opt, Options
from dolma_dask.options.command import command
from dolma_dask.pipelines.signatures import arguments_of, for_command_line, notes


@dataclass(frozen=True, kw_only=True)
class ColorOptions(Options):
    """Options of several commands."""

    group = OUTPUT
    unrecorded = frozenset({"color"})

    color: Annotated[Literal["red", "blue"], Opt("Of the brush.")] = "red"


@dataclass(frozen=True, kw_only=True)
class PaintOptions(ColorOptions):
    """Options of `paint`."""

    coats: Annotated[int, Opt("How often `walls` are painted. In Python also None.", min=1)] = 2
    words: Annotated[Sequence[str], Opt("Some of them.")] = ()
    rules: Annotated[Mapping[str, Any] | str | None, Opt('With color="blue" none.')] = None


@command
def paint(
    walls: Annotated[str, Opt("What to paint.")],
    /,
    more: Annotated[str, Opt("Further ones.")] = "",
    *,
    options: PaintOptions,
) -> PaintOptions:
    """Paint walls
    with a brush.

    Example: dolma-dask paint x

    Returns
    -------
    PaintOptions

    Notes
    -----
    A note on `coats` in
    two lines.

    one     a column
    two     another
    """
    return options


def test_calls_in_python_are_flat_and_have_a_signature():
    assert paint("x", coats=3, words="a") == PaintOptions(coats=3, words=("a",))
    assert list(inspect.signature(paint).parameters) == ["walls", "more", "coats", "words", "rules", "color"]
    assert inspect.signature(paint).parameters["coats"].default == 2
    with pytest.raises(TypeError, match=r"paint\(\): missing a required argument: 'walls'"):
        paint()
    with pytest.raises(
        TypeError, match=r"paint\(\) takes walls, more without a name, .* 3 arguments .* name='c'"
    ):
        paint("a", "b", "c")
    with pytest.raises(
        TypeError, match=r"paint\(\) takes walls without a name; expected paint\(walls, more, \.\.\.\)"
    ):
        paint(walls="a")
    with pytest.raises(TypeError, match=r"paint\(\): missing a required argument: 'walls'"):
        paint(more="b")


def test_the_docstring_lists_all_arguments_before_what_is_returned():
    head, _, section = paint.__doc__.partition("Parameters\n----------\n")
    assert head.startswith("Paint walls\nwith a brush.")
    assert section.startswith("walls : str\n    What to paint.\nmore : str")
    assert 'color : {"red", "blue"}\n    Of the brush.\n\nReturns\n' in section


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"coat": 1}, "did you mean 'coats'"),
        ({"zzz": 1}, "expected one of more, coats, words, rules, color"),
        ({"coats": 0}, "coats=0; expected a whole number, 1 or more"),
        ({"coats": True}, "coats=True; expected"),
        ({"color": "green"}, "color='green'; expected one of red, blue"),
        ({"words": [""]}, "`words` was given with nothing in it"),
        ({"words": 5}, "words=5; expected words"),
    ],
)
def test_what_cannot_be_is_refused(given, message):
    with pytest.raises(UsageError, match=message):
        paint("x", **given)


def test_numbers_of_numpy_are_numbers():
    made = paint("x", coats=np.int32(3))
    assert made == PaintOptions(coats=3)
    assert type(made.coats) is int


def test_a_map_or_json_makes_the_same():
    assert PaintOptions.from_json("paint", '{"coats": 3}', "{...}") == PaintOptions(coats=3)
    with pytest.raises(UsageError, match="paint has no option 'coat' here; did you mean 'coats'"):
        PaintOptions.from_json("paint", {"coat": 3}, "{...}")
    with pytest.raises(UsageError, match="cannot read paint"):
        PaintOptions.from_json("paint", "[1]", "{...}")


def test_journals_keep_what_was_given_and_counts():
    assert PaintOptions(words=["a"], color="blue").params(walls="x") == {
        "coats": 2,
        "words": ["a"],
        "walls": "x",
    }


def test_yaml_takes_texts_lists_and_maps():
    known = arguments_of(paint)
    assert known["walls"] == (str, True, True)
    assert known["rules"].hint == str | None | dict[str, Any]
    assert known["words"].hint == Sequence[str]


def test_help_spells_arguments_as_the_command_line_does():
    shown = inspect.signature(for_command_line(paint)).parameters
    texts = {name: item.annotation.__metadata__[0].help for name, item in shown.items()}
    assert texts["coats"] == "How often WALLS are painted."
    assert texts["rules"] == "With --color blue none."
    assert for_command_line(paint).__doc__ == "Paint walls with a brush.\n\nExample: dolma-dask paint x"


def test_notes_flow_and_columns_stay():
    assert notes(paint) == "A note on --coats in two lines.\n\none     a column\ntwo     another"
