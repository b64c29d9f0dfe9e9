"""What a pipeline reads that no stage of it has made, and the pipeline on samples of that: all that it writes goes to a folder of its own."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from dolma_dask.dataset import Dataset, open_dataset, shard_info
from dolma_dask.errors import UsageError
from dolma_dask.formats import layout
from dolma_dask.io import files
from dolma_dask.io.files import FileInfo
from dolma_dask.journal import Record
from dolma_dask.pipelines.rehearsal import Rehearsal
from dolma_dask.pipelines.stages import StagePlan, absolute
from dolma_dask.reading.catalog import Catalog
from dolma_dask.sources.mapping import is_sibling
from dolma_dask.sources.naming import list_raw

_SAMPLED = ("dataset", "others", "inputs", "against")
"""Options whose datasets and raw files are sampled; others (tables, artifacts, tokens) are read as they are."""


@dataclass
class Entry:
    """Raw files or a dataset that the pipeline reads, and that no stage has made."""

    url: str  # as it stands in the file, `located`
    number: int
    is_dataset: bool
    mapping: str = "dolma"  # of raw files
    stages: list[str] = field(default_factory=list)  # that read it, or what was made of it

    @cached_property
    def dataset(self) -> Dataset:
        """The dataset; only where it is one."""
        return open_dataset(self.url)

    @cached_property
    def _raw(self) -> tuple[str, list[FileInfo]]:
        return list_raw([self.url])

    @property
    def root(self) -> str:
        """The folder that paths of `files` are relative to."""
        return self.dataset.root if self.is_dataset else self._raw[0]

    @cached_property
    def files(self) -> list[FileInfo]:
        """Its document files or raw files, in the order of the listing."""
        if self.is_dataset:
            return list(map(shard_info, self.dataset.shards))
        return [info for info in self._raw[1] if not is_sibling(self.mapping, info.path)]

    @cached_property
    def attribute_files(self) -> dict[str, dict[str, str]]:
        """For each attribute set, its files relative to the dataset, by stem."""
        found: dict[str, dict[str, str]] = {}
        for name in self.dataset.attributes:
            folder = f"{layout.ATTRIBUTES}/{name}"
            paths = [info.path for info in files.list_files(self.dataset.url(folder))]
            found[name] = {layout.stem_of(path): f"{folder}/{path}" for path in paths}
        return found

    @cached_property
    def made_by(self) -> dict[str, tuple[str, Record]]:
        """The verb that made each file of the dataset, and its record."""
        return Catalog(self.dataset).written

    @property
    def bytes(self) -> int:
        """Stored bytes."""
        return sum(info.bytes for info in self.files)


class Moved(Rehearsal):
    """A pipeline that reads ``<folder>/in/<number>`` in place of each entry, and writes below ``<folder>/out``."""

    def __init__(self, stages: Sequence[StagePlan], folder: str) -> None:
        self._folder = folder
        self.entries: dict[str, Entry] = {}
        self._now = ""
        super().__init__(stages, 1)

    def _stage(self, stage: StagePlan) -> StagePlan:
        self._now = stage.name
        return super()._stage(stage)

    def place(self, url: str) -> str:
        """Return a folder or file below ``out``, named as the real one; the same for all stages that write there."""
        if known := self.moved.get(absolute(url)):
            return known
        name = re.sub(r"[^\w.-]+", "_", url.rstrip("/").rpartition("/")[2]) or "out"
        return f"{self._folder}/out/{len(self.moved):03d}/{name}"

    def outside(self, url: str, name: str, values: dict[str, Any]) -> str:
        """Return the sample of an entry."""
        if name not in _SAMPLED:
            return url
        is_dataset = name != "inputs" or bool(values.get("attributes"))
        here = absolute(url) if is_dataset else files.normalize(url)
        known = self.entries.get(here)
        if known is None:
            number = len(self.entries)
            mapping = str(values.get("mapping", "dolma"))
            known = self.entries[here] = Entry(here if is_dataset else url, number, is_dataset, mapping)
        known.stages.append(self._now)
        return f"{self._folder}/in/{known.number}"


def trace_entries(stages: Sequence[StagePlan], entries: Mapping[str, Entry]) -> dict[str, list[Entry]]:
    """Return the entries that each stage reads, by itself or through stages before it."""
    reached: dict[str, list[Entry]] = {}
    for at, stage in enumerate(stages):
        before = [reached[other.name] for other in stages[:at] if stage.needs(other)]
        own = [entry for entry in entries.values() if stage.name in entry.stages]
        found = [*own, *(entry for group in before for entry in group)]
        reached[stage.name] = list({entry.number: entry for entry in found}.values())
    return reached


def check_there(entries: Mapping[str, Entry], file: str) -> None:
    """Refuse a pipeline with nothing to sample.

    Raises `UsageError`: it reads nothing from outside, or something holds no files.
    """
    if not entries:
        raise UsageError(
            f"{file}: no stage reads anything that is there already; expected raw files or a dataset to draw a sample from."
        )
    for entry in entries.values():
        if not entry.bytes:
            raise UsageError(f"{entry.url} holds no bytes; expected documents to draw a sample from.")
