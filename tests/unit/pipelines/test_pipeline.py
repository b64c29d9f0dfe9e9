"""run: stages one after the other; what is done is skipped, what fails ends it, and nothing runs before the file is right."""

import gzip
import json
import re
import shlex

import pytest

from dolma_dask import cli
from dolma_dask.errors import InterruptedStageError, StageError, UsageError
from dolma_dask.pipelines.pipeline import run
from dolma_dask.pipelines.stages import StagePlan
from dolma_dask.results.summary import Summary
from dolma_dask.testing.tokenizer import train_tokenizer

HERE = {"scheduler": "synchronous", "progress": False}


def states(summary):
    """Return the states of convert, tag, dedupe and clean."""
    return [stage.state for stage in summary.stages]


def change(world, old, new):
    """Replace a part of the pipeline."""
    path = world / "p.yaml"
    path.write_text(path.read_text().replace(old, new))


def refused(**options):
    """Return why the pipeline is not run."""
    with pytest.raises(UsageError) as caught:
        run("p.yaml", **options, **HERE)
    return str(caught.value)


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


@pytest.mark.slow
def test_all_stages_then_nothing_is_left(world):
    first = run("p.yaml", **HERE)
    assert states(first) == ["done"] * 4
    assert (first.exit_status, first.fresh) == (0, True)
    before = tree(world)
    second = run("p.yaml", **HERE)
    assert states(second) == ["done before"] * 4
    assert not second.fresh
    assert tree(world) == before
    rows = {stage.name: stage.row()[1] for stage in second.stages}
    assert rows == {"convert": 30, "tag": 30, "dedupe": 30, "clean": 3}
    for shown in (str(second), second._repr_html_()):
        assert "clean (mix)" in shown
    with pytest.raises(
        StageError, match=r"finished mix with other options: where .* replace them with --overwrite"
    ):
        run("p.yaml", variables={"minimum": 1000}, **HERE)
    third = run("p.yaml", variables={"minimum": 1000}, only=["clean"], overwrite=True, **HERE)
    assert states(third)[-1] == "done"


def test_a_rehearsal_tells_what_each_stage_would_do(world):
    before = tree(world)
    plan = run("p.yaml", dry_run=True, **HERE)
    assert states(plan) == ["would run", "waits", "waits", "waits"]
    assert "would work on 3 shards, 0 done before" in str(plan)
    assert "not known before convert, tag and dedupe" in str(plan)
    assert tree(world) == before
    run("p.yaml", only=["convert", "tag"], **HERE)
    plan = run("p.yaml", dry_run=True, **HERE)
    assert states(plan) == ["nothing to do", "nothing to do", "would run", "waits"]
    run("p.yaml", **HERE)
    (world / "raw/1.jsonl").write_text('{"id":"x","text":"changed"}\n')
    plan = run("p.yaml", dry_run=True, **HERE)
    assert states(plan)[:2] == ["would run", "waits"]
    assert plan.stages[0].summary.planned == ("1.jsonl.gz",)
    assert "after convert" in plan.stages[1].message


def test_a_rehearsal_does_not_hide_what_is_wrong(world):
    (world / "raw").rename(world / "other")
    with pytest.raises(StageError, match=r"stage 'convert' \(line 5\) failed"):
        run("p.yaml", dry_run=True, **HERE)


def test_some_stages(world):
    summary = run("p.yaml", only=["convert"], **HERE)
    assert states(summary) == ["done", "left out", "left out", "left out"]
    summary = run("p.yaml", from_="tag", **HERE)
    assert states(summary) == ["left out", "done", "done", "done"]


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
    assert run_here("p.yaml", "--json") == 1
    content = json.loads(capsys.readouterr().out)
    stages = content["summary"]["stages"]
    assert content["error"]["type"] == "StageError"
    assert [stage["state"] for stage in stages] == ["failed", *["not reached"] * 3]
    assert stages[0]["summary"]["failures"][0]["shard"] == "1.jsonl.gz"
    assert content["exit_status"] == content["summary"]["exit_status"] == 1
    (world / "raw/1.jsonl").write_text(good)
    assert run_here("p.yaml", "--json") == 0
    content = json.loads(capsys.readouterr().out)
    assert [stage["state"] for stage in content["stages"]] == ["done"] * 4
    assert content["stages"][0]["summary"]["skipped"] == 2


def test_what_a_verb_refuses_is_a_failure_with_its_line(world):
    change(world, "exact is", "exakt is")
    why = r"p.yaml: stage 'clean' \(line 14\) failed: ExpressionError"
    with pytest.raises(StageError, match=why) as caught:
        run("p.yaml", **HERE)
    assert states(caught.value.details["summary"]) == ["done", "done", "done", "failed"]


@pytest.mark.slow
def test_problems_that_validate_finds_end_it(world):
    change(world, "  - tag:", '  - validate: {dataset: "${out}/v0"}\n  - tag:')
    rows = (world / "raw/0.jsonl").read_text()
    (world / "raw/2.jsonl").write_text(rows)
    with pytest.raises(StageError, match="stage 'validate'") as caught:
        run("p.yaml", **HERE)
    summary = caught.value.details["summary"]
    assert (summary.exit_status, states(summary)[1:3]) == (1, ["failed", "not reached"])
    assert "duplicate_id" in str(summary)


@pytest.mark.slow
def test_a_check_before_stages_that_make_attributes_says_how_it_leaves_them_out(world):
    change(world, "  - tag:", '  - validate: {dataset: "${out}/v0"}\n  - tag:')
    assert run("p.yaml", **HERE).exit_status == 0
    (world / "raw/9.jsonl").write_text((world / "raw/0.jsonl").read_text().replace('"id": "0', '"id": "9'))
    with pytest.raises(StageError, match=r"`attributes: \[\]` here checks the documents alone"):
        run("p.yaml", **HERE)
    change(world, 'validate: {dataset: "${out}/v0"', 'validate: {dataset: "${out}/v0", attributes: []')
    assert run("p.yaml", **HERE).exit_status == 0


def test_a_stage_with_other_options_says_how_it_alone_is_done_again(world):
    run("p.yaml", **HERE)
    change(world, "exact is", "exact is not None or exact is")
    with pytest.raises(StageError) as caught:
        run("p.yaml", **HERE)
    proposal = re.search(r"For this stage alone: (--only .*? --overwrite)", str(caught.value))
    assert run_here("p.yaml", *shlex.split(proposal[1])) == 0
    assert states(run("p.yaml", **HERE)) == ["done before"] * 4


def test_rows_that_are_set_aside_do_not_end_it_but_count(world):
    run("p.yaml", only=["convert"], **HERE)
    path = world / "out/v0/documents/1.jsonl.gz"
    path.write_bytes(gzip.compress(gzip.decompress(path.read_bytes()) + b"nonsense\n"))
    change(world, "stages:", "defaults: {on_bad_record: quarantine, max_bad_fraction: 0.5}\nstages:")
    summary = run("p.yaml", from_="tag", **HERE)
    assert (states(summary)[3], summary.exit_status) == ("done", 0)
    change(world, "max_bad_fraction: 0.5", "max_bad_fraction: 0.01")
    summary = run("p.yaml", only=["tag"], **HERE)
    assert summary.exit_status == 1
    assert "rows lost" in str(summary)


def test_names_rules_and_files_are_checked_before_anything_runs(world):
    change(world, "char_length_v1,", "char_length_v2,")
    change(world, "exact is None", "exact is")
    change(world, "source: s", "source: s\n      mapping: c5")
    with (world / "p.yaml").open("a") as file:
        file.write("  - ragged: {dataset: out/v1, to: tokens, tokenizer: none.json}\n")
    shown = refused()
    assert "4 mistakes" in shown
    assert "line 12, column 16: tag.taggers: there is no tagger 'char_length_v2'" in shown
    assert "line 18, column 14: mix.where: cannot read this" in shown
    assert "line 9, column 16: convert.mapping: mapping 'c5' is not known" in shown
    assert "line 19, column 54: ragged.tokenizer: none.json: there is no such file." in shown
    assert not (world / "out").exists()
    assert cli.main(["run", "p.yaml"]) == 2


def test_options_that_cannot_be_are_refused_before_anything_runs(world):
    change(world, "source: s", "source: s\n      rename: x\n      max_bad_fraction: 2")
    change(world, "      taggers:", "      workers: -1\n      taggers:")
    with (world / "p.yaml").open("a") as file:
        file.write("  - dedupe: {dataset: out/v1, how: exact, num_bands: 3}\n")
        file.write("  - hdf5: {dataset: out/v1, to: rows, tokenizer: p.yaml, mode: LMDate}\n")
    shown = refused()
    assert "line 10, column 25: convert: max_bad_fraction=2.0; expected a share of rows" in shown
    assert "tag: workers=-1; expected" in shown
    assert "dedupe: num_bands with how='exact'; expected how='fuzzy'" in shown
    assert "hdf5: mode 'LMDate' is unknown; did you mean 'LMData'?" in shown
    assert not (world / "out").exists()
    change(world, "max_bad_fraction: 2", "max_bad_fraction: 1")
    assert "convert: form and rename are of attributes" in refused()
    change(world, "      rename: x\n", "")
    assert "rename" not in refused()


def test_a_cluster_of_the_command_line_makes_that_of_a_stage_void(world, monkeypatch):
    monkeypatch.setattr(StagePlan, "call", lambda stage, **more: Summary(stage.verb, "nowhere"))
    change(world, "stages:", "defaults: {cluster: laptop}\nstages:")
    change(world, "source: s", "source: s\n      workers: 3\n      scheduler: threads")
    with pytest.raises(UsageError, match="line 6, column 5: convert: "):
        run("p.yaml")
    run("p.yaml", cluster="laptop")
    run("p.yaml", scheduler="threads")


def test_filters_and_replacements_are_checked_before_anything_runs(world):
    (world / "p.yaml").write_text(
        "stages:\n  - mix:\n      dataset: v0\n      to: v1\n      include: ['$.a[', $.b]\n      replace:\n        - {spn: a}\n"
    )
    shown = refused()
    assert "line 5, column 16: mix.include: cannot read this JSONPath" in shown
    assert "line 7, column 9: mix.replace: a replacement has no key 'spn'; did you mean 'span'?" in shown


@pytest.mark.parametrize(
    ("tokens", "message"),
    [
        ("ragged: {to: t, tokenizer: none.json}", "line 4, column 15: mix.tokenizer: none.json: there is no such file."),
        ("ragged: {to: t, tokeniser: x}", "line 4, column 15: mix.ragged: ragged of a mix has no option 'tokeniser' here; did you mean 'tokenizer'?"),
        ("hdf5: {to: t, tokenizer: none.json, max_seq_length: long}", "line 4, column 13: mix.hdf5: hdf5 of a mix: max_seq_length='long'; expected a whole number"),
        (
            "ragged: {to: t, tokenizer: p.yaml}\n      hdf5: {to: t, tokenizer: none.json}",
            "line 5, column 13: mix.tokenizer: none.json: there is no such file.",
        ),
        ("hdf5: t", "line 4, column 13: mix.hdf5: 't'; expected a map with the options of hdf5"),
    ],
)  # fmt: skip
def test_token_files_of_a_mix_are_checked_before_anything_runs(tokens, message, world):
    (world / "p.yaml").write_text(f"stages:\n  - mix:\n      dataset: v0\n      {tokens}\n")
    assert message in refused()


def test_options_of_the_command_line_count_more_than_the_file(world, monkeypatch):
    seen = []

    def call(stage, **more):
        seen.append(more)
        return Summary(stage.verb, "nowhere")

    monkeypatch.setattr(StagePlan, "call", call)
    run("p.yaml", scheduler="threads", workers=1, overwrite=True)
    given = {"scheduler": "threads", "workers": 1, "overwrite": True}
    assert seen == [{**given, "cluster": None}] * 4  # nor does a cluster of the file count then
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


def test_token_files_of_a_mix_count_as_its_work(world):
    train_tokenizer(["word word"], world / "t.json", 300)
    change(world, "    mix:\n", "    mix:\n      ragged: {to: tokens, tokenizer: t.json}\n")
    first = run("p.yaml", **HERE)
    assert f"{dict(first.stages[-1].summary.others)['ragged'].counts['tokens']:,.0f}" in str(first)
    assert states(run("p.yaml", **HERE)) == ["done before"] * 4
    next((world / "tokens").glob("*.data.npy")).unlink()
    assert states(run("p.yaml", **HERE))[2:] == ["done before", "done"]


def test_functions_are_looked_up_before_anything_runs(world):
    (world / "mine.py").write_text("def f(text):\n    return text\n\nasync def g(record): pass\n")
    stages = (
        'stages:\n  - convert: {inputs: raw, to: new, function: "mine.py:g"}\n'
        '  - tag: {dataset: new, taggers: ["mine.py:f", "mine.py:h"]}\n'
        '  - transform: {dataset: new, to: newer, function: "gone.py:f"}\n'
    )
    (world / "p.yaml").write_text(stages)
    said = refused()
    for expected in (
        "line 2, column 47: convert.function: mine.py:g is declared with `async`",
        "line 3, column 34: tag.taggers: mine.py:f does not say what it returns",
        "line 3, column 34: tag.taggers: mine.py has no 'h': expected one of f, g",
        "line 4, column 52: transform.function: gone.py: No such file",
    ):
        assert expected in said, said
    assert not (world / "new").exists()
