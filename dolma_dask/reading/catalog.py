"""Catalog of a dataset's attribute files: those of each shard, their keys, and proofs from the journal.

Cost: one listing per attribute set that is looked into, the journals of the dataset, and the first rows of each file that no journal
knows.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from itertools import islice
from typing import Any

from msgspec import Struct

from dolma_dask.dataset import Dataset, Shard, open_dataset
from dolma_dask.errors import (
    AlignmentError,
    CorruptFileError,
    DataError,
    MissingAttributesError,
    SchemaError,
    StaleAttributesError,
    UsageError,
)
from dolma_dask.formats import layout
from dolma_dask.formats.attributes import attribute_key
from dolma_dask.formats.json.attributes import AttributeKind
from dolma_dask.io import files
from dolma_dask.io.attributes import SampledKeys, sample_keys
from dolma_dask.io.files import FileInfo
from dolma_dask.io.listing import by_path
from dolma_dask.io.records import InputRecord
from dolma_dask.journal import Journal, Record, is_same_file, journals
from dolma_dask.reading.sets import AttributeSets, AttributeSource, Proof, advice, not_as_written
from dolma_dask.reading.together import OWN, datasets_in
from dolma_dask.reading.written import Proofs, Written

MAX_DESCRIBED = 100
"""Files of a set that are looked into to say why a column is not there."""

TOKENIZERS = "tokenizers"
"""Name, in what records tell, of the parameters of the tokenizer of each tagger that has one."""

DISTRUSTS = "distrusts"
"""Parameter of a tokenizer about the engine that makes its ids, which are the same by any."""

_GONE = "is gone"
"""Change of a file that is not there any more."""

_DATASET_WIDE_UNIT = re.compile(f"{layout.ATTRIBUTES}/[^/]+/")
"""Unit of the dataset-wide record of a set."""


def open_attributes(dataset: Dataset, names: Sequence[str]) -> AttributeSets:
    """Find the files, keys and proofs of attribute sets for every shard of a dataset, as they are listed now."""
    return Catalog(dataset).open(names)


def check_clash(kinds: Mapping[str, Collection[str]], keys: Collection[str]) -> None:
    """Refuse one of `keys` that several sets have; `kinds` gives the keys of each set."""
    for key in keys:
        names = [name for name, known in kinds.items() if key in known]
        if len(names) > 1:
            raise UsageError(
                f"key {key!r} stands in {'two' if len(names) == 2 else len(names)} attribute sets, {', '.join(names[:-1])} and {names[-1]}; expected one. "
                f"Choose the sets to read, such as: --attributes {names[0]}"
            )


class Catalog(Struct, frozen=True, dict=True):
    """The attribute sets of a dataset; each file is looked into at most once."""

    dataset: Dataset  # its attribute sets are listed on first use
    _listed: dict[str, Mapping[str, FileInfo]] = {}
    _of_shards: dict[str, Mapping[str, FileInfo]] = {}
    _alone: dict[str, bool] = {}
    _merged: dict[str, Mapping[str, AttributeKind]] = {}
    _declared: dict[str, Mapping[str, AttributeKind]] = {}
    _expected: dict[str, dict[str, AttributeKind]] = {}
    _by_records: dict[str, "_ByRecords"] = {}

    @cached_property
    def _journals(self) -> list[Journal]:
        return list(journals(self.dataset.root, of_files=True))

    @cached_property
    def written(self) -> Written:
        """The newest record of each file in the dataset, and the verb that wrote it."""
        return Written.of(self._journals)

    @cached_property
    def _records(self) -> Written:
        """Those of `written` that are of attribute files."""
        return self.written.below(f"{layout.ATTRIBUTES}/")

    @cached_property
    def _proofs(self) -> Mapping[str, Proof]:
        return Proofs(self._records)

    @cached_property
    def makers(self) -> dict[str, str]:
        """By attribute set: the verb that made most lately a file of it."""
        newest: dict[str, tuple[float, str]] = {}
        for path, verb, finished in self._records.makers():
            name = path.split("/", 2)[1]
            if name not in newest or newest[name][0] <= finished:
                newest[name] = finished, verb
        return {name: verb for name, (_, verb) in newest.items()}

    def open(self, names: Sequence[str]) -> AttributeSets:
        """Find the files, keys and proofs of sets for every shard; see `open_attributes`."""
        self._check_names(names)
        files_of = {name: self._files_of(name) for name in names}
        for name, shard_files in files_of.items():
            self.check_dataset_wide(name, shard_files)
        kinds = {name: self.kinds(name) for name in names}
        makers = {name: self.makers[name] for name in names if name in self.makers}
        return AttributeSets(files_of, kinds, self._proofs, makers)

    def check_dataset_wide(self, name: str, shard_files: Mapping[str, FileInfo]) -> None:
        """Refuse files of a set whose rows depend on all shards, if they cannot be believed; sets of other kinds pass.

        Which duplicate survives depends on all documents: with flags of two runs a document could be dropped as a copy of one that is dropped
        too. So such a set has a dataset-wide record, written before its files: the key that they must have (``info["key"]``), all that it was
        made of, and ``info["depends_on"]``: "list" if its rows depend on a list and their own shard only, "attributes" if on their own shard and its attributes. `shard_files` has the file of each
        shard.
        """
        self._check_format(name, shard_files)
        means = (self._records.told(info.path) for info in shard_files.values())
        if not any(one is not None and one.is_dataset_wide for one in means):
            return
        known = {
            shard: self._records[info.path]
            for shard, info in shard_files.items()
            if info.path in self._records
        }
        made = {
            shard: record for shard, (_, record) in known.items() if record.info.get("dataset_wide") is True
        }
        verbs = {verb for verb, _ in known.values()}
        summary = self._dataset_wide.get((*verbs, name)) if len(verbs) == 1 else None
        first = next(iter(made))
        verb = known[first][0]
        again = f"Re-run: dolma-dask {verb} ... --name {name}"
        key = summary.info.get("key") if summary else None
        for shard, info in shard_files.items():
            record = made.get(shard)
            if record is None or record.key != key or all(file.bytes != info.bytes for file in record.files):
                raise AlignmentError(
                    f"attribute set {name} was not made by one run of `{verb}` that has ended: {info.path} is of another one, or has been "
                    f"changed; expected one, since its rows depend on more than their own shard. {again}",
                    shard=shard,
                    attributes=name,
                )
        if summary and summary.info.get("depends_on") == "attributes":
            self._check_attributes_of(name, made, again)
        elif summary and summary.info.get("depends_on") != "list":
            by_ids = set(made[first].info.get("reads", ())) <= {"id", "source"}
            changed, change = self._changed_input(summary.inputs, by_ids)
            if changed:
                # what was made of a document file that is gone stands in the way of the same command
                overwrite = (
                    " --overwrite" if (change, changed[0].split("/")[0]) == (_GONE, layout.DOCUMENTS) else ""
                )
                raise StaleAttributesError(
                    f"attribute set {name} is stale: {changed[0]} {change} since it was made, one of {len(changed):,}, and its rows depend on "
                    f"all files. {again}{overwrite}",
                    shard=first,
                    attributes=name,
                )
            self._check_beside((verb, name), summary, first)

    def _check_attributes_of(self, name: str, made: Mapping[str, Record], again: str) -> None:
        """Refuse rows that were made of attributes, where the files of these are others now."""
        for shard, record in made.items():
            for item in record.inputs:
                folder, _, path = item.path.partition("/")[2].partition("/")
                if not item.path.startswith(f"{layout.ATTRIBUTES}/"):
                    continue
                info = self.listed(folder).get(path)
                if info is None or not self._is_still(item, info):
                    raise StaleAttributesError(
                        f"attribute set {name} is stale: {item.path}, of which it was made, {'is gone' if info is None else 'has changed'} since. {again}",
                        shard=shard,
                        attributes=name,
                    )

    def _is_still(self, item: InputRecord, info: FileInfo) -> bool:
        """Tell whether an attribute file is the one that was read; the journal's word spares hashing those of a dataset that was copied."""
        written = self._proofs.get(item.path)
        if written and (written.file.checksum, written.file.bytes) == (item.checksum, info.bytes):
            return True
        return is_same_file(item, self.dataset.url(item.path), info)

    def _check_beside(self, of: tuple[str, str], summary: Record, first: str) -> None:
        """Refuse rows that depend on other datasets too, unless these hold what was made together with them, of files that are the same still."""
        verb, name = of
        for place, key in datasets_in(summary):
            why = "" if place == OWN else _change_beside(self.dataset, place, of, key)
            if why:
                raise StaleAttributesError(
                    f"attribute set {name} is stale: it was made together with that of {place}, seen from {self.dataset.root}, where {why}, and its rows depend on "
                    f"all files of all datasets. Re-run: dolma-dask {verb} ... --name {name}, with or without --others.",
                    shard=first,
                    attributes=name,
                )

    def check_unchanged(self, name: str) -> None:
        """Refuse a set whose rows depend on all shards, unless its files are those of one run and all that it was made of is as it was, by checksum."""
        self.check_dataset_wide(name, self._files_of(name))
        for record in (record for (_, known), record in self._dataset_wide.items() if known == name):
            changed, change = self._changed_input(record.inputs, by_ids=False, is_read=False)
            if changed:
                raise StaleAttributesError(
                    f"attribute set {name} is stale: {changed[0]} {change} since it was made. Make it again.",
                    attributes=name,
                )

    def _changed_input(
        self, inputs: Sequence[InputRecord], by_ids: bool, is_read: bool = True
    ) -> tuple[list[str], str]:
        """Return the inputs that are other files now, those that are gone first, and the change of the first.

        If this dataset is read, the content of its shards is proved then (other texts are no matter if the set depends on ids alone); other
        files are hashed if their stamps differ.
        """
        then = {item.path: item for item in inputs}
        now = self._present(then.keys())
        read = {layout.document_path(one.path) for one in self.dataset.shards if is_read}
        changed = sorted(
            (
                path
                for path in then.keys() | now.keys()
                if path not in then
                or path not in now
                or (then[path].bytes != now[path].bytes and not (by_ids and path in read))
            ),
            key=lambda path: (path in now, path),
        )
        changed += sorted(
            path
            for path in then.keys() - set(changed) - read
            if not is_same_file(then[path], self.dataset.url(path), now[path])
        )
        if not changed:
            return [], ""
        change = "is new" if changed[0] not in then else _GONE if changed[0] not in now else "has changed"
        return changed, change

    def _present(self, inputs: Collection[str]) -> dict[str, FileInfo]:
        """Return the files that are there now: all documents, and the attributes among `inputs`."""
        documents = files.list_files(self.dataset.url(layout.DOCUMENTS))
        present = {
            layout.document_path(info.path): info for info in documents if self.dataset.holds(info.path)
        }
        for name in {path.split("/")[1] for path in inputs if path.startswith(f"{layout.ATTRIBUTES}/")}:
            paths = ((_inside(name, info).path, info) for info in self.listed(name).values())
            present.update((path, info) for path, info in paths if path in inputs)
        return present

    @cached_property
    def _foreign(self) -> dict[str, str]:
        """Attribute files whose records are of another journal format, and the verb that wrote them."""
        return {
            unit: journal.verb
            for journal in self._journals
            for unit in journal.foreign
            if unit not in self._records
        }

    def _check_format(self, name: str, shard_files: Mapping[str, FileInfo]) -> None:
        """Refuse files of which a journal of another format knows more than this release reads: they may be stale."""
        for shard, info in shard_files.items():
            verb = self._foreign.get(info.path)
            if verb is not None:
                raise StaleAttributesError(
                    f"{info.path} was made by another release, whose journal is of another format and never believed; expected a file that is "
                    f"proved to belong to the documents. {advice(name, shard, verb)}",
                    shard=shard,
                    attributes=name,
                )

    @cached_property
    def _dataset_wide(self) -> dict[tuple[str, ...], Record]:
        """By verb and attribute set: the newest dataset-wide record."""
        return {
            (journal.verb, unit.split("/")[1]): record
            for journal in self._journals
            for unit, record in journal.records.items()
            if _DATASET_WIDE_UNIT.fullmatch(unit)
        }

    def kinds(self, name: str) -> Mapping[str, AttributeKind]:
        """Return the keys of a set, which must be finished, and their kinds over all shards; raises as `open_attributes`.

        Of shards that are not read here the journal tells more keys: a label that none of those read has is a name all the same.
        """
        if name not in self._merged:
            self._merged[name] = {**self._told(name), **self._kinds_of(name)}
        return self._merged[name]

    def _told(self, name: str) -> dict[str, AttributeKind]:
        """Return what the journal tells of keys of all files of a set."""
        return self._expected.get(name, {}) | _joined(self._recorded_of(name).kinds)

    def _recorded_of(self, name: str) -> "_ByRecords":
        """Return what records tell of the files of a set, all of which are looked at once."""
        if name not in self._by_records:
            kinds: dict[tuple[object, ...], Mapping[str, AttributeKind]] = {}
            others, last = set(), None
            for path in self.listed(name):
                known = self._records.told(f"{layout.ATTRIBUTES}/{name}/{path}")
                if known is None or not known.kinds:
                    others.add(path)
                elif known.kinds is not last:
                    last = kinds.setdefault(tuple(known.kinds.items()), known.kinds)
            self._by_records[name] = _ByRecords(tuple(kinds.values()), frozenset(others))
        return self._by_records[name]

    def tokenizers(self, name: str, key: str) -> list[Mapping[str, Any]]:
        """Return the parameters of the tokenizers with which files of a set got a key of theirs, each once; empty ones where no record tells."""
        tagger = key.removeprefix(f"{name}__").rpartition("__")[0]
        found: list[Mapping[str, Any]] = []
        for path in (info.path for info in self._files_of(name).values()):
            known = self._records[path][1].info if path in self._records else {}
            params = known.get(TOKENIZERS, {}).get(tagger, {})
            found += [] if params in found else [params]
        return found

    def expect_labels(self, names: Sequence[str], wanted: str) -> bool:
        """Take labels that taggers of sets can write, and that no document has, for keys; return whether there are more than before.

        Where nobody knows all labels of a tagger, the end of `wanted` is one if the tagger stands before it.
        """
        from dolma_dask.taggers.registry import known_labels  # rules rarely name what is not there

        before = sum(map(len, self._expected.values()))
        for name in names:
            paths = (_inside(name, info).path for info in self.listed(name).values())
            records = (self._records[path][1] for path in paths if path in self._records)
            taggers = {tagger for record in records for tagger in record.info.get("taggers", ())}
            self._expected.setdefault(name, {}).update(
                (attribute_key(name, tagger, label), kind)
                for tagger in sorted(taggers)
                for label, kind in known_labels(tagger, wanted)
            )
            self._merged.pop(name, None)
        return sum(map(len, self._expected.values())) > before

    def keys(self, name: str) -> tuple[frozenset[str], DataError | None]:
        """Return the keys of a set as far as its files can be read, finished or not, and the first error of those that cannot.

        Raises `CorruptFileError`: none can be read. Without its keys a short name could stand for a column of another set.
        """
        keys, error, listed = set(self._told(name)), None, self.listed(name)
        others = self._recorded_of(name).others
        for shard in self.dataset.shards if others else ():
            for path in layout.attribute_candidates(shard.path):
                try:
                    keys.update(self._declare(_inside(name, listed[path])) if path in others else ())
                except DataError as caught:
                    error = error or caught
        if error and not keys:
            raise CorruptFileError(
                f"attribute set {name} cannot be read: {str(error).rstrip('.')}; expected its keys, since a name may stand for one of them. "
                "Make the set again or remove it, or choose the sets to read: --attributes."
            ) from error
        return frozenset(keys), error

    def _check_names(self, names: Sequence[str]) -> None:
        known = files.list_folders(self.dataset.url(layout.ATTRIBUTES))
        for name in names:
            if name not in known:
                raise UsageError(
                    f"{self.dataset.root} has no attribute set {name!r}; it has: {', '.join(known) or 'none'}. Make it: dolma-dask tag."
                )

    def listed(self, name: str) -> Mapping[str, FileInfo]:
        """Return all files of a set, by their paths below its folder."""
        if name not in self._listed:
            listed = files.list_files(self.dataset.url(f"{layout.ATTRIBUTES}/{name}"))
            self._listed[name] = by_path(listed, [shard.path for shard in self.dataset.shards])
        return self._listed[name]

    def _files_of(self, name: str) -> Mapping[str, FileInfo]:
        if name not in self._of_shards:
            shards, listed = self.dataset.shards, self.listed(name)
            if self._are_of_shards(name) and all(shard.path in listed for shard in shards):
                self._of_shards[name] = _OfShards(name, listed, shards)
            else:
                self._of_shards[name] = {shard.path: self.file_of(name, shard) for shard in shards}
        return self._of_shards[name]

    def file_of(self, name: str, shard: Shard) -> FileInfo:
        """Return the file of a set for a shard; raises if there is none, or two."""
        listed = self.listed(name)
        if shard.path in listed and self._are_of_shards(name):
            return _inside(name, listed[shard.path])
        candidates = [listed[path] for path in layout.attribute_candidates(shard.path) if path in listed]
        if len(candidates) > 1:
            candidates = [
                info for info in candidates if info.path == shard.path or not self._is_shard(info.path)
            ]
        if len(candidates) == 1:
            return _inside(name, candidates[0])
        folder = self.dataset.url(f"{layout.ATTRIBUTES}/{name}")
        if not candidates:
            verb = self.makers.get(name)
            raise MissingAttributesError(
                f"{folder}/{shard.path} is missing; documents/{shard.path} needs it. {advice(name, shard.path, verb)}",
                shard=shard.path,
                attributes=name,
            )
        raise AlignmentError(
            f"documents/{shard.path} has two attribute files in {folder}: {candidates[0].path} and {candidates[1].path}; "
            "expected one. Remove the one that is not wanted.",
            shard=shard.path,
            attributes=name,
        )

    def _are_of_shards(self, name: str) -> bool:
        """Tell whether all files of a set are called as document files, so that each is of that one."""
        if name not in self._alone:
            self._alone[name] = self.listed(name).keys() <= {shard.path for shard in self.dataset.shards}
        return self._alone[name]

    def source(self, name: str, info: FileInfo) -> AttributeSource:
        """Return a file of a set to read; without keys where only the file itself can tell them."""
        proof, verb = self._proofs.get(info.path), self.makers.get(name)
        return AttributeSource(name, info, self._recorded(info) or {}, proof, verb)

    def _is_shard(self, path: str) -> bool:
        """Tell whether there are documents of this very name, so that attributes of the name are theirs."""
        return files.stat(self.dataset.url(layout.document_path(path))) is not None

    def _kinds_of(self, name: str) -> Mapping[str, AttributeKind]:
        """Merge the kinds of all files; one that cannot be read is left to its reader, so that it fails its own shard alone."""
        shard_files, known = self._files_of(name), self._recorded_of(name)
        if shard_files and len(known.kinds) == 1 and not known.others:
            return known.kinds[0]
        merged: dict[str, AttributeKind] = {}
        unread: list[DataError] = []
        last = None
        for info in shard_files.values():
            try:
                kinds = self._declare(info)
            except (CorruptFileError, StaleAttributesError) as error:
                unread.append(error)
                continue
            if kinds is not last:  # files of one run say the same
                for key, kind in kinds.items():
                    merged[key] = agree(info.path, key, merged.get(key, kind), kind)
            last = kinds
        if unread and not merged:
            raise unread[0]
        return merged

    def _declare(self, info: FileInfo) -> Mapping[str, AttributeKind]:
        """Return the kinds of a file: from the journal, whose word readers hold the file to, else from its first rows."""
        path = info.path
        if kinds := self._recorded(info):
            return kinds
        if path not in self._declared:
            proof = self._proofs.get(path)
            if proof and proof.file.bytes != info.bytes:
                raise not_as_written(proof, self._records[path][1].shard, info)
            self._declared[path] = self._sampled(path).kinds
        return self._declared[path]

    def mixed(self, name: str, ending: str) -> str:
        """Describe a key of a set, of this name or ending in it, whose values are of several kinds in one of the first files; empty if there is none."""
        listed = (_inside(name, info) for info in self.listed(name).values() if layout.suffix_of(info.path))
        for info in islice((info for info in listed if not self._recorded(info)), MAX_DESCRIBED):
            with suppress(DataError):
                for key, found in self._sampled(info.path).mixed.items():
                    if f"__{key}".endswith(f"__{ending}"):
                        return f"{name} has {key!r} of several kinds, which no column can hold: {found} of {info.path}"
        return ""

    def _sampled(self, path: str) -> SampledKeys:
        return sample_keys(self.dataset.url(path), ids_as_text=self.dataset.ids_as_text)

    def _recorded(self, info: FileInfo) -> dict[str, AttributeKind] | None:
        known = self._records.told(info.path)
        return None if known is None else known.kinds


class _OfShards(Mapping[str, FileInfo]):
    """Files of a set by shards that are called as they are, each made of the listing when it is looked at."""

    def __init__(self, name: str, listed: Mapping[str, FileInfo], shards: Sequence[Shard]) -> None:
        self._name, self._listed, self._shards = name, listed, shards

    def __getitem__(self, path: str) -> FileInfo:
        return _inside(self._name, self._listed[path])

    def __iter__(self) -> Iterator[str]:
        return (shard.path for shard in self._shards)

    def __len__(self) -> int:
        return len(self._shards)


class _ByRecords(Struct, frozen=True):
    """What records tell of the files of a set."""

    kinds: tuple[Mapping[str, AttributeKind], ...]  # of the keys, each once: files of one run say the same
    others: frozenset[str]  # files of which none tells


def _joined(each: Iterable[Mapping[str, AttributeKind]]) -> dict[str, AttributeKind]:
    """Return all keys with their kinds; those of the last win."""
    found: dict[str, AttributeKind] = {}
    last: Mapping[str, AttributeKind] = {}
    for kinds in each:
        if kinds is not last:
            found |= kinds
        last = kinds
    return found


def _inside(name: str, info: FileInfo) -> FileInfo:
    return FileInfo(f"{layout.ATTRIBUTES}/{name}/{info.path}", info.bytes, info.stamp)


def agree(path: str, key: str, one: AttributeKind, other: AttributeKind) -> AttributeKind:
    """Return the kind of a key that is `one` in files before, and `other` in that at `path`; refuse two that no column can hold."""
    if one == other:
        return one
    if {one, other} == {"document", "spans"}:
        return "spans"
    raise SchemaError(
        f"{path}: key {key!r} is {other}, in earlier shards it is {one}; expected one kind in all shards. Make the attributes again "
        "with one tagger.",
        key=key,
    )


def _change_beside(dataset: Dataset, place: str, of: tuple[str, str], key: str) -> str:
    """Return what has changed in a dataset whose rows of `key` were made together with those of `dataset`; nothing if all is as it was."""
    try:
        other = Catalog(open_dataset(files.seen_from(dataset.root, place), skip=dataset.skip))
        record = other._dataset_wide.get(of)
        if record is None or record.info.get("key") != key:
            return f"attribute set {of[1]} is gone or of another run"
        changed, change = other._changed_input(record.inputs, by_ids=False, is_read=False)
    except (UsageError, DataError):
        return "no documents are any more"
    except OSError as error:
        return f"files cannot be read ({error.strerror or error})"
    return f"{changed[0]} {change}, one of {len(changed):,}" if changed else ""
