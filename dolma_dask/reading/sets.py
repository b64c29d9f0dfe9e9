"""Attribute sets of a dataset when they were opened: files, keys and proofs; and the advice where one is wrong."""

import shlex
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from functools import cached_property

from msgspec import Struct

from dolma_dask.dataset import Shard, shard_info
from dolma_dask.errors import StaleAttributesError
from dolma_dask.formats import layout
from dolma_dask.formats.json.attributes import AttributeKind
from dolma_dask.io.files import FileInfo
from dolma_dask.io.records import InputRecord
from dolma_dask.io.stored import START, Member
from dolma_dask.registry import IN_PYTHON_ALONE
from dolma_dask.rules.values import main_keys

CONVERTED = "convert_attributes"
"""Journal of the attribute sets that `convert` made of others."""


class Proof(Struct, frozen=True):
    """Record of an attribute file in the journal: the bytes that it must have, and what proves alignment."""

    file: InputRecord  # the attribute file as it was written
    rows: int  # rows of its documents
    # of its documents, when the attributes were made; empty: the record does not say from which
    ids_digest: str
    content_digest: str
    reads_text: bool  # whether the attributes depend on the text
    verb: str  # what made it
    documents: InputRecord | None = None
    """The document file that was read for it; while that is the same file, nothing of it needs to be read
    to prove the alignment."""
    members: tuple[tuple[int, int, int], ...] = ()
    """Members of the attribute file; see `dolma_dask.io.records.FileRecord`."""
    undigested: tuple[str, ...] = ()
    """Fields of the documents that the attributes depend on and no digest covers: they hold for that very
    document file only."""
    is_dataset_wide: bool = False  # whether the rows depend on more than their own shard
    levels: tuple[str, ...] = ()
    """Keys of levels, in the order of their bits; see `dolma_dask.formats.levels`."""


class AttributeSource(Struct, frozen=True):
    """One attribute file of one shard, ready to be read in a worker."""

    name: str  # attribute set
    info: FileInfo  # the file, relative to the dataset
    kinds: Mapping[str, AttributeKind]  # keys to read
    proof: Proof | None  # None: unproved
    maker: str | None = None  # verb that made files of the set; None: no journal knows it
    prefix: str = ""  # what is put before the keys, so that two sets may have one
    start: Member = START
    """Entry into the file when a part of the shard is read; at or before the part's first row."""
    with_objects: bool = False
    """Read all attributes of each row too, as one JSON object: the column `OBJECT`."""
    keys: Mapping[str, str] = {}
    """Columns and the keys that they hold; empty: the columns are called as the keys."""

    @property
    def columns(self) -> Collection[str]:
        """Names of the columns."""
        return self.keys or self.kinds

    @property
    def levels(self) -> tuple[str, ...]:
        """Keys of levels; see `Proof`."""
        return self.proof.levels if self.proof else ()

    def __hash__(self) -> int:
        return hash((self.name, self.info, self.prefix))


def columns_of(keys: Mapping[str, Collection[str]]) -> dict[str, tuple[str, str]]:
    """Return the columns of attribute sets with these keys, and the set and key of each.

    A column is named by its key, or as ``set/key`` if several sets have the key. Behind these names come those of the form ``set/key`` of all others.
    """
    holders = Counter(key for known in keys.values() for key in known)
    places = [(name, key) for name, known in keys.items() for key in known]
    columns = {key if holders[key] == 1 else f"{name}/{key}": (name, key) for name, key in places}
    return columns | {full: place for place in places if (full := "/".join(place)) not in columns}


def share_key(flag: str) -> str:
    """Return the key of the share of a document that flagged paragraphs are, beside their spans under `flag`."""
    return f"{flag}__share"


def flag_key(name: str, keys: Collection[str], maker: str | None) -> str | None:
    """Return the key of the flags in an attribute set of duplicates or listed documents that `maker` made; None: it has no flags."""
    if maker not in ("dedupe", "attach", "block"):
        return None
    whole = main_keys(keys) if maker == "dedupe" else ()
    key = name if name in keys else next(iter(whole), None)
    # spans of paragraphs are no flags of documents
    return None if maker == "dedupe" and key and share_key(key) in keys else key


_Keys = tuple[Mapping[str, AttributeKind], Mapping[str, str]]
"""Keys to read and their kinds, and columns that are called otherwise, as `AttributeSource` has them."""


class AttributeSets(Struct, frozen=True, dict=True):
    """Attribute sets of a dataset that were opened."""

    files: Mapping[str, Mapping[str, FileInfo]]  # set name to shard path to attribute file
    kinds: Mapping[str, Mapping[str, AttributeKind]]  # set name to key to kind, over all shards
    proofs: Mapping[str, Proof]  # by path of the attribute file
    makers: Mapping[str, str] = {}
    """Set name to the verb that made files of it, for those that a journal knows."""

    @cached_property
    def columns(self) -> Mapping[str, tuple[str, str]]:
        """All names of columns, in the order of the sets; see `columns_of`."""
        return columns_of(self.kinds)

    @cached_property
    def flags(self) -> Mapping[str, str]:
        """Columns of flags, and the verb that made each."""
        keys = {name: flag_key(name, kinds, self.makers.get(name)) for name, kinds in self.kinds.items()}
        places = self.columns.items()
        return {column: self.makers[name] for column, (name, key) in places if keys[name] == key}

    def kind(self, column: str) -> AttributeKind:
        """Return the kind of a column."""
        name, key = self.columns[column]
        return self.kinds[name][key]

    def inputs(self, shard: Shard) -> tuple[FileInfo, ...]:
        """Return the files that `shard` is read from with all sets, relative to the dataset."""
        return (shard_info(shard), *(of_shards[shard.path] for of_shards in self.files.values()))

    def sources(self, shard: Shard, columns: Sequence[str]) -> tuple[AttributeSource, ...]:
        """Return the files to read beside `shard`: every set, with those of `columns` that are read from it."""
        return tuple(self._source(name, shard, tuple(columns)) for name in self.files)

    def _source(self, name: str, shard: Shard, columns: tuple[str, ...]) -> AttributeSource:
        info = self.files[name][shard.path]
        if (name, columns) not in self._read:
            self._read[name, columns] = self._keys_of(name, columns)
        kinds, keys = self._read[name, columns]
        proof, maker = self.proofs.get(info.path), self.makers.get(name)
        return AttributeSource(name, info, kinds, proof, maker, keys=keys)

    @cached_property
    def _read(self) -> dict[tuple[str, tuple[str, ...]], _Keys]:
        """What is read from the files of a set for some columns: the same of all shards."""
        return {}

    def _keys_of(self, name: str, columns: Sequence[str]) -> _Keys:
        places = {column: self.columns[column] for column in columns if column in self.columns}
        keys = {column: key for column, (holder, key) in places.items() if holder == name}
        kinds = {key: kind for key, kind in self.kinds[name].items() if key in keys.values()}
        return kinds, {} if keys.keys() == kinds.keys() else keys


def shard_inputs(shard: Shard, sources: Sequence[AttributeSource]) -> tuple[FileInfo, ...]:
    """Return the files that a shard with its attributes is read from, relative to the dataset."""
    return (shard_info(shard), *(source.info for source in sources))


def not_as_written(proof: Proof, shard: str, found: FileInfo, why: str = "") -> StaleAttributesError:
    """Return the error for an attribute file of `shard` whose bytes are not those of its record; `why` it cannot be read, if it cannot."""
    name = found.path.split("/")[1]
    what_next = advice(name, shard, proof.verb, is_ours=False)
    return StaleAttributesError(
        f"{found.path} is not the file that `{proof.verb}` wrote: it has {found.bytes:,} bytes, the journal knows {proof.file.bytes:,} with "
        f"checksum {proof.file.checksum}{why and f'; {why}'}{'' if why.endswith('.') else '.'} Was it put back from a backup, swapped or edited? Attributes of your own belong into a set of their "
        f"own. {what_next}",
        shard=shard,
        attributes=name,
    )


_OF_ALL_SHARDS = ("dedupe", "block", "filter")
"""Verbs that make the files of all shards together."""


def advice(name: str, shard: str, verb: str | None, *, is_ours: bool = True) -> str:
    """Return the next step for an attribute file that does not belong to `shard`.

    `verb` is the journal that knows the set (None: another tool made it), `is_ours` whether the file is as it was written (one that was changed since
    is replaced on request only).
    """
    if verb is None:
        return (
            f"No journal knows attribute set {name}: make its file for {layout.stem_of(shard)} again with the tool that made the set, "
            "or leave the set out."
        )
    if verb in IN_PYTHON_ALONE:
        return f"Call {verb} again, of a dataframe or bag that was read from these documents (attribute set {name})."
    command = f"convert ... --attributes ... --rename {name}" if verb == CONVERTED else f"{verb} ..."
    overwrite = "" if is_ours else " --overwrite"
    which = f"--name {name}" if verb in _OF_ALL_SHARDS else f"--only {shlex.quote(layout.stem_of(shard))}"
    return f"Re-run: dolma-dask {command} {which}{overwrite} (attribute set {name})"
