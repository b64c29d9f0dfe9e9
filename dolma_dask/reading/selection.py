"""A `where` rule resolved against a dataset: full names, the attribute sets to read, and types, checked before any shard is read.

The rule is evaluated in `dolma_dask.reading.kept.transform`.
"""

from collections.abc import Mapping, Sequence

import pyarrow as pa
from msgspec import Struct

from dolma_dask.dataset import Dataset
from dolma_dask.display import shortened
from dolma_dask.errors import UsageError
from dolma_dask.formats.documents import OPTIONAL
from dolma_dask.formats.json.attributes import AttributeKind, value_kind
from dolma_dask.formats.json.lines import SPAN
from dolma_dask.formats.metadata import is_field
from dolma_dask.reading.catalog import Catalog
from dolma_dask.reading.columns import find_fields, find_metrics, look_up
from dolma_dask.reading.sets import AttributeSets, columns_of
from dolma_dask.results.summary import MAX_RULE, Summary
from dolma_dask.rules.rules import And, Rule
from dolma_dask.rules.values import Name
from dolma_dask.rules.where import NO_COLUMNS, parse, resolve

DOCUMENT_NAMES = ("id", "source", *OPTIONAL)
"""Document columns that a rule may name besides attribute keys and fields of the metadata."""


class Selection(Struct, frozen=True):
    """A dataset with a rule over its documents."""

    dataset: Dataset  # all of its shards
    rule: Rule | None  # None keeps every document
    sets: AttributeSets | None  # the attribute sets read beside the documents
    fields: Mapping[str, AttributeKind] = {}
    """Fields of the metadata that the rule names."""


def select(dataset: Dataset, where: str | Rule | None, attributes: Sequence[str]) -> Selection:
    """Resolve a rule against a dataset and some of its attribute sets, by default those that the rule needs.

    Raises `ExpressionError`: the rule cannot be parsed, names an unknown column or one that may be several, or compares values of different types; `UsageError`: a key of
    the rule has many spans per document; `MissingAttributesError`: a shard lacks a needed attribute file.
    """
    rule = parse(where) if isinstance(where, str) else where
    if rule is None:
        return Selection(dataset, None, Catalog(dataset).open(attributes) if attributes else None)
    catalog, sets = Catalog(dataset), None
    metrics = find_metrics(catalog, sorted(rule.names), attributes)
    asked = rule.substituted({name: metric.short for name, metric in metrics.items()})
    fields = find_fields(dataset, sorted(name for name in asked.names if is_field(name)), spell=Name)
    known = (*DOCUMENT_NAMES, *fields)
    if attributes:
        sets = catalog.open(attributes)
        full, _ = look_up(catalog, attributes, lambda keys: resolve(asked, [*known, *keys]))
    elif not asked.names <= set(known):
        full, names = _from_all(catalog, asked, known)
        sets = catalog.open(names) if names else None
    else:
        full = asked
    _check_kinds(full, sets, fields)
    return Selection(dataset, full, sets, fields)


def _from_all(catalog: Catalog, rule: Rule, documents: Sequence[str]) -> tuple[Rule, list[str]]:
    """Resolve a rule against all sets, of which those that it does not need may be unfinished or clash; return those that it needs."""
    dataset = catalog.dataset
    unknown = rule.names - set(documents)
    if not dataset.attributes and unknown.isdisjoint(NO_COLUMNS):
        raise UsageError(
            f"the rule names {', '.join(sorted(unknown))}, but {dataset.root} has no attributes. Signals are made by dolma-dask tag, flags by dedupe. A field of the "
            f"metadata is named {Name(f'metadata.{min(unknown)}')}."
        )
    rule, keys = look_up(
        catalog, dataset.attributes, lambda known: resolve(rule, sorted({*documents, *known}))
    )
    needed = rule.names - set(documents)
    places = columns_of(keys)
    return rule, [name for name in keys if name in {places[column][0] for column in needed}]


_EMPTY = {
    "document": pa.array([], pa.float64()),
    "number": pa.array([], pa.float64()),
    "bool": pa.array([], pa.bool_()),
    "string": pa.array([], pa.large_string()),
    "spans": pa.array([], pa.list_(SPAN)),
}
"""A column without rows for each kind of attribute key."""


def _check_kinds(rule: Rule, sets: AttributeSets | None, fields: Mapping[str, AttributeKind]) -> None:
    """Refuse a rule that its columns cannot satisfy before any shard is read: types are known without rows."""
    kinds = {name: sets.kind(name) for name in sets.columns} if sets else {}
    kinds.update(fields)
    for name in sorted(rule.names):
        if kinds.get(name) == "spans" and name not in rule.lists:
            raise UsageError(
                f"{name!r} has many spans per document; a `where` rule needs one value per document. Use a document-level key{_beside(name, sets)}."
            )
    columns = dict.fromkeys(DOCUMENT_NAMES, _EMPTY["string"])
    rule.mask(
        {**columns, **{name: _EMPTY[value_kind(kind)] for name, kind in kinds.items() if name in rule.names}}
    )


def _beside(name: str, sets: AttributeSets | None) -> str:
    """Name the first key with one value per document in the set of a key of spans."""
    if sets is None or name not in sets.columns:
        return ""
    own = [column for column, (holder, _) in sets.columns.items() if holder == sets.columns[name][0]]
    return next((f", such as {column}" for column in own if sets.kind(column) != "spans"), "")


def conjuncts(rule: Rule | None) -> tuple[Rule, ...]:
    """Return the parts that all must hold, each once."""
    return tuple(dict.fromkeys(_parts(rule)))


def written_conjuncts(rule: Rule | None, written: Rule | None) -> dict[Rule, Rule]:
    """Return each of the `conjuncts` of `rule` with what the user wrote for it; `rule` is `written` with its names in full."""
    pairs: dict[Rule, Rule] = {}
    for part, words in zip(_parts(rule), _parts(written), strict=True):
        pairs.setdefault(part, words)
    return pairs


def spelled_conjuncts(rule: Rule | None, written: Rule | None) -> tuple[str, ...]:
    """Return how the user wrote each of the `conjuncts` of `rule`, which is `written` with its names in full."""
    return tuple(words.short for words in written_conjuncts(rule, written).values())


def _parts(rule: Rule | None) -> tuple[Rule, ...]:
    if rule is None:
        return ()
    return rule.rules if isinstance(rule, And) else (rule,)


def rule_notes(summary: Summary) -> tuple[str, ...]:
    """Return warnings for parts of a rule that hold for no row or for every row, and for filters that match none."""
    counts = summary.counts
    readable = counts.get("documents_in", 0) - counts.get("bad_records", 0)
    notes = []
    for rule in summary.rules:
        if rule.kind != "where":
            effect = "it lets nothing in" if rule.kind == "include" else "it drops nothing"
            notes += [] if rule.matched else [f"{rule.rule} matches none of the documents: {effect}"]
        elif rule.matched == 0:
            notes.append(
                f"{shortened(rule.short or rule.rule, MAX_RULE)} holds for none of the rows: nothing can be kept by it"
            )
        elif rule.matched == readable:
            notes.append(
                f"{shortened(rule.short or rule.rule, MAX_RULE)} holds for every row: it drops nothing"
            )
    return tuple(notes)
