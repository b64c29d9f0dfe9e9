"""Thresholds of a level as `quantiles` writes them beside the quantiles of a dataset."""

from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from dolma_dask.engine import Task
from dolma_dask.io import files
from dolma_dask.io.publish import publish
from dolma_dask.io.records import FileRecord, InputRecord
from dolma_dask.journal import Journal, Record
from dolma_dask.reading.thresholds import QUANTILES, is_outdated, level_words, read_table, thresholds_path
from dolma_dask.rules.strictness import LEVELS, MIXED, Strictness
from dolma_dask.rules.tails import Tail
from dolma_dask.rules.thresholds import By, Kind, NullPolicy, thresholds_of


def remove_outdated(root: str, name: str) -> list[str]:
    """Remove the thresholds that `quantiles` wrote from other quantiles of that name than there are now; return a note for each."""
    known = Journal(root, QUANTILES).records
    notes = []
    for level in (*LEVELS, MIXED):
        record = known.get(thresholds_path(name, level))
        if record is not None and is_outdated(root, record):
            files.remove(files.join(root, record.unit))
            notes.append(
                f"{record.unit} removed: it was made of the quantiles that are replaced; --level {level_words(level)} makes it again"
            )
    return notes


@dataclass(frozen=True)
class ThresholdStage:
    """Writes the thresholds of a level from the quantiles of a dataset."""

    root: str  # of the dataset
    level: Strictness
    by: By  # column of the groups
    kind: Kind  # type of that column
    tails: Mapping[str, Tail]  # ends of each signal that are cut
    nulls: NullPolicy
    verb: str = QUANTILES

    def run_shard(self, task: Task) -> list[Record]:
        """Write the thresholds; see `dolma_dask.engine.Stage`."""
        unit, (source,) = task.units[0], task.inputs
        found = thresholds_of(
            read_table(source.url), str(self.level), self.by, self.kind, self.tails, self.nulls
        )
        with publish(files.join(self.root, unit.name)) as out:
            out.write(msgspec.json.format(msgspec.json.encode(found.to_json())) + b"\n")
        read = InputRecord(source.info.path, source.info.bytes, source.info.stamp, files.checksum(source.url))
        return [task.record([FileRecord(unit.name, out.bytes, out.checksum)], [read])]
