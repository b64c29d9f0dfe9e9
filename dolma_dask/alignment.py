"""The law of alignment: an attribute file lines up row by row with its document file, or reading fails.

Documents and attributes are read in lockstep and every row's id (and source, where the file has it) is compared. If the journal knows
the attribute file, the digests in its record must also equal those of the documents read now: equal ids with other text are stale
attributes. Files without a record (made by other tools) pass on the row comparison alone and are called unproved.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from dolma_dask.dataset import Dataset, Shard, shard_info
from dolma_dask.errors import (
    AlignmentError,
    MissingAttributesError,
    SchemaError,
    StaleAttributesError,
    UsageError,
)
from dolma_dask.formats import layout
from dolma_dask.formats.digests import RowDigest
from dolma_dask.formats.json_attributes import AttributeKind
from dolma_dask.io import files
from dolma_dask.io.attributes import AttributeBlock, AttributeFile, empty_block, sample_file
from dolma_dask.io.documents import DocumentFile
from dolma_dask.io.files import FileInfo
from dolma_dask.io.records import Block, InputRecord
from dolma_dask.io.stream import MAX_RECORD_BYTES
from dolma_dask.journal import Record, journals


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


def open_attributes(dataset: Dataset, names: Sequence[str]) -> AttributeSets:
    """Find the files, keys and proofs of attribute sets for every shard of a dataset.

    Parameters
    ----------
    dataset : Dataset
        As it was listed.
    names : sequence of str
        Attribute sets.

    Raises
    ------
    UsageError
        There is no such set, or two sets have one key.
    MissingAttributesError
        A shard has no file in a set.
    SchemaError
        A key has different kinds in different shards.
    """
    for name in names:
        if name not in dataset.attributes:
            known = ", ".join(dataset.attributes) or "none"
            raise UsageError(
                f"{dataset.root} has no attribute set {name!r}; it has: {known}. Make it: dolma-dask tag."
            )
    found = {name: _files_of(dataset, name) for name in names}
    records = {
        path: record
        for journal in journals(dataset.root)
        for path, record in _attribute_records(journal.verb, journal.by_file())
    }
    kinds = {name: _kinds_of(dataset, found[name], records) for name in names}
    _check_clash(kinds)
    proofs = {path: _proof(verb, path, record) for path, (verb, record) in records.items()}
    return AttributeSets(found, kinds, proofs)


def _attribute_records(verb: str, by_file: Mapping[str, Record]) -> Iterator[tuple[str, tuple[str, Record]]]:
    for path, record in by_file.items():
        if path.startswith(f"{layout.ATTRIBUTES}/"):
            yield path, (verb, record)


def _proof(verb: str, path: str, record: Record) -> Proof:
    checksum = next(file.checksum for file in record.files if file.path == path)
    reads = record.info.get("reads", ["text"])
    return Proof(checksum, record.rows, record.ids_digest, record.content_digest, "text" in reads, verb)


def _files_of(dataset: Dataset, name: str) -> dict[str, FileInfo]:
    folder = f"{layout.ATTRIBUTES}/{name}"
    listed = {info.path: info for info in files.list_files(dataset.url(folder))}
    return {shard.path: _file_of(dataset, name, shard, listed) for shard in dataset.shards}


def _file_of(dataset: Dataset, name: str, shard: Shard, listed: Mapping[str, FileInfo]) -> FileInfo:
    found = [listed[path] for path in layout.attribute_candidates(shard.path) if path in listed]
    folder = f"{layout.ATTRIBUTES}/{name}"
    if not found:
        raise MissingAttributesError(
            f"{dataset.url(folder)}/{shard.path} is missing; documents/{shard.path} needs it. {_again(name, shard.path)}",
            shard=shard.path,
        )
    if len(found) > 1:
        raise AlignmentError(
            f"documents/{shard.path} has two attribute files in {dataset.url(folder)}: {found[0].path} and {found[1].path}; "
            "expected one. Remove the one that is not wanted.",
            shard=shard.path,
        )
    return FileInfo(f"{folder}/{found[0].path}", found[0].bytes, found[0].stamp)


def _again(name: str, shard: str) -> str:
    return f"Re-run: dolma-dask tag ... --only {layout.stem_of(shard)} (attribute set {name})"


def _kinds_of(
    dataset: Dataset, found: Mapping[str, FileInfo], records: Mapping[str, tuple[str, Record]]
) -> dict[str, AttributeKind]:
    """Merge the kinds of all files: from the journal where it knows them, else from a sample of the file."""
    merged: dict[str, AttributeKind] = {}
    for info in found.values():
        record = records.get(info.path)
        declared = record[1].info.get("kinds") if record else None
        for key, kind in (declared or sample_file(dataset.url(info.path))).items():
            merged[key] = _agree(info.path, key, merged.get(key, kind), kind)
    return merged


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


@dataclass(frozen=True)
class AlignedBlock:
    """Rows of documents with the attributes of the same rows.

    Attributes
    ----------
    block : Block
        Documents.
    attributes : Mapping[str, pyarrow.Array]
        The asked keys, one value per row.
    """

    block: Block
    attributes: Mapping[str, pa.Array]


@dataclass
class ReadState:
    """What is known after a shard was read.

    ``inputs`` are the files read; ``unproved`` the attribute sets without a valid record.
    """

    rows: int = 0
    ids_digest: str = ""
    content_digest: str = ""
    inputs: tuple[InputRecord, ...] = ()
    unproved: tuple[str, ...] = ()
    bad_records: int = 0


@dataclass
class AlignedShard:
    """One shard and its attribute files, read side by side.

    Parameters
    ----------
    root : str
        Of the dataset.
    shard : Shard
        Its documents.
    columns : sequence of str
        Document columns; ``id`` and ``source`` are added, and ``text`` where digests are to be proved.
    sources : sequence of AttributeSource
        Attribute files.
    default_source : str, optional
        Source of documents that lack the field.
    max_record_bytes : int
        See `DocumentFile`.

    Attributes
    ----------
    state : ReadState
        Complete after the last block.

    Raises
    ------
    AlignmentError, StaleAttributesError
        While iterating; the latter after the last block.
    """

    root: str
    shard: Shard
    columns: Sequence[str]
    sources: Sequence[AttributeSource] = ()
    default_source: str | None = None
    max_record_bytes: int = MAX_RECORD_BYTES
    state: ReadState = field(default_factory=ReadState)

    def __iter__(self) -> Iterator[AlignedBlock]:
        columns = tuple(dict.fromkeys(("id", "text", "source", *self.columns)))
        path = layout.document_path(self.shard.path)
        documents = DocumentFile(
            files.join(self.root, path),
            columns,
            source=self.default_source,
            max_record_bytes=self.max_record_bytes,
        )
        followers = [_Follower(self.root, self.shard, source) for source in self.sources]
        ids, content = RowDigest(), RowDigest()
        for block in documents:
            ids.update(block.batch.column("source"), block.batch.column("id"))
            content.update(block.batch.column("source"), block.batch.column("id"), block.batch.column("text"))
            self.state.rows += block.num_rows
            self.state.bad_records += len(block.bad)
            taken = [follower.take(block) for follower in followers]
            yield AlignedBlock(block, {key: array for one in taken for key, array in one.columns.items()})
        self.state.ids_digest, self.state.content_digest = ids.hexdigest(), content.hexdigest()
        self.state.inputs = (
            _input(path, documents),
            *(follower.finish(self.state) for follower in followers),
        )
        self.state.unproved = tuple(follower.source.name for follower in followers if not follower.proved)


def _input(path: str, documents: DocumentFile) -> InputRecord:
    stored = documents.stored
    return InputRecord(path, stored.info.bytes, stored.info.stamp, stored.checksum)


class _Follower:
    """Reads one attribute file beside the documents and proves that it belongs to them."""

    def __init__(self, root: str, shard: Shard, source: AttributeSource) -> None:
        self.source = source
        self.proved = False
        self._shard = shard
        self._file = AttributeFile(files.join(root, source.info.path), source.kinds)
        self._blocks = iter(self._file)
        self._rest = empty_block(source.kinds)
        self._row = 0

    def take(self, block: Block) -> AttributeBlock:
        """Return as many rows as `block` has, after comparing ids and sources."""
        taken = self._rows(block.num_rows)
        self._compare(block, taken)
        self._row += block.num_rows
        return taken

    def _rows(self, wanted: int) -> AttributeBlock:
        parts: list[AttributeBlock] = []
        while wanted:
            if not len(self._rest.ids):
                self._rest = self._next(self._row + sum(len(part.ids) for part in parts))
            count = min(wanted, len(self._rest.ids))
            parts.append(self._rest.slice(0, count))
            self._rest = self._rest.slice(count, len(self._rest.ids) - count)
            wanted -= count
        return parts[0] if len(parts) == 1 else _concatenate(parts, self._rest)

    def _next(self, row: int) -> AttributeBlock:
        following = next(self._blocks, None)
        if following is None:
            raise self._error(
                f"has {row:,} rows, fewer than documents/{self._shard.path}; row {row:,} is missing"
            )
        return following

    def _compare(self, block: Block, taken: AttributeBlock) -> None:
        for name, theirs in (("id", taken.ids), ("source", taken.sources)):
            ours = block.batch.column(name)
            differs = pc.fill_null(pc.not_equal(ours, theirs), False)
            if (
                name == "id"
            ):  # a row without id stands for a document that could not be read; it must be so on both sides
                differs = pc.or_(differs, pc.xor(pc.is_null(ours), pc.is_null(theirs)))
            if pc.any(differs).as_py():
                row = pc.index(differs, True).as_py()
                found, expected = theirs[row].as_py(), ours[row].as_py()
                raise self._error(
                    f"does not line up with documents/{self._shard.path}: first difference at row {self._row + row:,} "
                    f"({name} {found!r}, expected {expected!r})"
                )

    def finish(self, state: ReadState) -> InputRecord:
        """Check that nothing is left and that the journal's record of the file, if there is one, speaks of these documents."""
        extra = len(self._rest.ids) + sum(len(block.ids) for block in self._blocks)
        if extra:
            raise self._error(
                f"has {state.rows + extra:,} rows, documents/{self._shard.path} has {state.rows:,}; row {state.rows:,} is too many"
            )
        stored = self._file.stored
        proof = self.source.proof
        if proof and proof.checksum == stored.checksum:
            self._prove(proof, state)
        return InputRecord(self.source.info.path, stored.info.bytes, stored.info.stamp, stored.checksum)

    def _prove(self, proof: Proof, state: ReadState) -> None:
        if proof.ids_digest != state.ids_digest:
            raise self._error(
                f"was made from other documents than documents/{self._shard.path} (ids_digest {proof.ids_digest}, found "
                f"{state.ids_digest})"
            )
        if proof.reads_text and proof.content_digest != state.content_digest:
            raise StaleAttributesError(
                f"{self.source.info.path} is stale: documents/{self._shard.path} has the same ids but other text than when "
                f"`{proof.verb}` made it (content_digest {proof.content_digest}, found {state.content_digest}). "
                + _again(self.source.name, self._shard.path),
                shard=self._shard.path,
            )
        self.proved = True

    def _error(self, found: str) -> AlignmentError:
        return AlignmentError(
            f"{self.source.info.path} {found}. {_again(self.source.name, self._shard.path)}",
            shard=self._shard.path,
        )


def _concatenate(parts: Sequence[AttributeBlock], empty: AttributeBlock) -> AttributeBlock:
    if not parts:
        return empty.slice(0, 0)
    columns = {key: pa.concat_arrays([part.columns[key] for part in parts]) for key in parts[0].columns}
    return AttributeBlock(
        pa.concat_arrays([part.ids for part in parts]),
        pa.concat_arrays([part.sources for part in parts]),
        columns,
        parts[0].first_row,
    )


def shard_inputs(shard: Shard, sources: Sequence[AttributeSource]) -> tuple[FileInfo, ...]:
    """Return the files that a shard with its attributes is read from, relative to the dataset."""
    return (shard_info(shard), *(source.info for source in sources))
