"""Which documents go on: documents and attributes read side by side, and the rows that a `where` rule keeps.

Shared by every verb that reads a selection (mix, ragged), so that tokens come straight from a mix without a file between.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from dolma_dask.alignment import (
    AlignedReader,
    AlignedShard,
    AttributeSets,
    AttributeSource,
    Catalog,
    check_clash,
    find_fields,
    shard_inputs,
)
from dolma_dask.dataset import Dataset, Shard
from dolma_dask.engine import Input, inputs_of
from dolma_dask.errors import ExpressionError, UsageError
from dolma_dask.formats.documents import OPTIONAL, text_bytes
from dolma_dask.formats.json.attributes import AttributeKind
from dolma_dask.formats.metadata import is_field
from dolma_dask.io.quarantine import Quarantine, RecordPolicy
from dolma_dask.mixing.rules import And, Rule
from dolma_dask.mixing.where import parse, resolve
from dolma_dask.summary import shortened

DOCUMENT_NAMES = ("id", "source", *OPTIONAL)
"""Document columns that a rule may name besides attribute keys and fields of the metadata."""


@dataclass(frozen=True)
class ShardWork:
    """What a worker needs for one shard."""

    shard: Shard
    sources: tuple[AttributeSource, ...]
    fields: Mapping[str, AttributeKind] = field(default_factory=dict)


@dataclass(frozen=True)
class Selection:
    """A dataset with a rule over its documents.

    Attributes
    ----------
    dataset : Dataset
        All of its shards.
    rule : Rule or None
        None keeps every document.
    sets : AttributeSets or None
        The attribute sets read beside the documents.
    fields : Mapping[str, AttributeKind]
        Fields of the metadata that the rule names.
    """

    dataset: Dataset
    rule: Rule | None
    sets: AttributeSets | None
    fields: Mapping[str, AttributeKind] = field(default_factory=dict)

    def work(self, shard: Shard) -> ShardWork:
        """Return what a worker needs for `shard`."""
        names = sorted(self.rule.names) if self.rule is not None else []
        return ShardWork(shard, self.sets.sources(shard, names) if self.sets else (), self.fields)

    def inputs(self, work: ShardWork) -> tuple[Input, ...]:
        """Return the files that `work` reads."""
        return inputs_of(self.dataset.root, shard_inputs(work.shard, work.sources))

    def params(self) -> dict[str, Any]:
        """Return what of the selection decides the output."""
        return {
            "where": None if self.rule is None else self.rule.canonical(),
            "attributes": list(self.sets.files) if self.sets else [],
            "source": self.dataset.source,
        }


def select(dataset: Dataset, where: str | Rule | None, attributes: Sequence[str]) -> Selection:
    """Resolve a rule against the attributes of a dataset.

    Parameters
    ----------
    dataset : Dataset
        As it was listed.
    where : str or Rule, optional
        Expression over document fields, ``metadata.<field>`` and attribute keys; a unique ending of a key is enough.
    attributes : sequence of str
        Attribute sets to read; by default those that the rule needs.

    Raises
    ------
    ExpressionError
        The rule cannot be parsed, names an unknown column, or compares values of different types.
    UsageError
        A key of the rule stands in two sets, or has many spans per document.
    MissingAttributesError
        A shard lacks a needed attribute file.
    """
    rule = parse(where) if isinstance(where, str) else where
    if rule is None:
        return Selection(dataset, None, Catalog(dataset).open(attributes) if attributes else None)
    fields = find_fields(dataset, sorted(name for name in rule.names if is_field(name)))
    known = (*DOCUMENT_NAMES, *fields)
    if not attributes and rule.names <= set(known):
        sets = None
    elif attributes:
        rule, sets = _from_asked(dataset, rule, attributes, known)
    else:
        rule, sets = _from_all(dataset, rule, known)
    _check_kinds(rule, sets, fields)
    return Selection(dataset, rule, sets, fields)


def _from_asked(
    dataset: Dataset, rule: Rule, names: Sequence[str], documents: Sequence[str]
) -> tuple[Rule, AttributeSets]:
    """Resolve a rule against the sets that the user wants, and the columns of the documents."""
    sets = Catalog(dataset).open(names)
    rule = resolve(rule, [*documents, *sets.keys])
    check_clash(sets.kinds, sorted(rule.names))
    return rule, sets


def _from_all(dataset: Dataset, rule: Rule, documents: Sequence[str]) -> tuple[Rule, AttributeSets | None]:
    """Resolve a rule against all sets, of which those that it does not need may be unfinished, damaged or clash."""
    if not dataset.attributes:
        raise UsageError(
            f"the rule names {', '.join(sorted(rule.names))}, but {dataset.root} has no attributes. Make them: dolma-dask tag."
        )
    catalog = Catalog(dataset)
    looked = {name: catalog.keys(name) for name in dataset.attributes}
    keys = {name: known for name, (known, _) in looked.items()}
    try:
        rule = resolve(rule, sorted({*documents}.union(*keys.values())))
    except ExpressionError as error:
        unread = [f"{name} could not be read ({why})" for name, (_, why) in looked.items() if why]
        if not unread:
            raise
        raise ExpressionError(f"{error} Attribute set {'; '.join(unread)}", **error.details) from error
    needed = sorted(rule.names - set(documents))
    check_clash(keys, needed)
    owners = [name for name, known in keys.items() if not known.isdisjoint(needed)]
    return rule, catalog.open(owners) if owners else None


_EMPTY = {
    "document": pa.array([], pa.float64()),
    "number": pa.array([], pa.float64()),
    "dict": pa.array([], pa.float64()),
    "bool": pa.array([], pa.bool_()),
    "string": pa.array([], pa.large_string()),
}
"""A column without rows for each kind of attribute key that has one value per document."""


def _check_kinds(rule: Rule, sets: AttributeSets | None, fields: Mapping[str, AttributeKind]) -> None:
    """Refuse a rule that its columns cannot satisfy before any shard is read: types are known without rows."""
    kinds = {name: sets.kinds[owner][name] for name, owner in sets.owners.items()} if sets else {}
    kinds.update(fields)
    for name in sorted(rule.names):
        if kinds.get(name) == "spans":
            raise UsageError(
                f"{name!r} has many spans per document; a `where` rule needs one value per document. Use a document-level key."
            )
    columns = dict.fromkeys(DOCUMENT_NAMES, _EMPTY["string"])
    rule.mask({**columns, **{name: _EMPTY[kind] for name, kind in kinds.items() if name in rule.names}})


@dataclass
class SelectedShard:
    """The kept documents of one shard, and what was counted on the way.

    Parameters
    ----------
    aligned : AlignedReader
        The shard with its attributes.
    rule : Rule or None
        None keeps all.
    quarantine : Quarantine
        Takes the bad records.

    Attributes
    ----------
    counts : dict
        ``documents_in, documents_out, text_bytes_in, text_bytes_out``, and per part of the rule the rows it holds for.
    """

    aligned: AlignedReader
    rule: Rule | None
    quarantine: Quarantine
    counts: dict[str, float] = field(default_factory=dict)

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        parts = conjuncts(self.rule)
        names = (
            "documents_in",
            "documents_out",
            "text_bytes_in",
            "text_bytes_out",
            *(f"where {part}" for part in parts),
        )
        self.counts.update(dict.fromkeys(names, 0))
        for block in self.aligned:
            batch = block.batch
            kept = batch.filter(self._mask(batch, parts))
            self.counts["documents_in"] += batch.num_rows
            self.counts["documents_out"] += kept.num_rows
            self.counts["text_bytes_in"] += text_bytes(batch.column("text"))
            self.counts["text_bytes_out"] += text_bytes(kept.column("text"))
            yield kept
        self.counts["bad_records"] = self.quarantine.count

    def _mask(self, batch: pa.RecordBatch, parts: Sequence[Rule]) -> pa.BooleanArray:
        kept = readable = pc.is_valid(batch.column("id"))
        columns = {name: batch.column(name) for name in batch.schema.names}
        for part in parts:
            holds = pc.and_(part.mask(columns), readable)
            self.counts[f"where {part}"] += pc.sum(holds).as_py() or 0
            kept = pc.and_(kept, holds)
        return kept


def conjuncts(rule: Rule | None) -> tuple[Rule, ...]:
    """Return the parts that all must hold, each once."""
    return tuple(dict.fromkeys(_parts(rule)))


def spelled_conjuncts(rule: Rule | None, written: Rule | None) -> tuple[str, ...]:
    """Return how the user wrote each of the `conjuncts` of `rule`, which is `written` with its names in full."""
    spelled: dict[Rule, str] = {}
    for part, words in zip(_parts(rule), _parts(written), strict=True):
        spelled.setdefault(part, str(words))
    return tuple(spelled.values())


def _parts(rule: Rule | None) -> tuple[Rule, ...]:
    if rule is None:
        return ()
    return rule.rules if isinstance(rule, And) else (rule,)


def open_selected(
    root: str,
    work: ShardWork,
    rule: Rule | None,
    columns: Sequence[str],
    default_source: str | None,
    policy: RecordPolicy,
    quarantine: Quarantine,
) -> SelectedShard:
    """Return the kept documents of a shard as an iterable of batches with `columns`."""
    fields = [name for name in OPTIONAL if rule is not None and name in rule.names]
    aligned = AlignedShard(
        root,
        work.shard,
        tuple(dict.fromkeys(("id", "text", "source", *columns, *fields))),
        work.sources,
        work.fields,
        default_source,
        digests=True,
    ).open(max_record_bytes=policy.max_record_bytes, quarantine=quarantine)
    return SelectedShard(aligned, rule, quarantine)


def rule_notes(counts: Mapping[str, float]) -> tuple[str, ...]:
    """Return warnings for parts of a rule that hold for no row or for every row."""
    notes = []
    for name, count in counts.items():
        part = name.removeprefix("where ")
        if part == name:
            continue
        shown = shortened(part)
        if count == 0:
            notes.append(f"{shown} holds for none of the rows: nothing can be kept by it")
        elif count == counts.get("documents_in", 0) - counts.get("bad_records", 0):
            notes.append(f"{shown} holds for every row: it drops nothing")
    return tuple(notes)
