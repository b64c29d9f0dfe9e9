"""A rehearsal of a pipeline on the first shards: everything that it writes goes elsewhere, so that nothing real is touched or mixed in.

On two shards ``corpus/v1`` becomes ``corpus/v1-rehearsal-2``, ``wiki.html`` becomes ``wiki-rehearsal-2.html``. Of raw files the first N are
read. A dataset that some stage writes beside (``tag``, ``dedupe``...) gets a twin of N shards first: links on a local disk, copies on a store.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from dolma_dask.dataset import open_dataset
from dolma_dask.formats import layout
from dolma_dask.io import files
from dolma_dask.io.publish import publish
from dolma_dask.pipelines.stages import StagePlan, absolute, is_in

_FILES = (".html", ".json", ".h5")

_ALL_SHARDS = 1 << 31
"""More than there are, for a trial of all that stages before it have made."""


def beside(url: str, count: int) -> str:
    """Return what stands for `url` in a rehearsal on so many shards."""
    ending = next((ending for ending in _FILES if url.endswith(ending)), "")
    return f"{layout.dataset_root(url.removesuffix(ending))}-rehearsal-{count}{ending}"


class Rehearsal:
    """A pipeline on the first `count` shards of what it reads."""

    def __init__(self, stages: Sequence[StagePlan], count: int) -> None:
        self.count = count
        self.moved: dict[str, str] = {}  # all that is written, and where it goes instead
        self.twins: dict[str, str] = {}  # datasets that have to be there before, and where
        self._changed = {root for stage in stages for root in stage.changes}
        self.stages = tuple(map(self._stage, stages))

    def _stage(self, stage: StagePlan) -> StagePlan:
        values: dict[str, Any] = {
            name: dict(value) if isinstance(value, Mapping) else value
            for name, value in stage.located.items()
        }
        for group in [values, *(value for value in values.values() if isinstance(value, dict))]:
            for name in (*stage.entry.reads, *stage.entry.files):
                if isinstance(group.get(name), str):
                    group[name] = self._read(group[name], name, values)
                elif isinstance(group.get(name), list):
                    group[name] = [self._read(url, name, values) for url in group[name]]
            if group.get("to"):
                old, group["to"] = group["to"], self.place(group["to"])
                self.moved[absolute(old)] = group["to"]
        name, where = stage.entry.read_where
        if file := values.get(name):
            values[name] = self.moved.get(absolute(file), file) if values.get(where) else self.place(file)
            self.moved[absolute(file)] = values[name]
        if any(stage.given(("list_file", *stage.entry.writes_with))):
            values["allow_unmatched"] = (
                True  # a list may have none of the documents of some shards, or of a sample
            )
        if stage.entry.name == "mix" and (values.get("budget") or values.get("tokens")):
            # some shards, or a sample, may have less than the budget: as a trial it takes what there is
            values["prune"] = values.get("prune", _ALL_SHARDS)
        return replace(stage, arguments=values)

    def _read(self, url: str, name: str, values: dict[str, Any]) -> str:
        """Return where a stage with some arguments reads what `url` names."""
        here = absolute(url)
        for old, new in self.moved.items():
            if is_in(here, old):
                return files.normalize(new) + here[len(old) :] if here != old else new
        return self.outside(url, name, values)

    def place(self, url: str) -> str:
        """Return where goes what would be written to `url`."""
        return beside(url, self.count)

    def outside(self, url: str, name: str, values: dict[str, Any]) -> str:
        """Return what stands for something that is read and that no stage has made."""
        here = absolute(url)
        is_dataset = name in ("dataset", "others") or (name == "inputs" and values.get("attributes"))
        if is_dataset and here in self._changed:
            self.twins[here] = self.moved[here] = beside(url, self.count)
            return self.moved[here]
        if name in ("dataset", "inputs"):
            values["prune"] = min(self.count, values.get("prune", self.count))
        return url

    def make_twins(self) -> None:
        """Make the twins: the first shards with their attributes, and their journals; what is there stays."""
        for root, target in self.twins.items():
            dataset = open_dataset(root).select(prune=self.count)
            stems = {layout.stem_of(shard.path) for shard in dataset.shards}
            paths = [layout.document_path(shard.path) for shard in dataset.shards]
            for folder in (*(f"{layout.ATTRIBUTES}/{name}" for name in dataset.attributes), layout.JOURNAL):
                files_there = [info.path for info in files.list_files(dataset.url(folder))]
                selected = [
                    path for path in files_there if folder == layout.JOURNAL or layout.stem_of(path) in stems
                ]
                paths += [f"{folder}/{path}" for path in selected]
            for path in paths:
                _link(files.join(root, path), files.join(files.normalize(target), path))


def _link(source: str, target: str) -> None:
    """Link a file, unless something is there; copy it on a store, and a journal, which is written to."""
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
