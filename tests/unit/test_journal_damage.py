"""Journals that are damaged or from elsewhere: no reader takes a wrong number, and none ends in an error that nobody foresaw."""

import json
import random
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import dolma_dask as dk
from dolma_dask.errors import DolmaDaskError
from dolma_dask.journal import Journal
from dolma_dask.testing.verb_laws import tree

from .verbs.conftest import document, write_lines

HERE: dict[str, Any] = {"scheduler": "synchronous", "progress": False}
RULE = "char_length_v1__length >= 0 and exact is None"
OTHERS = [None, 0, -1, 10**30, 1.5, 1e300, True, "", "../x", [], ["x"], [[1]], {}, {"a": 1}]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("made")
    for name in "ab":
        write_lines(root / f"v0/documents/{name}.jsonl.gz", [document(n) for n in range(5)])
    dataset = str(root / "v0")
    dk.tag(dataset, ["char_length_v1"], **HERE)
    dk.quantiles(dataset, ["char_length_v1__length"], level="regular", by="source", **HERE)
    dk.filter(dataset, thresholds=str(root / "v0/quantiles/quantiles.regular.json"), **HERE)
    dk.dedupe(dataset, **HERE)
    dk.mix(dataset, to=str(root / "v1"), where=RULE, downsample=90, unit="bytes", by="source", **HERE)
    return root


READERS: list[Callable[[], Any]] = [
    lambda: [str(dk.status(name)) for name in ("v0", "v1")],
    lambda: dk.tag("v0", ["char_length_v1"], **HERE),
    lambda: dk.quantiles("v0", ["quality__quality"], name="q", dry_run=True, **HERE),
    lambda: dk.quantiles("v0", ["char_length_v1__length"], level="regular", by="source", **HERE),
    lambda: dk.filter("v0", thresholds="v0/quantiles/quantiles.regular.json", **HERE),
    lambda: dk.dedupe("v0", dry_run=True, **HERE),
    lambda: dk.mix("v0", to="v1", where=RULE, downsample=90, unit="bytes", by="source", **HERE),
]


def places(value: Any, *at: Any) -> Iterator[tuple[Any, ...]]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inside in items:
        yield (*at, key)
        yield from places(inside, *at, key)


def mutated(line: bytes, draw: random.Random, *, sealed: bool) -> bytes:
    """Return a record with one value of another kind, or without it; not `sealed`, as another program would have written it."""
    record = json.loads(line)
    key = draw.choice([key for key in record if key not in ("format", "kind", "check")])
    *outer, last = draw.choice([at for at in places(record) if at[0] == key])
    here = record
    for name in outer:
        here = here[name]
    if draw.random() < 0.2:
        del here[last]
    else:
        here[last] = draw.choice([other for other in OTHERS if other != here[last]])
    if not sealed:
        del record["check"]
    return json.dumps(record, separators=(",", ":")).encode()


@pytest.mark.parametrize("sealed", [True, False])
def test_readers_of_mutated_records(
    sealed: bool, made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw = random.Random(f"7 {sealed}")
    for number in range(15):
        world = shutil.copytree(made, tmp_path / str(number))
        monkeypatch.chdir(world)
        segment = draw.choice(sorted(world.rglob("_journal/*/*.jsonl")))
        lines = segment.read_bytes().splitlines()
        at = draw.randrange(len(lines))
        lines[at] = mutated(lines[at], draw, sealed=sealed)
        segment.write_bytes(b"\n".join(lines) + b"\n")
        if sealed:
            journal = Journal(str(segment.parents[2]), segment.parent.name)
            assert sum(journal.garbage.values()) == 1, "what is not as it was sealed is not believed"
        for reader in draw.sample(READERS, 2):
            print(segment, lines[at])
            with suppress(DolmaDaskError):  # says what is wrong; nothing else may be raised
                reader()
        if sealed:  # what was made again is what was there
            expected, found = tree(made), tree(world)
            assert {path: found.get(path) for path in expected} == expected, lines[at]
