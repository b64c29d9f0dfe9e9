"""Plain functions as taggers."""

from typing import Optional

import pyarrow as pa
import pytest

import dolma_dask as dk
from dolma_dask.errors import UsageError
from dolma_dask.taggers.lifting import as_tagger


def lifted(kind, function=lambda text: None):
    function.__name__, function.__annotations__ = "made", {"return": kind}
    return as_tagger(function)


@pytest.mark.parametrize(
    "returned, kind",
    [
        (float, "document"),
        (int, "document"),
        ("float", "document"),
        ("int | None", "document"),
        (Optional[float], "document"),  # noqa: UP045
        (bool, "scalar"),
        (str | None, "scalar"),
        (dict[str, float], "dict"),
        ("Dict[str, float]", "dict"),
        (list[tuple[int, int, float]], "spans"),
        ("list[tuple[int, int, float]] | None", "spans"),
    ],
)
def test_the_type_it_returns_says_what_is_written(returned, kind):
    assert dict(lifted(returned).types) == {"made": kind}


@pytest.mark.parametrize("returned", [None, bytes, "Something", int | str])
def test_other_types_are_refused(returned):
    with pytest.raises(
        UsageError, match="made does not say what it returns; expected a type such as -> float"
    ):
        lifted(returned)


def test_parameters_name_columns(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(
        "def same(id, text: str) -> bool:\n    return id == text\n\ndef gopher_v2(text) -> int:\n    return 1\n"
    )
    tagger = dk.get_tagger(f"{path}:same")
    batch = pa.record_batch({"id": ["a", "b"], "text": ["a", "c"]})
    assert tagger.reads == ("id", "text")
    assert tagger(batch).column("same").to_pylist() == [True, False]
    with pytest.raises(
        UsageError, match="'gopher_v2' is a tagger shipped with dolma_dask; give your function another name"
    ):
        dk.get_tagger(f"{path}:gopher_v2")


def test_tags_by_place_and_by_object(tmp_path):
    """A function that was edited does its work again; a tagger of the decorator is taken as it is."""
    (tmp_path / "v0/documents").mkdir(parents=True)
    (tmp_path / "v0/documents/a.jsonl").write_text('{"id": "1", "text": "a!", "source": "s"}\n')
    code = (
        "import dolma_dask as dk\n\ndef loud(text: str) -> int:\n    return text.count('!')\n\n"
        "@dk.tagger(name='quiet_v1', types='share')\ndef quiet(text):\n    return 1 / len(text)\n"
    )
    (tmp_path / "mine.py").write_text(code)
    run = {"scheduler": "synchronous", "progress": False}

    def tag():
        done = dk.tag(
            f"{tmp_path}/v0",
            [f"{tmp_path}/mine.py:loud", f"{tmp_path}/mine.py:quiet", lifted(int, lambda text: 5)],
            **run,
        )
        return done.done, (tmp_path / "v0/attributes/loud/a.jsonl").read_text().partition("loud__loud__loud")[
            2
        ]

    assert tag() == (1, '":[[0,2,1.0]]},"source":"s"}\n')
    assert tag()[0] == 0
    assert (tmp_path / "v0/attributes/quiet_v1/a.jsonl").exists()
    (tmp_path / "mine.py").write_text(code.replace("count('!')", "count('a') + 1"))
    assert tag() == (1, '":[[0,2,2.0]]},"source":"s"}\n')
