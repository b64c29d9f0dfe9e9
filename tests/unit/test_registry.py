"""One entry of the registry makes a verb: a command with help, a stage of pipelines, tables in a report."""

import sys
from dataclasses import dataclass
from types import ModuleType
from typing import Annotated

import pytest

from dolma_dask import cli, registry
from dolma_dask.options.base import Opt
from dolma_dask.options.command import command
from dolma_dask.options.groups import ShardOptions
from dolma_dask.pages.history import History, Step
from dolma_dask.pages.recorded import result_tables
from dolma_dask.pipelines.pipeline import run
from dolma_dask.results.summary import Summary
from dolma_dask.results.table import Column, Table


@dataclass(frozen=True, kw_only=True)
class CountOptions(ShardOptions):
    """Options of `count`."""

    to: Annotated[str, Opt("Where the counts go.")]
    words: Annotated[str, Opt("File with the words to count.")] = ""


@command
def count(dataset: Annotated[str, Opt("A folder or URL.")], /, *, options: CountOptions) -> Summary:
    """Count something of a dataset.

    Example: dolma-dask count corpus/v0 --to counts
    """
    planned = ("a.jsonl",) if options.dry_run else ()
    return Summary("count", options.to, done=1, counts={"documents": len(dataset)}, planned=planned)


def tables(step):
    yield Table(step.root, (Column("what", "name"),), [("one",)], section="Counts")


@pytest.fixture(autouse=True)
def entry(monkeypatch):
    module = ModuleType("verb_of_a_test")
    module.count, module.tables = count, tables
    monkeypatch.setitem(sys.modules, module.__name__, module)
    verb = registry.Verb(
        "count",
        "verb_of_a_test:count",
        "Count something.",
        reads=("dataset",),
        files=("words",),
        tables="verb_of_a_test:tables",
    )
    monkeypatch.setitem(registry.VERBS, "count", verb)
    monkeypatch.setitem(registry.COMMANDS, "count", verb)


def test_it_is_a_command(capsys):
    assert cli.main(["--help"]) == 0
    assert "Count something." in capsys.readouterr().out
    assert cli.main(["count", "--help"]) == 0
    assert "Example: dolma-dask count corpus/v0" in capsys.readouterr().out
    assert cli.main(["count", "abc", "--to", "x"]) == 0
    assert "documents  3" in capsys.readouterr().out


def test_it_is_a_stage_that_others_wait_for(tmp_path, capsys):
    path = tmp_path / "p.yaml"
    stages = "stages:\n  - count: {dataset: v0, to: v1}\n  - name: again\n    count: {dataset: v1, to: v2, words: %s}\n"
    path.write_text(stages % path)
    plan = run(str(path), dry_run=True)
    assert [stage.state for stage in plan.stages] == ["would run", "waits"]
    assert "after count" in plan.stages[1].message
    assert [stage.state for stage in run(str(path)).stages] == ["done", "done"]
    path.write_text(stages % "nowhere.txt")
    assert cli.main(["run", str(path)]) == 2
    assert "count.words: nowhere.txt: there is no such file" in capsys.readouterr().err


def test_a_report_has_its_tables():
    history = History((Step("count", "v1", (), ()), Step("tag", "v1", (), ())))
    assert [table.section for table in result_tables(history)] == ["Counts"]
