"""dk.pipeline: shows stages with what they read, write and would do, in text and HTML, and runs them."""

import pytest

import dolma_dask as dk
from dolma_dask.errors import UsageError

HERE = {"scheduler": "synchronous", "progress": False}


def column(opened, number):
    return [row[number] for row in opened.table().rows]


def test_stages_are_shown_run_and_shown_as_done(world):
    opened = dk.pipeline("p.yaml")
    assert column(opened, 0) == ["convert", "tag", "dedupe", "clean"]
    assert column(opened, 2) == ["convert", "tag", "dedupe", "mix"]
    assert column(opened, 4)[:2] == [
        "would work on 3 shards, 0 done before",
        "not known before convert",
    ]
    assert opened.run(only=["convert"], **HERE).stages[0].state == "done"
    opened.run(**HERE)
    assert column(opened, 4) == ["nothing to do"] * 4
    assert repr(opened).splitlines()[0] == f"pipeline p.yaml: 4 stages, below {opened.folder}"


def test_variables_count_and_are_shown_escaped(world):
    opened = dk.pipeline("p.yaml", minimum=7)
    assert opened.variables == {"minimum": "7"}
    assert opened.stages[-1].arguments["where"].endswith("7")
    page = dk.pipeline("p.yaml", minimum="7 and text != '<b>'")._repr_html_()
    assert "&lt;b&gt;" in page
    assert "<b>'" not in page


def test_mistakes_in_the_file_have_their_place(world):
    path = world / "p.yaml"
    path.write_text(path.read_text().replace("- tag:", "- tagg:"))
    with pytest.raises(UsageError, match=r"line \d+, column \d+: .*did you mean 'tag'"):
        dk.pipeline("p.yaml")


def test_what_stands_in_the_way_is_shown_and_not_raised(world):
    opened = dk.pipeline("p.yaml")
    (world / "raw").rename(world / "other")
    for shown in (str(opened), opened._repr_html_()):
        assert "StageError: p.yaml: stage" in shown
        assert "not reached" in shown
