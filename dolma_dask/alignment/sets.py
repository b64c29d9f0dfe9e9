"""Which attribute files belong to the shards of a dataset, which keys they have, and what the journal says of them.

Cost: one listing per attribute set, the journals of the dataset, and the first rows of each file that no journal knows.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dolma_dask.dataset import Dataset, Shard, shard_info
from dolma_dask.errors import AlignmentError, MissingAttributesError, SchemaError, UsageError
from dolma_dask.formats import layout
from dolma_dask.formats.json_attributes import AttributeKind
from dolma_dask.io import files
from dolma_dask.io.attributes import sample_file
from dolma_dask.io.files import FileInfo
from dolma_dask.journal import Record, journals

_DOCUMENT_FIELDS = {"id", "source", "added", "created", "metadata"}
"""What a tagger may read without depending on the text."""


@dataclass(frozen=True)
class Proof:
    """What the journal says of an attribute file.

    Attributes
    ----------
    checksum : str
        Of the attribute file's stored bytes; if the file has others, the record is not about it.
    rows : int
        Rows of its documents.
    ids_digest, content_digest : str
        Of its documents, when the attributes were made.
    reads_text : bool
        Whether the attributes depend on the text.
    verb : str
        What made it.
    """

    checksum: str
    rows: int
    ids_digest: str
    content_digest: str
    reads_text: bool
    verb: str


@dataclass(frozen=True)
class AttributeSource:
    """One attribute file of one shard, ready to be read in a worker.

    Attributes
    ----------
    name : str
        Attribute set.
    info : FileInfo
        The file, relative to the dataset.
    kinds : Mapping[str, AttributeKind]
        Keys to read.
    proof : Proof or None
        None: unproved.
    """

    name: str
    info: FileInfo
    kinds: Mapping[str, AttributeKind]
    proof: Proof | None


@dataclass(frozen=True)
class AttributeSets:
    """The attribute sets of a dataset, as far as they are asked.

    Attributes
    ----------
    files : Mapping[str, Mapping[str, FileInfo]]
        Set name to shard path to attribute file.
    kinds : Mapping[str, Mapping[str, AttributeKind]]
        Set name to key to kind, over all shards.
    proofs : Mapping[str, Proof]
        By path of the attribute file.
    """

    files: Mapping[str, Mapping[str, FileInfo]]
    kinds: Mapping[str, Mapping[str, AttributeKind]]
    proofs: Mapping[str, Proof]

    def owner(self, key: str) -> str:
        """Return the set that has `key`."""
        return next(name for name, kinds in self.kinds.items() if key in kinds)

    @property
    def keys(self) -> tuple[str, ...]:
        """All keys, in the order of the sets."""
        return tuple(key for kinds in self.kinds.values() for key in kinds)

    def sources(self, shard: Shard, keys: Sequence[str]) -> tuple[AttributeSource, ...]:
        """Return the files to read beside `shard`: every set, with those of `keys` that it has."""
        return tuple(self._source(name, shard, keys) for name in self.files)

    def _source(self, name: str, shard: Shard, keys: Sequence[str]) -> AttributeSource:
        info = self.files[name][shard.path]
        kinds = {key: kind for key, kind in self.kinds[name].items() if key in keys}
        return AttributeSource(name, info, kinds, self.proofs.get(info.path))


def shard_inputs(shard: Shard, sources: Sequence[AttributeSource]) -> tuple[FileInfo, ...]:
    """Return the files that a shard with its attributes is read from, relative to the dataset."""
    return (shard_info(shard), *(source.info for source in sources))


def advice(name: str, shard: str, proof: Proof | None = None, *, is_ours: bool = True) -> str:
    """Return what to do about an attribute file of the set `name` that does not belong to `shard`."""
    verb = proof.verb if proof else "tag"
    overwrite = "" if is_ours else " --overwrite"
    return f"Re-run: dolma-dask {verb} ... --only {layout.stem_of(shard)}{overwrite} (attribute set {name})"


def open_attributes(dataset: Dataset, names: Sequence[str]) -> AttributeSets:
    """Find the files, keys and proofs of attribute sets for every shard of a dataset.

    Parameters
    ----------
    dataset : Dataset
        Its attribute sets are listed now, so that those made since it was opened are found.
    names : sequence of str
        Attribute sets.

    Raises
    ------
    UsageError
        There is no such set, or two sets have one key.
    MissingAttributesError
        A shard has no file in a set.
    AlignmentError
        A shard has two.
    SchemaError
        A key has different kinds in different shards.
    """
    _check_names(dataset, names)
    found = {name: _files_of(dataset, name) for name in names}
    records = _records_of(dataset.root)
    kinds = {name: _kinds_of(dataset, found[name], records) for name in names}
    _check_clash(kinds)
    proofs = {
        path: _proof(verb, path, record) for path, (verb, record) in records.items() if record.ids_digest
    }
    return AttributeSets(found, kinds, proofs)


def _check_names(dataset: Dataset, names: Sequence[str]) -> None:
    known = files.list_folders(dataset.url(layout.ATTRIBUTES))
    for name in names:
        if name not in known:
            raise UsageError(
                f"{dataset.root} has no attribute set {name!r}; it has: {', '.join(known) or 'none'}. Make it: dolma-dask tag."
            )


def _records_of(root: str) -> dict[str, tuple[str, Record]]:
    """Return the newest record of each attribute file, and the verb that wrote it."""
    found: dict[str, tuple[str, Record]] = {}
    for journal in journals(root):
        for path, record in journal.by_file().items():
            is_newer = path not in found or found[path][1].finished <= record.finished
            if is_newer and path.startswith(f"{layout.ATTRIBUTES}/"):
                found[path] = (journal.verb, record)
    return found


def _proof(verb: str, path: str, record: Record) -> Proof:
    checksum = next(file.checksum for file in record.files if file.path == path)
    reads_text = not set(record.info.get("reads", ["text"])) <= _DOCUMENT_FIELDS
    return Proof(checksum, record.rows, record.ids_digest, record.content_digest, reads_text, verb)


def _files_of(dataset: Dataset, name: str) -> dict[str, FileInfo]:
    folder = f"{layout.ATTRIBUTES}/{name}"
    listed = {info.path: info for info in files.list_files(dataset.url(folder))}
    return {shard.path: _file_of(dataset, name, shard, listed) for shard in dataset.shards}


def _file_of(dataset: Dataset, name: str, shard: Shard, listed: Mapping[str, FileInfo]) -> FileInfo:
    folder = f"{layout.ATTRIBUTES}/{name}"
    found = [listed[path] for path in layout.attribute_candidates(shard.path) if path in listed]
    if len(found) > 1:
        found = [info for info in found if info.path == shard.path or not _is_shard(dataset, info.path)]
    if not found:
        raise MissingAttributesError(
            f"{dataset.url(folder)}/{shard.path} is missing; documents/{shard.path} needs it. {advice(name, shard.path)}",
            shard=shard.path,
        )
    if len(found) > 1:
        raise AlignmentError(
            f"documents/{shard.path} has two attribute files in {dataset.url(folder)}: {found[0].path} and {found[1].path}; "
            "expected one. Remove the one that is not wanted.",
            shard=shard.path,
        )
    return FileInfo(f"{folder}/{found[0].path}", found[0].bytes, found[0].stamp)


def _is_shard(dataset: Dataset, path: str) -> bool:
    """Tell whether there are documents of this very name, so that attributes of the name are theirs."""
    return files.stat(dataset.url(layout.document_path(path))) is not None


def _kinds_of(
    dataset: Dataset, found: Mapping[str, FileInfo], records: Mapping[str, tuple[str, Record]]
) -> dict[str, AttributeKind]:
    """Merge the kinds of all files: from the journal where it knows them, else from a sample of the file."""
    merged: dict[str, AttributeKind] = {}
    for info in found.values():
        declared = _declared_kinds(info, records) or sample_file(dataset.url(info.path))
        for key, kind in declared.items():
            merged[key] = _agree(info.path, key, merged.get(key, kind), kind)
    return merged


def _declared_kinds(
    info: FileInfo, records: Mapping[str, tuple[str, Record]]
) -> dict[str, AttributeKind] | None:
    """Return the kinds in the record of a file, if the record can be about the file as it is now."""
    if info.path not in records:
        return None
    record = records[info.path][1]
    is_same = any(file.path == info.path and file.bytes == info.bytes for file in record.files)
    return record.info.get("kinds") if is_same else None


def _agree(path: str, key: str, one: AttributeKind, other: AttributeKind) -> AttributeKind:
    if one == other:
        return one
    if {one, other} == {"document", "spans"}:
        return "spans"
    raise SchemaError(
        f"{path}: key {key!r} is {other}, in earlier shards it is {one}; expected one kind in all shards. Make the attributes again "
        "with one tagger.",
        key=key,
    )


def _check_clash(kinds: Mapping[str, Mapping[str, AttributeKind]]) -> None:
    seen: dict[str, str] = {}
    for name, keys in kinds.items():
        for key in keys:
            if key in seen:
                raise UsageError(
                    f"key {key!r} stands in two attribute sets, {seen[key]} and {name}; expected one. Leave one of the sets out."
                )
            seen[key] = name
