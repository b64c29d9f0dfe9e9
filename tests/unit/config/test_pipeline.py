"""run: stages one after the other; what is done is skipped, what fails ends it, and nothing runs before the file is right."""

import json

import pytest

from dolma_dask import cli
from dolma_dask.config.pipeline import run
from dolma_dask.config.stages import StagePlan
from dolma_dask.errors import InterruptedStageError, StageError, UsageError
from dolma_dask.summary import Summary
from dolma_dask.testing.tokenizer import train_tokenizer

HERE = {"scheduler": "synchronous", "progress": False}


def states(summary):
    return {stage.name: stage.state for stage in summary.stages}


def run_here(*words):
    """Run the command in this process."""
    return cli.main(["run", *words, "--scheduler", "synchronous", "--no-progress"])


def tree(folder):
    """Contents of all files but journals."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and "_journal" not in path.parts
    }


def test_all_stages_then_nothing_is_left(world):
    first = run("p.yaml", **HERE)
    assert set(states(first).values()) == {"done"}
    assert (first.exit_status, first.fresh) == (0, True)
    before = tree(world)
    second = run("p.yaml", **HERE)
    assert set(states(second).values()) == {"done before"}
    assert not second.fresh
    assert tree(world) == before
    rows = {stage.name: stage.cells()[1] for stage in second.stages}
    assert rows == {"convert": "30", "tag": "30", "dedupe": "30", "clean": "3"}
    assert "clean (mix)" in str(second)
    third = run("p.yaml", variables={"minimum": 1000}, **HERE)
    assert states(third) == {
        "convert": "done before",
        "tag": "done before",
        "dedupe": "done before",
        "clean": "done",
    }


def test_a_rehearsal_tells_what_each_stage_would_do(world):
    before = tree(world)
    plan = run("p.yaml", dry_run=True, **HERE)
    assert states(plan) == {"convert": "would run", "tag": "waits", "dedupe": "waits", "clean": "waits"}
    assert "would work on 3 shards, 0 done before" in str(plan)
    assert "not known before convert, tag and dedupe" in str(plan)
    assert tree(world) == before
    run("p.yaml", only=["convert", "tag"], **HERE)
    plan = run("p.yaml", dry_run=True, **HERE)
    assert states(plan) == {
        "convert": "nothing to do",
        "tag": "nothing to do",
        "dedupe": "would run",
        "clean": "waits",
    }
    run("p.yaml", **HERE)
    (world / "raw/1.jsonl").write_text('{"id":"x","text":"changed"}\n')
    plan = run("p.yaml", dry_run=True, **HERE)
    assert states(plan)["convert"] == "would run"
    assert plan.stages[0].summary.planned == ("1.jsonl.gz",)
    assert plan.stages[1].state == "waits"
    assert "after convert" in plan.stages[1].message


def test_a_rehearsal_does_not_hide_what_is_wrong(world):
    (world / "raw").rename(world / "other")
    with pytest.raises(StageError, match=r"stage 'convert' \(line 5\) failed"):
        run("p.yaml", dry_run=True, **HERE)


def test_some_stages(world):
    summary = run("p.yaml", only=["convert"], **HERE)
    assert states(summary) == {
        "convert": "done",
        "tag": "left out",
        "dedupe": "left out",
        "clean": "left out",
    }
    summary = run("p.yaml", from_="tag", **HERE)
    assert states(summary) == {"convert": "left out", "tag": "done", "dedupe": "done", "clean": "done"}


def test_the_first_failure_ends_it_and_the_same_command_goes_on(world, capsys):
    good = (world / "raw/1.jsonl").read_text()
    (world / "raw/1.jsonl").write_text(good + "nonsense\n")
    assert run_here("p.yaml") == 1
    shown = capsys.readouterr()
    assert "FAILED convert (line 5): StageError: convert: 1 of 3 shards failed" in shown.out
    assert "FAILED 1.jsonl.gz: BadRecordError" in shown.out
    assert shown.out.count("not reached") == 3
    assert "The same command does only what is left" in shown.err
    assert not (world / "out/v0/attributes").exists()
    (world / "raw/1.jsonl").write_text(good)
    assert run_here("p.yaml", "--json") == 0
    content = json.loads(capsys.readouterr().out)
    assert [stage["state"] for stage in content["stages"]] == ["done"] * 4
    assert content["stages"][0]["summary"]["skipped"] == 2


def test_a_failure_as_json(world, capsys):
    (world / "raw/1.jsonl").write_text("nonsense\n")
    assert run_here("p.yaml", "--json") == 1
    content = json.loads(capsys.readouterr().out)
    assert content["error"]["type"] == "StageError"
    stages = content["summary"]["stages"]
    assert [stage["state"] for stage in stages] == ["failed", *["not reached"] * 3]
    assert stages[0]["summary"]["failures"][0]["shard"] == "1.jsonl.gz"
    assert content["exit_status"] == content["summary"]["exit_status"] == 1


def test_what_a_verb_refuses_is_a_failure_with_its_line(world):
    (world / "p.yaml").write_text((world / "p.yaml").read_text().replace("exact is", "exakt is"))
    with pytest.raises(
        StageError, match=r"p.yaml: stage 'clean' \(line 14\) failed: ExpressionError"
    ) as caught:
        run("p.yaml", **HERE)
    assert states(caught.value.details["summary"]) == {
        "convert": "done",
        "tag": "done",
        "dedupe": "done",
        "clean": "failed",
    }


def test_problems_that_validate_finds_end_it(world):
    text = (world / "p.yaml").read_text()
    (world / "p.yaml").write_text(text.replace("  - tag:", '  - validate: {dataset: "${out}/v0"}\n  - tag:'))
    rows = (world / "raw/0.jsonl").read_text()
    (world / "raw/2.jsonl").write_text(rows)
    with pytest.raises(StageError, match="stage 'validate'") as caught:
        run("p.yaml", **HERE)
    summary = caught.value.details["summary"]
    assert (summary.exit_status, states(summary)["tag"]) == (1, "not reached")
    assert "duplicate_id" in str(summary) or "duplicate id" in str(summary)


def test_rows_that_are_set_aside_do_not_end_it_but_count(world):
    run("p.yaml", only=["convert"], **HERE)
    import gzip

    path = world / "out/v0/documents/1.jsonl.gz"
    path.write_bytes(gzip.compress(gzip.decompress(path.read_bytes()) + b"nonsense\n"))
    text = (world / "p.yaml").read_text()
    (world / "p.yaml").write_text(f"defaults: {{on_bad_record: quarantine, max_bad_fraction: 0.5}}\n{text}")
    summary = run("p.yaml", from_="tag", **HERE)
    assert states(summary)["clean"] == "done"
    assert summary.exit_status == 1
    assert "rows lost" in str(summary)


def test_names_rules_and_files_are_checked_before_anything_runs(world):
    text = (world / "p.yaml").read_text()
    text = text.replace("char_length_v1,", "char_length_v2,").replace("exact is None", "exact is")
    text += "  - ragged: {dataset: out/v1, to: tokens, tokenizer: none.json}\n"
    text = text.replace("source: s", "source: s\n      mapping: c5")
    (world / "p.yaml").write_text(text)
    with pytest.raises(UsageError) as caught:
        run("p.yaml", **HERE)
    shown = str(caught.value)
    assert "4 mistakes" in shown
    assert "line 12, column 16: tag.taggers: there is no tagger 'char_length_v2'" in shown
    assert "line 18, column 14: mix.where: cannot read this" in shown
    assert "line 9, column 16: convert.mapping: mapping 'c5' is not known" in shown
    assert "line 19, column 54: ragged.tokenizer: none.json: there is no such file." in shown
    assert not (world / "out").exists()
    assert cli.main(["run", "p.yaml"]) == 2


def test_filters_and_replacements_are_checked_before_anything_runs(world):
    (world / "p.yaml").write_text(
        "stages:\n  - mix:\n      dataset: v0\n      to: v1\n      include: ['$.a[', $.b]\n      replace:\n        - {spn: a}\n"
    )
    with pytest.raises(UsageError) as caught:
        run("p.yaml", **HERE)
    shown = str(caught.value)
    assert "line 5, column 16: mix.include: cannot read this JSONPath" in shown
    assert "line 7, column 9: mix.replace: a replacement has no key 'spn'; did you mean 'span'?" in shown


@pytest.mark.parametrize(
    ("tokens", "message"),
    [
        ("ragged: {to: t, tokenizer: none.json}", "line 4, column 15: mix.tokenizer: none.json: there is no such file."),
        ("ragged: {to: t, tokeniser: x}", "line 4, column 15: mix.ragged: ragged has no option 'tokeniser' here; did you mean 'tokenizer'?"),
        ("hdf5: {to: t, tokenizer: none.json, max_seq_length: long}", "line 4, column 13: mix.hdf5: hdf5 of a mix: Expected `int`"),
        (
            "ragged: {to: t, tokenizer: p.yaml}\n      hdf5: {to: t, tokenizer: none.json}",
            "line 5, column 13: mix.tokenizer: none.json: there is no such file.",
        ),
        ("hdf5: t", "line 4, column 13: mix.hdf5: 't'; expected a map with the options of hdf5"),
    ],
)  # fmt: skip
def test_token_files_of_a_mix_are_checked_before_anything_runs(tokens, message, world):
    (world / "p.yaml").write_text(f"stages:\n  - mix:\n      dataset: v0\n      {tokens}\n")
    with pytest.raises(UsageError) as caught:
        run("p.yaml", **HERE)
    assert message in str(caught.value)


def test_options_of_the_command_line_count_more_than_the_file(world, monkeypatch):
    seen = []

    def call(stage, **more):
        seen.append(more)
        return Summary(stage.verb, "nowhere")

    monkeypatch.setattr(StagePlan, "call", call)
    run("p.yaml", scheduler="threads", workers=1, overwrite=True)
    assert seen == [{"scheduler": "threads", "workers": 1, "overwrite": True}] * 4
    stage = StagePlan("report", "report", {"dataset": "a", "to": "b.html", "workers": 3})
    assert stage.takes.keys() >= {"workers", "to"}


def test_ctrl_c_shows_what_is_finished(world, monkeypatch, capsys):
    call = StagePlan.call

    def stopped(stage, **more):
        if stage.verb == "dedupe":
            raise InterruptedStageError("dedupe was stopped: 0 of 3 shards are finished and kept.")
        return call(stage, **more)

    monkeypatch.setattr(StagePlan, "call", stopped)
    assert run_here("p.yaml") == 130
    shown = capsys.readouterr()
    assert "FAILED dedupe" in shown.out
    assert "tag " in shown.out
    assert shown.err.startswith("InterruptedStageError: p.yaml: stage 'dedupe' (line 12)")


def test_a_summary_shows_itself_in_a_notebook(world):
    html = run("p.yaml", **HERE)._repr_html_()
    assert "<table>" in html
    assert "clean (mix)" in html


def test_token_files_of_a_mix_count_as_its_work(world):
    train_tokenizer(["word word"], world / "t.json", 300)
    text = (world / "p.yaml").read_text() + "      ragged: {to: tokens, tokenizer: t.json}\n"
    (world / "p.yaml").write_text(text)
    first = run("p.yaml", **HERE)
    assert f"{dict(first.stages[-1].summary.others)['ragged'].counts['tokens']:,.0f}" in str(first)
    assert states(run("p.yaml", **HERE))["clean"] == "done before"
    next((world / "tokens").glob("*.data.npy")).unlink()
    again = run("p.yaml", **HERE)
    assert states(again)["clean"] == "done"
    assert states(again)["dedupe"] == "done before"
