"""A rehearsal of a pipeline on the first shards: everything it writes goes to places of its own, so nothing real is touched or mixed in.

On two shards ``corpus/v1`` becomes ``corpus/v1-rehearsal-2``, ``wiki.html`` becomes ``wiki-rehearsal-2.html``: a rehearsal on more has other places. Raw files are read where they are, the first N of
them. A dataset that some stage writes beside (``tag``, ``dedupe``...) gets a twin of N shards first: links on a local disk, copies on a store.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from dolma_dask.config.stages import StagePlan, full, is_in
from dolma_dask.dataset import Dataset, open_dataset
from dolma_dask.display import counted
from dolma_dask.formats import layout
from dolma_dask.io import files
from dolma_dask.io.publish import publish

SUFFIX = "-rehearsal"
_FILES = (".html", ".json", ".h5")


@dataclass(frozen=True)
class Rehearsal:
    """A pipeline in its other places.

    Attributes
    ----------
    stages : tuple of StagePlan
        With the arguments that they get.
    datasets : tuple of (str, str)
        Datasets that need a twin, and where it goes.
    notes : tuple of str
        What a person should know.
    """

    stages: tuple[StagePlan, ...]
    datasets: tuple[tuple[str, str], ...]
    notes: tuple[str, ...]


def beside(url: str, count: int) -> str:
    """Return the place that stands for `url` in a rehearsal on so many shards."""
    ending = next((ending for ending in _FILES if url.endswith(ending)), "")
    return f"{layout.dataset_root(url.removesuffix(ending))}{SUFFIX}-{count}{ending}"


def rehearsed(stages: Sequence[StagePlan], count: int) -> Rehearsal:
    """Return a pipeline as a rehearsal on the first `count` shards."""
    mover = _Mover(count, frozenset(full(str(s.arguments["dataset"])) for s in stages if s.is_beside))
    moved = tuple(map(mover.stage, stages))
    places = sorted(set(mover.made.values()))
    note = f"a rehearsal on {counted(count, 'shard')} of what is read: it wrote to {', '.join(places)}; remove them when you like"
    return Rehearsal(moved, tuple(mover.twins.items()), (note,))


class _Mover:
    """Moves stage after stage; knows which places have been moved."""

    def __init__(self, count: int, changed: frozenset[str]) -> None:
        self.count = count
        self.changed = changed
        self.made: dict[str, str] = {}
        self.twins: dict[str, str] = {}

    def stage(self, stage: StagePlan) -> StagePlan:
        """Return a stage in its other places."""
        values: dict[str, Any] = {
            name: dict(value) if isinstance(value, Mapping) else value
            for name, value in stage.arguments.items()
        }
        for group in [values, *(value for value in values.values() if isinstance(value, dict))]:
            self._move(group, stage, values)
        return replace(stage, arguments=values)

    def _move(self, group: dict[str, Any], stage: StagePlan, values: dict[str, Any]) -> None:
        """Move the places that some arguments name: those of a stage, or of token files that a mix makes too."""
        for name in (*stage.entry.reads, *stage.entry.files):
            if name in group:
                group[name] = self._each(group[name], name, stage, values)
        if group.get("to"):
            old = str(group["to"])
            group["to"] = self.made[full(old)] = beside(old, self.count)

    def _each(self, value: Any, name: str, stage: StagePlan, values: dict[str, Any]) -> Any:
        if isinstance(value, str):
            return self._input(value, name, stage, values)
        return (
            [self._input(item, name, stage, values) for item in value] if isinstance(value, list) else value
        )

    def _input(self, url: str, name: str, stage: StagePlan, values: dict[str, Any]) -> str:
        place = full(url)
        for old, new in self.made.items():
            if is_in(place, old):
                return files.normalize(new) + place[len(old) :] if place != old else new
        is_dataset = name == "dataset" or (name == "inputs" and stage.arguments.get("attributes"))
        if is_dataset and place in self.changed:
            self.twins[place] = self.made[place] = beside(url, self.count)
            return self.made[place]
        if name in ("dataset", "inputs"):
            values["prune"] = min(self.count, values.get("prune", self.count))
        return url


def link_datasets(datasets: Sequence[tuple[str, str]], count: int) -> None:
    """Make the twins of some datasets: their first `count` shards with attributes, and their journals."""
    for root, target in datasets:
        found = open_dataset(root).select(prune=count)
        for path in _files_of(found):
            _place(files.join(root, path), files.join(files.normalize(target), path))


def _files_of(dataset: Dataset) -> list[str]:
    stems = {layout.stem_of(shard.path) for shard in dataset.shards}
    paths = [layout.document_path(shard.path) for shard in dataset.shards]
    for name in dataset.attributes:
        folder = f"{layout.ATTRIBUTES}/{name}"
        listed = files.list_files(dataset.url(folder))
        paths += [f"{folder}/{info.path}" for info in listed if layout.stem_of(info.path) in stems]
    return paths + [f"{layout.JOURNAL}/{info.path}" for info in files.list_files(dataset.url(layout.JOURNAL))]


def _place(source: str, target: str) -> None:
    """Put a file where the rehearsal reads it, unless something is there."""
    if files.stat(target) is not None:
        return
    is_journal = f"/{layout.JOURNAL}/" in target
    if files.is_local(source) and files.is_local(target) and not is_journal:
        path = files.local_path(target)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.symlink_to(files.local_path(source))
        return
    with files.open_read(source) as data, publish(target) as out:
        while piece := data.read(files.READ_BYTES):
            out.write(piece)
