"""A rehearsal runs on the first shards and touches nothing real."""

import pytest

from dolma_dask import cli
from dolma_dask.dataset import open_dataset
from dolma_dask.pipelines.pipeline import run
from dolma_dask.pipelines.rehearsal import Rehearsal, beside
from dolma_dask.pipelines.stages import StagePlan, absolute

HERE = {"scheduler": "synchronous", "progress": False}


def contents(folder):
    """Everything below a folder, links followed, journals too."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_places():
    assert beside("corpus/v1", 2) == "corpus/v1-rehearsal-2"
    assert beside("corpus/v1/", 2) == "corpus/v1-rehearsal-2"
    assert beside("corpus/v1/documents", 2) == "corpus/v1-rehearsal-2"
    assert beside("s3://b/v1", 2) == "s3://b/v1-rehearsal-2"
    assert beside("wiki.html", 2) == "wiki-rehearsal-2.html"


def test_what_is_made_is_moved_and_what_is_read_is_cut():
    stages = [
        StagePlan("convert", "convert", {"inputs": ["raw"], "to": "c/v0"}),
        StagePlan("tag", "tag", {"dataset": "c/v0/documents", "taggers": ["a"]}),
        StagePlan("old", "mix", {"dataset": "c/old", "to": "c/new", "prune": 1}),
        StagePlan("marked", "tag", {"dataset": "c/other", "taggers": ["a"]}),
        StagePlan("together", "dedupe", {"dataset": "c/other", "others": ["c/one", "c/v0"]}),
        StagePlan("named", "tag", {"dataset": "lake", "source": "s", "version": "v0", "taggers": ["a"]}),
        StagePlan("check", "validate", {"dataset": "lake", "source": "s", "version": "v1", "against": "v0"}),
        StagePlan("mix", "mix", {"dataset": "c/other", "to": "c/v1", "where": "c/v0 > 1"}),
        StagePlan("block", "block", {"dataset": "c/v1", "list_file": "l.txt"}),
        StagePlan("listed", "mix", {"dataset": "c/v1", "to": "c/v2", "allow": ["l.txt"]}),
        StagePlan("ragged", "ragged", {"dataset": "c/v1", "to": "t", "tokenizer": "t.json", "name": "t"}),
        StagePlan(
            "both", "mix", {"dataset": "c/v1", "ragged": {"to": "t2", "tokenizer": "t.json"}, "prune": 9}
        ),
        StagePlan(
            "report", "report", {"dataset": "c/v1", "to": "r.html", "tokens": ["t", "t2", "elsewhere"]}
        ),
    ]
    plan = Rehearsal(stages, 2)
    found = {stage.name: dict(stage.arguments) for stage in plan.stages}
    assert found["convert"] == {"inputs": ["raw"], "to": "c/v0-rehearsal-2", "prune": 2}
    assert found["tag"]["dataset"] == "c/v0-rehearsal-2"
    assert found["old"] == {"dataset": "c/old", "to": "c/new-rehearsal-2", "prune": 1}
    assert found["marked"]["dataset"] == "c/other-rehearsal-2"
    assert found["together"]["others"] == ["c/one-rehearsal-2", "c/v0-rehearsal-2"]
    assert found["mix"] == {"dataset": "c/other-rehearsal-2", "to": "c/v1-rehearsal-2", "where": "c/v0 > 1"}
    assert found["block"]["allow_unmatched"]
    assert found["listed"]["allow_unmatched"]
    assert found["ragged"]["name"] == "t"
    assert found["both"]["ragged"] == {"to": "t2-rehearsal-2", "tokenizer": "t.json"}
    assert found["report"]["tokens"] == ["t-rehearsal-2", "t2-rehearsal-2", "elsewhere"]
    assert found["named"] == {"dataset": "lake/sources/s/v0-rehearsal-2", "source": "s", "taggers": ["a"]}
    assert found["check"]["dataset"] == "lake/sources/s/v1"
    assert found["check"]["against"] == "lake/sources/s/v0-rehearsal-2"
    assert list(plan.twins) == [absolute("c/other"), absolute("c/one"), absolute("lake/sources/s/v0")]


@pytest.mark.slow
def test_nothing_real_is_touched_and_the_real_run_is_whole(world):
    rehearsal = run("p.yaml", prune=1, **HERE)
    assert rehearsal.exit_status == 0
    assert sorted(path.name for path in (world / "out").iterdir()) == ["v0-rehearsal-1", "v1-rehearsal-1"]
    assert [shard.path for shard in open_dataset("out/v0-rehearsal-1").shards] == ["0.jsonl.gz"]
    assert "a rehearsal on 1 shard" in str(rehearsal)
    before = contents(world / "out/v0-rehearsal-1")
    run("p.yaml", **HERE)
    real = contents(world / "out/v0") | contents(world / "out/v1")
    assert len(open_dataset("out/v0").shards) == 3
    run("p.yaml", prune=2, **HERE)
    assert contents(world / "out/v0") | contents(world / "out/v1") == real
    assert contents(world / "out/v0-rehearsal-1") == before
    assert len(open_dataset("out/v0-rehearsal-2").shards) == 2


def test_a_dataset_that_is_written_beside_gets_a_twin(world):
    run("p.yaml", only=["convert", "tag"], **HERE)
    real = contents(world / "out/v0")
    summary = run("p.yaml", from_="tag", prune=2, **HERE)
    assert [stage.state for stage in summary.stages] == ["left out", "done before", "done", "done"]
    assert contents(world / "out/v0") == real
    assert len(open_dataset("out/v0-rehearsal-2").shards) == 2
    assert (world / "out/v0-rehearsal-2/attributes/exact/0.jsonl.gz").exists()


@pytest.mark.parametrize("words", [["--prune", "0"], ["--prune", "1", "--dry-run"]])
def test_no_rehearsal(world, words, capsys):
    assert cli.main(["run", "p.yaml", *words]) == 2
    assert "prune" in capsys.readouterr().err
    assert not (world / "out").exists()


def test_a_twin_on_an_object_store(root, world):
    import dolma_dask as dk

    dk.convert("raw", to=f"{root}/v0", source="s", **HERE)
    dk.tag(f"{root}/v0", ["char_length_v1"], **HERE)
    tagging = [StagePlan("tag", "tag", {"dataset": f"{root}/v0", "taggers": ["char_length_v1"]})]
    Rehearsal(tagging, 2).make_twins()
    assert [shard.path for shard in open_dataset(f"{root}/v0-rehearsal-2").shards] == [
        "0.jsonl.gz",
        "1.jsonl.gz",
    ]
    assert dk.tag(f"{root}/v0-rehearsal-2", ["char_length_v1"], **HERE).skipped == 2
    Rehearsal(tagging, 2).make_twins()
    assert len(open_dataset(f"{root}/v0-rehearsal-2").shards) == 2
