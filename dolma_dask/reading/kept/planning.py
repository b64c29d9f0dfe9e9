"""Planning of a mix, from its options to the columns that are read: mistakes in filters and replacements show here, before a shard is read.

Cost: the first rows of the files that no journal knows, and the first rows of eight document files.
"""

from collections.abc import Iterator, Mapping, Sequence, Set
from functools import lru_cache
from itertools import pairwise, product
from typing import Any

from dolma_dask.dataset import Dataset, Shard
from dolma_dask.errors import DolmaDaskError, UsageError
from dolma_dask.formats import layout
from dolma_dask.formats.json.attributes import AttributeKind, sample_kinds
from dolma_dask.formats.json.exact import LineError, parse_object
from dolma_dask.formats.layout import format_of
from dolma_dask.formats.metadata import PREFIX as METADATA_PREFIX
from dolma_dask.io import files
from dolma_dask.io.stream import StoredFile, compression_of, read_lines
from dolma_dask.reading.catalog import Catalog, check_clash
from dolma_dask.reading.columns import Columns, find_fields
from dolma_dask.reading.kept.recipe import FilterKind, Recipe, RecipeOptions, SpanWork, columns_of, prefix_of
from dolma_dask.reading.kept.transform import Mixture
from dolma_dask.reading.selection import Selection, conjuncts
from dolma_dask.reading.sets import AttributeSets
from dolma_dask.reading.together import duplicate_notes
from dolma_dask.reading.tombstones import tombstones_above
from dolma_dask.rules.filter_columns import (
    ATTRIBUTE_PREFIX,
    LISTS,
    PathColumn,
    RowKinds,
    find_column,
    plain_steps,
)
from dolma_dask.rules.filters import Filter, attributes_in, guarded_in, make_filter
from dolma_dask.rules.replacements import Replacement
from dolma_dask.rules.rules import Rule
from dolma_dask.rules.values import Name, unknown_name


def make_mixture(
    selection: Selection,
    options: RecipeOptions | None = None,
    names: Sequence[str] = (),
    *,
    in_order: bool = False,
    beside: Columns | None = None,
) -> Mixture:
    """Resolve the options of a mix.

    `names` are the attribute sets to read for filters and replacements; empty: those that have what they need. With `in_order` a key may stand in
    several sets, of which later ones win, and all sets are read. `beside` are further columns to read. Raises `ExpressionError` for an expression that cannot be read, `UsageError` for an
    attribute that is in no set, or in several.
    """
    return _Planner(selection, options or RecipeOptions(), tuple(names), in_order, beside).plan()


class _Planner:
    """Columns and sets that have to be read."""

    def __init__(
        self,
        selection: Selection,
        options: RecipeOptions,
        names: tuple[str, ...],
        in_order: bool,
        beside: Columns | None,
    ) -> None:
        self.selection = selection
        self.dataset = selection.dataset
        self.options = options
        self.names = names
        self.in_order = in_order
        self.beside = beside
        self.are_named = bool(names) or in_order  # the sets to read; else those that have what is needed
        self.catalog = Catalog(self.dataset)
        self.mentioned = [attributes_in(text, syntax) for text, syntax in options.expressions]
        self.notes: list[str] = []
        self.required = _required(options)
        self.field = lru_cache(None)(self._field)

    def plan(self) -> Mixture:
        looks = bool(self.mentioned) or self.options.merge_attributes
        own = own_attributes(self.dataset) if looks else {}
        seen = self.seen_keys()
        requested = frozenset().union(*(keys for keys in self.mentioned if keys is not None))
        unseen = {key for key in requested if not any(_has(keys, key) for keys in seen.values())}
        odd = odd_keys(self.dataset, tuple(seen), unseen)
        every = frozenset(own).union(*seen.values())
        self.check_seen({key for key in unseen if key not in odd and not _has(own, key)}, every, seen)
        known = {
            name: self.catalog.kinds(name)
            for name, keys in seen.items()
            if self.are_named or any(name in sets for sets in odd.values()) or self.touches(keys)
        }
        if not self.are_named:
            holding = {name: [key for key in requested if _has(kinds, key)] for name, kinds in known.items()}
            check_clash(holding, sorted(requested))
        kinds, strange = _merged([own, *known.values()])
        return self.mixture(RowKinds(kinds, strange | odd.keys(), self.field, always=bool(known)), known, own)

    def seen_keys(self) -> dict[str, frozenset[str]]:
        """Return the keys of the sets that may be read, as far as their files can be, by set."""
        names: Sequence[str] = ()
        if self.are_named:
            self.catalog.open(self.names)  # all that were named have to be there
            names = self.names
        elif self.mentioned:
            names = self.dataset.attributes
        return {name: self.catalog.keys(name)[0] for name in names}

    def touches(self, keys: frozenset[str]) -> bool:
        """Tell whether some expression may look at one of `keys`."""
        return any(
            bool(keys) if some is None else any(_has(keys, key) for key in some) for some in self.mentioned
        )

    def check_seen(self, unseen: Set[str], every: frozenset[str], seen: Mapping[str, frozenset[str]]) -> None:
        """Refuse attributes that cannot be there, and speak of those that no row has which was looked at."""
        for key in sorted(unseen):
            near = unknown_name(key, every).replace("column", "attribute")
            if key in self.required and not _is_plausible(key, every, seen):
                raise UsageError(
                    f"no row has the attribute {key!r}: {near}. Correct the expression, or make the attributes: dolma-dask tag.",
                    name=key,
                )
            hint = "" if _is_plausible(key, every, seen) else f": {near}"
            self.notes.append(f"no row that was looked at has the attribute {key}{hint}")

    def _field(self, name: str) -> AttributeKind | None:
        """Return the kind of a field of the metadata if it has one kind in the rows that are looked at."""
        try:
            return find_fields(self.dataset, [name], in_all_rows=False)[name]
        except DolmaDaskError:
            return None

    def mixture(
        self,
        kinds: RowKinds,
        known: Mapping[str, Mapping[str, AttributeKind]],
        own: Mapping[str, AttributeKind],
    ) -> Mixture:
        """Compile all expressions, and collect what they read."""
        options, syntax = self.options, self.options.syntax
        where, keys_of_rule = self.where()
        filters: dict[tuple[FilterKind, str], Filter] = {("where", item.text): item for item in where}
        filters |= {("include", text): make_filter(text, syntax, kinds) for text in options.include}
        filters |= {("exclude", text): make_filter(text, syntax, kinds) for text in options.exclude}
        spans = tuple(_span_work(item, kinds) for item in options.replacements)
        slow = [text for (_, text), item in filters.items() if item.is_slow]
        slow += [item.rule.span for item in spans if item.is_slow]
        self.notes += [
            f"{text} has no form over columns: every document is parsed for it, which is slow"
            for text in slow
        ]
        names = columns_of(filters, spans)
        keys = sorted(
            name.removeprefix(ATTRIBUTE_PREFIX) for name in names if name.startswith(ATTRIBUTE_PREFIX)
        )
        holders = {key: tuple(name for name, kinds in known.items() if key in kinds) for key in keys}
        to_read = {
            key: _kind_to_read([known[name][key] for name in holders[key]], own.get(key)) for key in keys
        }
        needed = tuple(known) if self.in_order or slow else frozenset().union(*holders.values())
        columns, keys_beside = self.columns_beside()
        others = [name for name in keys_beside if name not in needed]
        sets = self.all_sets([*others, *(name for name in known if name in needed)])
        read = {
            name: keys_of_rule.get(name, {})
            | keys_beside.get(name, {})
            | {key: to_read[key] for key in keys if name in holders[key]}
            for name in (sets.files if sets else ())
        }
        flags = sets.flags if sets else {}
        flagging = [
            name
            for name in read
            if any(flags.get(f"{name}/{key}") in ("dedupe", "attach") for key in read[name])
        ]
        self.notes += duplicate_notes(self.dataset.root, flagging)
        fields = {**self.selection.fields, **(self.beside.fields if self.beside else {})}
        for name in names - fields.keys():
            if name.startswith(METADATA_PREFIX) and (kind := self.field(name)) is not None:
                fields[name] = kind
        recipe = Recipe(
            options,
            filters,
            spans,
            columns=holders,
            lists=frozenset(key for key, kind in to_read.items() if kind == "spans"),
            own={key: kind for key, kind in to_read.items() if key in own},
            objects=tuple(known) if slow or options.merge_attributes else (),
            beside=columns,
            removed=tombstones_above(self.dataset.root),
        )
        return Mixture(self.selection, recipe, sets, read, fields, (*self.notes, *recipe.options.notes()))

    def where(self) -> tuple[list[Filter], dict[str, dict[str, AttributeKind]]]:
        """Return the parts of the `where` rule, and by set the keys that they name."""
        rule, sets = self.selection.rule, self.selection.sets
        read: dict[str, dict[str, AttributeKind]] = {}
        columns = {}
        if rule is not None and sets is not None:
            for column in rule.names & sets.columns.keys():
                name, key = sets.columns[column]
                read.setdefault(name, {})[key] = sets.kind(column)
                columns[column] = prefix_of(name) + key
        return [_filter_of(part, columns) for part in conjuncts(rule)], read

    def columns_beside(self) -> tuple[dict[str, str], dict[str, dict[str, AttributeKind]]]:
        """Return the names of further columns in a worker, and by set those that are attribute keys."""
        sets = self.beside.sets if self.beside else None
        columns: dict[str, str] = {}
        read: dict[str, dict[str, AttributeKind]] = {}
        for name in self.beside.names if self.beside else ():
            columns[name] = name
            if sets is not None and name in sets.columns:
                holder, key = sets.columns[name]
                columns[name] = prefix_of(holder) + key
                read.setdefault(holder, {})[key] = sets.kind(name)
        return columns, read

    def all_sets(self, names: Sequence[str]) -> AttributeSets | None:
        """Open the sets of filters and replacements, and those of the `where` rule before them."""
        of_rule = self.selection.sets
        if not names:
            return of_rule
        return self.catalog.open(
            [*(name for name in (of_rule.files if of_rule else ()) if name not in names), *names]
        )


def _required(options: RecipeOptions) -> frozenset[str]:
    """Return the attributes without which an expression cannot be meant: all but those that filters guard, and spans that are replaced."""
    of_filters = (
        (attributes_in(text, options.syntax) or frozenset()) - guarded_in(text, options.syntax)
        for text in (*options.include, *options.exclude)
    )
    of_texts = (
        attributes_in(*item.selector()) or frozenset() for item in options.replacements if item.selects
    )
    return frozenset().union(*of_filters, *of_texts)


def _is_plausible(key: str, every: frozenset[str], seen: Mapping[str, frozenset[str]]) -> bool:
    """Tell whether a key that was not seen may be there: its tagger wrote others, or nothing at all into a set."""
    start, mark, _ = key.rpartition("__")
    if mark and any(other.startswith(start + mark) for other in every):
        return True
    return any(not keys for keys in seen.values())


def _kind_to_read(kinds: Sequence[AttributeKind], own: AttributeKind | None) -> AttributeKind:
    """Return as what a key is read that sets have, or documents themselves: lists of spans always as such."""
    kind = kinds[0] if kinds else own or "spans"
    return "spans" if kind in LISTS else kind


def _filter_of(part: Rule, columns: Mapping[str, str]) -> Filter:
    text = str(part)
    return Filter(text, "where", part.renamed(columns), "" if part.short == text else part.short)


def _span_work(rule: Replacement, kinds: RowKinds) -> SpanWork:
    key = rule.key
    if key is not None and (key in kinds.odd or kinds.attributes.get(key, "spans") not in LISTS):
        raise UsageError(
            f"{rule.span} holds no spans; expected an attribute with spans [start, end, score]. Name another.",
            name=key,
        )
    path = rule.path() if rule.selects else None
    match path and find_column(plain_steps(path.steps), kinds):
        case PathColumn("string", Name(column)):
            return SpanWork(rule, column)
    return SpanWork(rule, None)


def _has(keys: Any, key: str) -> bool:
    """Tell whether a key is among `keys`, by itself or as an object."""
    return key in keys or any(known.startswith(f"{key}.") for known in keys)


def _merged(
    sets: Sequence[Mapping[str, AttributeKind]],
) -> tuple[dict[str, AttributeKind], frozenset[str]]:
    """Return the kinds of all keys, and the keys that have values of different kinds in different sets."""
    merged: dict[str, AttributeKind] = {}
    odd: set[str] = set()
    for kinds in sets:
        for key, kind in kinds.items():
            known = merged.setdefault(key, kind)
            if known != kind and not {known, kind} <= set(LISTS):
                odd.add(key)
    return merged, frozenset(odd)


SHARDS = 8
"""Files, evenly spread, that are looked into."""

ROWS = 1000
_SAMPLE_BYTES = 1 << 20


def own_attributes(dataset: Dataset) -> dict[str, AttributeKind]:
    """Return the attributes that stand in the documents themselves, as the first rows of some shards show them."""
    urls = (dataset.url(shard.document) for shard in _spread(dataset.shards))
    return sample_kinds([line for url in urls for line in _first_lines(url, b'"attributes"')], "nested")


def odd_keys(dataset: Dataset, names: Sequence[str], keys: Set[str]) -> dict[str, frozenset[str]]:
    """Return which of some keys, which no column holds, stand in attribute files all the same, and in the files of which sets.

    Their values are of several types, for example.
    """
    sets_of: dict[str, set[str]] = {}
    for name, shard in product(names if keys else (), _spread(dataset.shards)):
        for line in _attribute_lines(dataset, name, shard, keys):
            for key in keys:
                if name not in sets_of.get(key, ()) and _has_value(line, key):
                    sets_of.setdefault(key, set()).add(name)
    return {key: frozenset(sets) for key, sets in sets_of.items()}


def _attribute_lines(dataset: Dataset, name: str, shard: Shard, keys: Set[str]) -> Iterator[bytes]:
    for path in layout.attribute_candidates(shard.path):
        url = dataset.url(f"{layout.ATTRIBUTES}/{name}/{path}")
        if files.stat(url) is not None:
            yield from _first_lines(url, *(key.encode() for key in keys))
            return


def _has_value(line: bytes, key: str) -> bool:
    raw = _member(line, "attributes")
    inside = raw if raw is not None and raw.startswith(b"{") else line
    return _member(inside, key) is not None


def _member(line: bytes, name: str) -> bytes | None:
    try:
        raw = parse_object(line).get(name, b"null")
    except LineError:
        return None
    return None if raw == b"null" else raw


def _spread(shards: Sequence[Shard]) -> Sequence[Shard]:
    return shards[:: max(1, len(shards) // SHARDS)][:SHARDS]


def _first_lines(url: str, *words: bytes) -> Iterator[bytes]:
    """Yield lines from the start of a file that hold one of some words; mistakes in the file are left to its reader."""
    if format_of(url) == "parquet":
        return
    stored = StoredFile(url)
    try:
        block = next(read_lines(stored, compression_of(url), block_bytes=_SAMPLE_BYTES), None)
    except DolmaDaskError:
        return
    finally:
        stored.close()
    if block is None or block.oversize_bytes:
        return
    data = block.data.tobytes()
    if any(word in data for word in words):
        lines = (data[start:stop] for start, stop in pairwise(block.starts[: ROWS + 1].tolist()))
        yield from (line for line in lines if any(word in line for word in words))
