"""A pipeline in YAML becomes stages; every mistake is told before anything runs, with line, column and the nearest valid name."""

from collections.abc import Sequence
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

import pytest

from dolma_dask.errors import UsageError
from dolma_dask.pipelines.pipeline_file import check_stages, read_pipeline
from dolma_dask.pipelines.signatures import arguments_of
from dolma_dask.pipelines.stages import selected
from dolma_dask.registry import VERBS

GOOD = """
variables:
  out: corpus
  threads: threads
defaults:
  on-bad-record: quarantine
  scheduler: ${threads}
stages:
  - convert: {inputs: raw, to: "${out}/v0", source: no, shard-bytes: 1000}
  - name: signals
    tag:
      dataset: ${out}/v0
      taggers: gopher_v2
      on_bad_record: fail
  - tag: {dataset: "${out}/v0", taggers: [char_length_v1]}
  - tag: {dataset: "${out}/v0", taggers: [whitespace_tokenizer_v1]}
  - mix: {dataset: "${out}/v0", to: "${out}/v1", where: }
  - ragged: {dataset: "${out}/v1", to: tokens, tokenizer: t.json}
report: {dataset: "${out}/v1", to: wiki.html, examples: 5}
"""


def read(folder, text, **variables):
    path = folder / "p.yaml"
    path.write_text(text)
    return read_pipeline(str(path), variables)


def told(folder, text, **variables):
    with pytest.raises(UsageError) as caught:
        read(folder, text, **variables)
    return str(caught.value)


def test_stages_with_names_and_arguments(tmp_path):
    stages = read(tmp_path, GOOD, out="elsewhere")
    assert " ".join(stage.name for stage in stages) == "convert signals tag-1 tag-2 mix ragged report"
    assert [stage.line for stage in stages] == [9, 11, 15, 16, 17, 18, 19]
    assert stages[0].arguments == {
        "inputs": ["raw"],
        "to": "elsewhere/v0",
        "source": "no",
        "shard_bytes": 1000,
        "on_bad_record": "quarantine",
        "scheduler": "threads",
    }
    assert stages[1].arguments["taggers"] == ["gopher_v2"]
    assert stages[1].arguments["on_bad_record"] == "fail", "the stage counts more than the defaults"
    assert stages[4].arguments["where"] is None
    assert "on_bad_record" not in stages[6].arguments, "report does not take it"
    assert stages[6].arguments["examples"] == 5


def test_a_stage_knows_what_it_needs(tmp_path):
    stages = {stage.name: stage for stage in read(tmp_path, GOOD)}
    needs = {name: [other for other in stages if stages[name].needs(stages[other])] for name in stages}
    assert needs["convert"] == []
    assert needs["signals"][0] == "convert"
    assert set(needs["mix"]) >= {"convert", "signals", "tag-1", "tag-2"}
    assert needs["ragged"] == ["mix"]
    assert needs["report"] == ["mix"]


def test_maps_in_a_list_say_what_a_stage_reads_and_writes(tmp_path):
    text = (
        "stages:\n  - mix: {dataset: v0, ragged: [{to: a, tokenizer: t.json}, {to: b, tokenizer: t.json}]}\n"
        "  - report: {dataset: v0, to: r.html, tokens: [b]}\n"
    )
    mixed, report = read(tmp_path, text)
    assert [url.rpartition("/")[2] for url in mixed.writes] == ["a", "b"]
    assert report.needs(mixed)


def test_every_verb_can_be_a_stage_with_every_option_of_its_signature():
    for verb, entry in VERBS.items():
        takes = arguments_of(entry.load())
        assert any(argument.needed for argument in takes.values()), verb
        assert {"dry_run", "scheduler", "workers", "progress", "overwrite"} <= takes.keys()
        assert all(is_known(argument.hint) for argument in takes.values()), takes


def test_a_run_has_one_cluster(tmp_path):
    stage = "stages:\n  - tag: {dataset: corpus, taggers: [gopher_v2]%s}\n"
    assert "all stages have the same; put it under `defaults:`" in told(tmp_path, stage % ", cluster: slurm")
    (one,) = read(tmp_path, f"defaults: {{cluster: slurm}}\n{stage % ''}")
    assert one.arguments["cluster"] == "slurm"
    (two,) = read(tmp_path, f"defaults: {{cluster: slrum}}\n{stage % ''}")
    with pytest.raises(UsageError, match="unknown cluster profile 'slrum'"):
        check_stages("p.yaml", [two], [two])


def is_known(hint):
    """Tell whether values of this type can be read from YAML."""
    if get_origin(hint) in (Union, UnionType):
        return all(kind is NoneType or is_known(kind) for kind in get_args(hint))
    if get_origin(hint) is Sequence:
        return is_known(get_args(hint)[0])
    return get_origin(hint) is Literal or hint in (str, int, float, bool, dict[str, Any])


WRONG_STAGES = {
    "tga: {}": "line 2, column 5: 'tga' is no verb; did you mean 'tag'?",
    "run: {}": "'run' is no verb",
    "mix:": "mix needs `dataset`, which is missing.",
    "ragged": "ragged needs `dataset`, `to` and `tokenizer`, which are missing.",
    "mix: {dataset: a, to: b, prune: x}": "column 37: mix.prune: x; expected a whole number.",
    f"mix: {{dataset: a, to: b, prune: {'1' * 5000}}}": "1; expected a whole number.",
    "mix: {dataset: a, to: b, format: jsonl.g}": "mix.format: 'jsonl.g'; did you mean 'jsonl.gz'?",
    "mix: {dataset: a, to: b, dry_run: true}": "mix.dry_run: it belongs to the command",
    "mix: {dataset: a, on-bad-record: fail, on_bad_record: fail}": "mix.on_bad_record stands twice",
    "mix: [a]": "line 2, column 10: mix expects a map of its options",
    "mix: {dataset: a, to: [b]}": "line 2, column 27: mix.to: a list; expected a text.",
    "mix: {dataset: a}\n    tag: {}": "line 3, column 5: 'tag' stands in one item with 'mix'",
    "mix:\n    dataset: a": "line 3, column 5: 'dataset' is no verb; options of mix stand below it, indented by two",
    "name: x": "line 2, column 5: no verb; expected one of download, convert",
    "[a]": "expected a verb with its options",
    "mix: {dataset: '${x}', to: b}": "line 2, column 20: ${x} is not defined",
    "mix: {dataset: a}\nreport: {to: x.html}": "line 3, column 1: report needs `dataset`",
    "name: a\n    mix: {dataset: a}\n  - name: a\n    mix: {dataset: a}": "a second stage 'a'; first in line 3",
}

WRONG_FILES = {
    "stages: []": "line 1, column 1: `stages:` expects a list of verbs",
    "stages: {mix: {}}": "line 1, column 9: stages: a map; expected a list.",
    "variables: {}": "`stages:` expects a list of verbs",
    "[a]": "line 1, column 1: the file: a list; expected a map.",
    "stage:\n  - mix: {dataset: a}": "stage: there is no such key; did you mean 'stages'?",
    "mix: {dataset: a, to: b}": "line 1, column 1: put 'mix' below `stages:`, as `- mix:`.",
    "variables: [a]\nstages: [mix: {dataset: a}]": "line 1, column 12: variables: a list; expected a map.",
    "defaults: a\nstages: [mix: {dataset: a}]": "line 1, column 11: defaults: a; expected a map.",
}


@pytest.mark.parametrize(
    ("text", "message"),
    [*((f"stages:\n  - {stage}", message) for stage, message in WRONG_STAGES.items()), *WRONG_FILES.items()],
)
def test_what_is_wrong(tmp_path, text, message):
    assert message in told(tmp_path, f"{text}\n")


def test_only_what_all_stages_may_share_has_a_default(tmp_path):
    defaults = "defaults: {on_bad_record: x, where: y, only: z}\nstages:\n  - mix: {dataset: a, to: b}\n"
    shown = told(tmp_path, defaults)
    assert "defaults.on_bad_record: 'x'; expected one of fail, quarantine." in shown
    assert "line 1, column 30: defaults.where: there is no such key" in shown
    assert "defaults.only: there is no such key" in shown


def test_each_mistake_once(tmp_path):
    text = "stages:\n  - mix: {dataset: [a, b], prune: x, sede: 1}\n  - ragged: {dataset: }\n"
    assert [line.partition(": ")[2] for line in told(tmp_path, text).splitlines()[1:]] == [
        "mix.dataset: a list; expected a text.",
        "mix.prune: x; expected a whole number.",
        "mix.sede: there is no such key; did you mean 'seed'?",
        "ragged needs `to` and `tokenizer`, which are missing.",
        "ragged.dataset: nothing; expected a text.",
    ]


def test_stages_that_are_asked_for(tmp_path):
    stages = read(tmp_path, GOOD)
    names = lambda only=(), first=None: [stage.name for stage in selected(stages, only, first, "p.yaml")]  # noqa: E731
    assert len(names()) == 7
    assert names(["mix", "signals"]) == ["signals", "mix"]
    assert names(["tag"]) == ["signals", "tag-1", "tag-2"]
    assert names(["tag-2"]) == ["tag-2"]
    assert names(first="mix") == ["mix", "ragged", "report"]
    assert names(first="tag") == ["signals", "tag-1", "tag-2", "mix", "ragged", "report"]
    for only, first in ((["mxi"], None), ((), "rapport"), (["mix"], "mix")):
        with pytest.raises(UsageError):
            names(only, first)
