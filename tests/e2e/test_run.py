"""Pipelines on a real cluster: the same bytes as the verbs one by one, one cluster for all stages, killed and gone on with."""

import random

import pytest
from small_world import BOOKS, RULE, TAGGERS, Verbs, run_here

from dolma_dask import clusters
from dolma_dask.pipelines.pipeline import run
from dolma_dask.testing.commands import Command, held, held_at
from dolma_dask.testing.disturbance import RELEASED
from dolma_dask.testing.verb_laws import leftovers, tree

pytestmark = pytest.mark.e2e

PIPELINE = f"""\
variables:
  world:
stages:
  - convert:
      inputs: ${{world}}/raw
      to: ${{world}}/converted
      id: key
      text: body
      source: web
      shard_bytes: 24000
  - tag:
      dataset: ${{world}}/untagged
      taggers: [{", ".join(TAGGERS)}]
  - validate: {{dataset: "${{world}}/v0", attributes: []}}
  - dedupe: {{dataset: "${{world}}/v0"}}
  - mix:
      dataset: ${{world}}/v0
      to: ${{world}}/v1
      where: {RULE}
  - ragged:
      dataset: ${{world}}/v0
      to: ${{world}}/tokens
      tokenizer: ${{world}}/tokenizer.json
      eos: <|endoftext|>
      where: {BOOKS}
  - mix:
      dataset: ${{world}}/v0
      to: ${{world}}/mixed/v1
      dropped: ${{world}}/mixed/dropped
      dropped_documents: true
      ragged: {{to: "${{world}}/mixed/tokens", tokenizer: "${{world}}/tokenizer.json"}}
      hdf5:
        to: ${{world}}/mixed/rows
        tokenizer: ${{world}}/tokenizer.json
        max_seq_length: 64
        max_rows_per_file: 120
      where: {BOOKS}
"""

NAMES = ("convert", "tag", "mix", "ragged", "mix to tokens")


@pytest.fixture
def words(world, tmp_path):
    """The command over a world of one's own."""
    (tmp_path / "p.yaml").write_text(PIPELINE)
    return ["run", str(tmp_path / "p.yaml"), "--set", f"world={world}", "--workers", "2"]


def check(world, expected):
    for name in NAMES:
        assert tree(world, Verbs.cases[name].writes) == expected[name], name
    assert leftovers(world) == []


def test_one_cluster_and_the_bytes_of_the_verbs_one_by_one(words, world, expected, monkeypatch):
    started = []
    start = clusters.local._start_local

    def counted(workers, **options):
        started.append(workers)
        return start(workers, **options)

    monkeypatch.setattr(clusters.local, "_start_local", counted)
    summary = run(words[1], variables={"world": str(world)}, scheduler="cluster", progress=False)
    assert summary.exit_status == 0
    assert len(started) == 1, "of validate and dedupe too"
    check(world, expected)
    again = run(words[1], variables={"world": str(world)}, scheduler="cluster", progress=False)
    assert {stage.state for stage in again.stages} == {"done before"}
    assert len(started) == 1, "no cluster where nothing is left to do"


@pytest.mark.parametrize("moment", [1])
def test_killed_and_gone_on_with(moment, words, world, expected, tmp_path):
    draw = random.Random(f"20 {moment}")
    (tmp_path / "marks").mkdir()
    at = held_at(draw.randrange(10, 80), tmp_path / "marks", world)
    with Command(words, tmp_path / "log", prepared=True, **at) as command:
        held(command, tmp_path / "marks", world)
        command.kill(group=draw.random() < 0.5)
        command.wait_for_family()
    with Command(words, tmp_path / "log", prepared=True) as command:
        assert command.wait() == 0, command.output
        command.wait_for_family()
    check(world, expected)


def test_ctrl_c_and_gone_on_with(words, world, expected, tmp_path):
    marks = tmp_path / "marks"
    marks.mkdir()
    with Command(words, tmp_path / "log", prepared=True, **held_at(40, marks, world)) as command:
        held(command, marks, world)
        command.interrupt(group=True)
        (marks / RELEASED).mkdir()
        assert command.wait() == 130, command.output
        command.wait_for_family()
    assert "InterruptedStageError" in command.output
    assert "not reached" in command.output
    assert "Traceback" not in command.output
    assert run_here(words) == 0
    check(world, expected)
