"""Flags that depend on all shards: stale ones are refused, and those of a killed run never drop every copy."""

import gzip
import json
import random
from pathlib import Path

import pytest
from small_world import Verbs, run_here, store

import dolma_dask as dk
from dolma_dask.testing.commands import Command, killed_at

pytestmark = pytest.mark.e2e


def change_a_copy(world: Path) -> None:
    """Give one document of the last shard another text."""
    path = world / "v0/documents/zzz.jsonl.gz"
    lines = gzip.decompress(path.read_bytes()).splitlines(keepends=True)
    store(
        path, [json.dumps(dict(json.loads(lines[0]), text="quite another text")).encode() + b"\n", *lines[1:]]
    )


def test_stale_marks_are_refused_and_named(done, capsys):
    change_a_copy(done)
    assert run_here(["mix", f"{done}/v0", "--to", f"{done}/v9", "--where", "exact is None"]) == 1
    shown = capsys.readouterr().err
    assert "StaleAttributesError" in shown
    assert "dolma-dask dedupe" in shown
    assert run_here(["validate", f"{done}/v0"]) == 1
    assert "stale" in capsys.readouterr().out


def texts_of(folder: Path) -> list[str]:
    """Return the texts of all documents below a folder of .jsonl.gz, .jsonl.zst, .json.gz and .jsonl, sorted."""
    df = dk.read_dataframe(str(folder), ["text"])
    return sorted(df["text"].compute(scheduler="synchronous"))


def test_marks_of_a_killed_run_never_drop_every_copy(done, tmp_path, capsys):
    """Its files are renamed before the journal speaks of them: mix must refuse such a mixture, or keep each text once."""
    every = sorted(set(texts_of(done / "v0")))
    draw = random.Random("marks")
    refused = killed = 0
    for number in range(6):
        keep = ("first", "longest")[number % 2]
        words = ["dedupe", f"{done}/v0", "--keep", keep, "--scheduler", "synchronous", "--overwrite"]
        moment = killed_at(draw.randrange(2, 28), "attributes/exact")
        with Command(words, tmp_path / "log", prepared=True, **moment) as command:
            killed += command.wait() == -9
        to = tmp_path / f"mixed-{number}"
        if run_here(["mix", f"{done}/v0", "--to", str(to), "--where", "exact is None"]) == 0:
            assert texts_of(to) == every
        else:
            refused += 1
            assert "dolma-dask dedupe" in capsys.readouterr().err
    assert killed
    assert refused
    assert run_here(Verbs.cases["dedupe"].command(done)) == 0
    assert run_here(["mix", f"{done}/v0", "--to", str(tmp_path / "last"), "--where", "exact is None"]) == 0
    assert texts_of(tmp_path / "last") == every
