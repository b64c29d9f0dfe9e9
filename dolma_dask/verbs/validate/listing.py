"""Files that `validate` looks at: a sample of the shards, the attribute files of each, and the problems that names alone show.

Cost: one listing per attribute set, the journals of the dataset, and nothing read of any file.
"""

import math
from collections.abc import Iterator, Mapping, Sequence

import xxhash
from msgspec import Struct
from msgspec.structs import replace

from dolma_dask.dataset import Dataset, Shard
from dolma_dask.display import counted
from dolma_dask.errors import AlignmentError, MissingAttributesError, StaleAttributesError
from dolma_dask.formats import layout
from dolma_dask.formats.json.attributes import AttributeKind
from dolma_dask.journal import Record
from dolma_dask.reading.catalog import Catalog
from dolma_dask.verbs.validate.problems import Problems
from dolma_dask.verbs.validate.shard import ShardWork, Written


def sampled(dataset: Dataset, fraction: float | None, seed: int) -> Dataset:
    """Return the dataset with a share of its shards, at least one: those whose path has the smallest hash under `seed`."""
    if fraction is None:
        return dataset
    count = max(1, math.ceil(fraction * len(dataset.shards)))
    drawn = sorted(
        dataset.shards,
        key=lambda shard: (xxhash.xxh3_64_intdigest(f"{seed}:{shard.path}".encode()), shard.path),
    )
    kept = set(drawn[:count])
    return replace(dataset, shards=tuple(shard for shard in dataset.shards if shard in kept))


class CheckedFiles(Struct, frozen=True):
    """The files that are looked at."""

    works: tuple[ShardWork, ...]  # one per shard
    problems: Problems  # that the names show
    notes: tuple[str, ...]  # facts that are no problems


def list_work(dataset: Dataset, selected: Dataset, names: Sequence[str], keep: int) -> CheckedFiles:
    """Find the attribute files of the selected shards, and what is wrong with their names; keep `keep` problems of each kind."""
    catalog = Catalog(dataset)
    problems, notes = Problems(keep), list(_gone(dataset, catalog))
    for name in names:
        notes += _look_for_orphans(catalog, name, problems)
    works = [_work(catalog, shard, names, problems) for shard in selected.shards]
    for name in names:
        _check_of_one_run(catalog, name, works, problems)
    return CheckedFiles(tuple(works), problems, tuple(notes))


def _work(catalog: Catalog, shard: Shard, names: Sequence[str], problems: Problems) -> ShardWork:
    """Return a shard with its attribute files; none of a set, or two, are a problem."""
    sources = []
    for name in names:
        try:
            sources.append(catalog.source(name, catalog.file_of(name, shard)))
        except AlignmentError as error:
            is_missing = isinstance(error, MissingAttributesError)
            kind = "missing_attributes" if is_missing else "two_attribute_files"
            path = layout.attribute_path(name, shard.path)
            problems.add(kind, path, str(error).replace(f"{catalog.dataset.root}/", "").rstrip("."))
    written = {}
    for path in (layout.document_path(shard.path), *(source.info.path for source in sources)):
        if path in catalog.written:
            verb, record = catalog.written[path]
            file = next(file for file in record.files if file.path == path)
            written[path] = Written(verb, file.bytes, file.checksum)
    return ShardWork(shard, tuple(sources), written)


def _check_of_one_run(catalog: Catalog, name: str, works: Sequence[ShardWork], problems: Problems) -> None:
    """Add a problem if a set whose rows depend on all shards was not made by one run."""
    found = {work.shard.path: source.info for work in works for source in work.sources if source.name == name}
    try:
        catalog.check_dataset_wide(name, found)
    except AlignmentError as error:
        kind = "stale" if isinstance(error, StaleAttributesError) else "two_runs"
        shard = str(error.details.get("shard", ""))
        problems.add(kind, found[shard if shard in found else min(found)].path, str(error).rstrip("."))


def _look_for_orphans(catalog: Catalog, name: str, problems: Problems) -> Iterator[str]:
    """Add the attribute files of a set that belong to no shard, with what removes them; return notes on files that are none."""
    dataset = catalog.dataset
    listed = catalog.listed(name)
    own = {shard.path for shard in dataset.shards}
    strange = [path for path in listed if path not in own]
    shards = dataset.shards if strange else ()
    taken = {path for shard in shards for path in layout.attribute_candidates(shard.path)}
    for path in strange:
        if path not in taken and layout.suffix_of(path):
            at = f"{layout.ATTRIBUTES}/{name}/{path}"
            verb, _ = catalog.written.get(at, ("", None))
            remedy = (
                f"the same {verb} with --overwrite removes it" if verb else "in no journal, remove it by hand"
            )
            found = f"no document file {layout.document_path(layout.stem_of(path))}.*; {remedy}"
            problems.add("orphan_attributes", at, found)
    others = [path for path in strange if not layout.suffix_of(path)]
    if others:
        yield (
            f"{counted(len(others), 'file')} below attributes/{name}/ left out, because the suffix is not one of attributes; "
            f"first {others[0]}"
        )


def _gone(dataset: Dataset, catalog: Catalog) -> Iterator[str]:
    """Return notes on document files that a journal names and that are not there."""
    there = {layout.document_path(shard.path) for shard in dataset.shards}
    gone = sorted(
        path for path in catalog.written if path.startswith(f"{layout.DOCUMENTS}/") and path not in there
    )
    if gone:
        yield f"{counted(len(gone), 'document file')} that a journal speaks of are not there, first {gone[0]}"


def disagreements(shards: Sequence[Record], paths: Mapping[tuple[str, str], str], problems: Problems) -> None:
    """Add the keys that are of one kind in a file and of another in an earlier file of the set; `paths` are those of the attribute files by shard and set."""
    seen: dict[tuple[str, str], tuple[AttributeKind, str]] = {}
    last: dict[str, dict[str, AttributeKind]] = {}
    for record in shards:
        for name, kinds in record.info["kinds"].items():
            if kinds == last.get(name):
                continue
            last[name] = kinds
            path = paths.get((record.shard, name), name)
            for key, kind in kinds.items():
                first, where = seen.setdefault((name, key), (kind, path))
                if kind != first and {kind, first} != {"document", "spans"}:
                    problems.add("schema", path, f"key {key!r} is {kind}", expected=f"{first}, as in {where}")
