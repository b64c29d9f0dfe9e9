"""Files that `validate` looks at: a sample of the shards, the attribute files of each, and the problems that names alone show.

Cost: one listing per attribute set, the journals of the dataset, and nothing read of any file.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import xxhash

from dolma_dask.dataset import Dataset, Shard
from dolma_dask.display import counted
from dolma_dask.errors import AlignmentError, MissingAttributesError, StaleAttributesError, UsageError
from dolma_dask.formats import layout
from dolma_dask.formats.json.attributes import AttributeKind
from dolma_dask.io import files
from dolma_dask.io.files import FileInfo
from dolma_dask.io.records import FileRecord
from dolma_dask.journal import Record, journals
from dolma_dask.reading import AttributeSource, Catalog
from dolma_dask.verbs.validate.problems import KINDS, WHOLE_FILE, Problem, Problems
from dolma_dask.verbs.validate.shard import ShardWork, Written


def sampled(dataset: Dataset, fraction: float | None, seed: int) -> Dataset:
    """Return the dataset with a share of its shards, at least one: those whose path has the smallest hash under `seed`."""
    if isinstance(seed, bool) or not isinstance(seed, int):
        raise UsageError(f"seed={seed!r}; expected a whole number.")
    if fraction is None:
        return dataset
    if isinstance(fraction, bool) or not isinstance(fraction, int | float) or not 0 < fraction <= 1:
        raise UsageError(
            f"sample={fraction!r}; expected a share of the files above 0 and at most 1, such as 0.01."
        )
    count = max(1, math.ceil(fraction * len(dataset.shards)))
    drawn = sorted(
        dataset.shards,
        key=lambda shard: (xxhash.xxh3_64_intdigest(f"{seed}:{shard.path}".encode()), shard.path),
    )
    kept = set(drawn[:count])
    return replace(dataset, shards=tuple(shard for shard in dataset.shards if shard in kept))


@dataclass(frozen=True)
class Listing:
    """The files that are looked at."""

    works: tuple[ShardWork, ...]  # one per shard
    problems: Problems  # that the names show
    notes: tuple[str, ...]  # facts that are no problems


def list_work(dataset: Dataset, selected: Dataset, names: Sequence[str], keep: int) -> Listing:
    """Find the attribute files of the selected shards, and what is wrong with their names; keep `keep` problems of each kind."""
    known = _Known.of(dataset.root)
    problems, notes = Problems(keep), list(_gone(dataset, known))
    for name in names:
        notes += _look_for_orphans(dataset, name, problems)
    catalog = Catalog(dataset)
    proofs = catalog.open(()).proofs
    works = []
    for shard in selected.shards:
        sources = []
        for name in names:
            info = _file_of(catalog, name, shard, problems)
            if info is not None:
                kinds = known.kinds_of(info)
                sources.append(
                    AttributeSource(name, info, kinds, proofs.get(info.path), known.makers.get(name))
                )
        paths = (layout.document_path(shard.path), *(source.info.path for source in sources))
        works.append(
            ShardWork(
                shard, tuple(sources), {path: known.written[path] for path in paths if path in known.written}
            )
        )
    for name in names:
        _check_of_one_run(catalog, name, works, problems)
    return Listing(tuple(works), problems, tuple(notes))


def _file_of(catalog: Catalog, name: str, shard: Shard, problems: Problems) -> FileInfo | None:
    """Return the file of a set for a shard; none, or two, are a problem."""
    try:
        return catalog.file_of(name, shard)
    except MissingAttributesError as error:
        kind, path = "missing_attributes", layout.attribute_path(name, shard.path)
        found = str(error)
    except AlignmentError as error:
        kind, path = "two_attribute_files", layout.attribute_path(name, shard.path)
        found = str(error)
    problems.add(
        kind,
        Problem(path, WHOLE_FILE, found.replace(f"{catalog.dataset.root}/", "").rstrip("."), KINDS[kind]),
    )
    return None


def _check_of_one_run(catalog: Catalog, name: str, works: Sequence[ShardWork], problems: Problems) -> None:
    """Add a problem if a set whose rows depend on all shards was not made by one run."""
    found = {work.shard.path: source.info for work in works for source in work.sources if source.name == name}
    try:
        catalog.check_dataset_wide(name, found)
    except AlignmentError as error:
        kind = "stale" if isinstance(error, StaleAttributesError) else "two_runs"
        path = found[str(error.details["shard"])].path
        problems.add(kind, Problem(path, WHOLE_FILE, str(error).rstrip("."), KINDS[kind]))


def _look_for_orphans(dataset: Dataset, name: str, problems: Problems) -> Iterator[str]:
    """Add the attribute files of a set that belong to no shard; return notes on files that are none."""
    taken = {path for shard in dataset.shards for path in layout.attribute_candidates(shard.path)}
    listed = [info.path for info in files.list_files(dataset.url(f"{layout.ATTRIBUTES}/{name}"))]
    for path in listed:
        if path not in taken and layout.suffix_of(path):
            found = f"no document file {layout.document_path(layout.stem_of(path))}.*"
            problem = Problem(
                f"{layout.ATTRIBUTES}/{name}/{path}", WHOLE_FILE, found, KINDS["orphan_attributes"]
            )
            problems.add("orphan_attributes", problem)
    others = [path for path in listed if not layout.suffix_of(path)]
    if others:
        yield (
            f"{counted(len(others), 'file')} below attributes/{name}/ left out, because the suffix is not one of attributes; "
            f"first {others[0]}"
        )


def _gone(dataset: Dataset, known: "_Known") -> Iterator[str]:
    """Return notes on document files that a journal names and that are not there."""
    there = {layout.document_path(shard.path) for shard in dataset.shards}
    gone = sorted(
        path for path in known.written if path.startswith(f"{layout.DOCUMENTS}/") and path not in there
    )
    if gone:
        yield f"{counted(len(gone), 'document file')} that a journal speaks of are not there, first {gone[0]}"


@dataclass
class _Known:
    """Facts from the journals of a dataset about its files, by the newest record of each."""

    written: dict[str, Written] = field(default_factory=dict)
    makers: dict[str, str] = field(default_factory=dict)
    _records: dict[str, tuple[str, Record]] = field(default_factory=dict)
    _made: dict[str, float] = field(default_factory=dict)

    @classmethod
    def of(cls, root: str) -> "_Known":
        known = cls()
        for journal in journals(root):
            for record in journal.records.values():
                for file in record.files:
                    known._take(journal.verb, record, file)
        return known

    def _take(self, verb: str, record: Record, file: FileRecord) -> None:
        if file.path in self._records and self._records[file.path][1].finished > record.finished:
            return
        self._records[file.path] = (verb, record)
        self.written[file.path] = Written(verb, file.bytes, file.checksum)
        folder, _, rest = file.path.partition("/")
        name = rest.partition("/")[0]
        if folder == layout.ATTRIBUTES and self._made.get(name, 0.0) <= record.finished:
            self.makers[name], self._made[name] = verb, record.finished

    def kinds_of(self, info: FileInfo) -> Mapping[str, AttributeKind]:
        """Return the kinds of a file's keys if a record can be about the file as it is; else the file itself has to tell."""
        written = self.written.get(info.path)
        if written is None or written.bytes != info.bytes:
            return {}
        kinds: Mapping[str, AttributeKind] = self._records[info.path][1].info.get("kinds", {})
        return kinds


def disagreements(shards: Sequence[Record], paths: Mapping[tuple[str, str], str], problems: Problems) -> None:
    """Add the keys that are of one kind in a file and of another in an earlier file of the set; `paths` are those of the attribute files by shard and set."""
    seen: dict[tuple[str, str], tuple[AttributeKind, str]] = {}
    for record in shards:
        for name, kinds in record.info["kinds"].items():
            path = paths.get((record.shard, name), name)
            for key, kind in kinds.items():
                first, where = seen.setdefault((name, key), (kind, path))
                if kind != first and {kind, first} != {"document", "spans"}:
                    problem = Problem(path, WHOLE_FILE, f"key {key!r} is {kind}", f"{first}, as in {where}")
                    problems.add("schema", problem)
