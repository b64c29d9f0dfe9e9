"""Every pass of a verb says how much it reads: a pass that does not is taken for one without work, and runs in one process."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import dolma_dask as dk
from dolma_dask import clusters

from .conftest import write_lines

HERE: dict[str, Any] = {"scheduler": "synchronous", "progress": False}

CALLS: dict[str, Callable[[str, str], Any]] = {
    "quantiles": lambda root, tokenizer: dk.quantiles(root, signals=["length"], **HERE),
    "mix": lambda root, tokenizer: dk.mix(root, to=f"{root}-1", shuffle=True, **HERE),
    "dedupe": lambda root, tokenizer: dk.dedupe(root, **HERE),
    "hdf5": lambda root, tokenizer: dk.hdf5(root, f"{root}-h5", tokenizer=tokenizer, **HERE),
}


@pytest.mark.parametrize("verb", CALLS)
def test_every_pass_says_how_much_it_reads(
    verb: str, tmp_path: Path, tokenizer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = [
        json.dumps({"id": str(row), "source": "s", "text": f"word {row % 7} " * row}) for row in range(90)
    ]
    for shard in range(3):
        write_lines(tmp_path / f"v0/documents/{shard}.jsonl.gz", lines[shard::3])
    root = str(tmp_path / "v0")
    dk.tag(root, ["char_length_v1"], **HERE)
    sizes: list[tuple[str, list[int]]] = []
    real = clusters.open_placement

    def recorded(scheduler: Any, workers: Any, tasks: list[int], **more: Any) -> Any:
        sizes.append((more["verb"], tasks))
        return real(scheduler, workers, tasks, **more)

    monkeypatch.setattr(clusters, "open_placement", recorded)
    CALLS[verb](root, tokenizer)
    assert len(sizes) >= 2
    assert not [name for name, tasks in sizes if not all(tasks)]
