"""Document files that `convert` makes: as many as its own plan says, which is a function of the listing alone."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dolma_dask.errors import DolmaDaskError
from dolma_dask.pipelines.estimate.entries import Entry
from dolma_dask.pipelines.estimate.sample import PARTS, Scan
from dolma_dask.pipelines.estimate.trials import Trial
from dolma_dask.pipelines.stages import StagePlan


@dataclass(frozen=True)
class Made:
    """Document files that are made of an entry: in each sample, and of all of it."""

    sampled: Mapping[str, int]
    files: int


def count_shards(stage: StagePlan, scans: Sequence[Scan]) -> int:
    """Return the number of document files that a `convert` will make of some entries."""
    given = sum(len(one.entry.files) for one in scans)
    try:
        planned = stage.call(dry_run=True, progress=False)
    except (DolmaDaskError, OSError):  # what is in its way is said by the run
        return given
    count = len(planned.planned) + planned.skipped
    most = stage.arguments.get("shard_bytes")
    if most and not stage.arguments.get("combine"):  # large files are cut while they are read
        count = max(count, math.ceil(sum(one.bytes for one in scans) / most))
    return int(count)


def shards_made(
    stages: Sequence[StagePlan],
    entries: Mapping[str, Entry],
    scans: Mapping[int, Scan],
    trials: Mapping[str, Mapping[str, Trial]],
) -> dict[int, Made]:
    """Return what `convert` makes of entries, by number; where it reads several, all counts for the first of them."""
    found: dict[int, Made] = {}
    for stage in stages:
        mine = [entry.number for entry in entries.values() if stage.name in entry.stages[:1]]
        if stage.verb == "convert" and mine and not stage.arguments.get("attributes"):
            found.update(dict.fromkeys(mine, Made(dict.fromkeys(PARTS, 0), 0)))
            counts = {name: trials[name][stage.name].files for name in PARTS}
            found[mine[0]] = Made(counts, count_shards(stage, [scans[number] for number in mine]))
    return found
