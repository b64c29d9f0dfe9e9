"""Options of a mix besides its `where` rule, and the recipe that they become once they are resolved against the attributes that are there."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from msgspec import Struct

from dolma_dask.errors import UsageError
from dolma_dask.formats.json.attributes import AttributeKind
from dolma_dask.io.records import RuleCount
from dolma_dask.options.base import Opt, Options, fields_of, read_json, recorded
from dolma_dask.reading.tombstones import Tombstones
from dolma_dask.rules.downsampling import GroupCuts
from dolma_dask.rules.filter_columns import ATTRIBUTE_PREFIX
from dolma_dask.rules.filters import Filter, Syntax, check_expression
from dolma_dask.rules.replacements import Replacement, make_replacement

ReplaceLike = str | Mapping[str, Any] | Replacement
"""A rule of span replacement: its keys, also as JSON text, or the object."""

FilterKind = Literal["where", "include", "exclude"]

BAD_RECORD = "bad record"
"""Name of what drops a line that cannot be read."""


def replacements_of(given: Any) -> tuple[Replacement, ...]:
    """Return rules of span replacement, as the command line or Python gives them."""
    several = [given] if isinstance(given, str | Mapping | Replacement) else given
    expected = (
        'an object in JSON, such as {"span": "$.attributes.<key>", "min_score": 0.5, "replacement": ""}.'
    )
    return tuple(
        make_replacement(read_json("the replacement", item, expected) if isinstance(item, str) else item)
        for item in several
    )


def _sample_of(given: Any) -> float | None:
    is_rate = isinstance(given, int | float) and not isinstance(given, bool) and 0 < given < 1e6
    if given is not None and not is_rate:
        raise UsageError(f"sample={given!r}; expected how often each document is taken, such as 0.3 or 2.5.")
    return given  # type: ignore[no-any-return]


@dataclass(frozen=True, kw_only=True)
class RecipeOptions(Options):
    """Options that decide what is done to documents, as `mix` and the toolkit's mixer take them."""

    include: Annotated[
        Sequence[str],
        Opt(
            "Filters in JSONPath or jq, as the Dolma toolkit has them: keep only documents that one of them matches. An attribute that no row has is "
            "an error, or a note if the filter expects that it is missing: `@.k && @.k[0] ...`, `.attributes.k // []`.",
            may_be_empty=True,
        ),
    ] = ()
    exclude: Annotated[
        Sequence[str],
        Opt("Filters of the same kind: drop the documents that one of them matches.", may_be_empty=True),
    ] = ()
    syntax: Annotated[Syntax, Opt("Language of the filters.")] = "jsonpath"
    replace: Annotated[
        Sequence[ReplaceLike],
        Opt(
            "Spans to replace, each with the keys span, min_score, max_score, replacement and syntax, as JSON: "
            '\'{"span": "$.attributes.pii__pii__EMAIL_ADDRESS", "min_score": 0.5, "replacement": "|||EMAIL|||"}\'. '
            "Those with a score of min_score or more, and below max_score, are replaced; {} stands for the span's text.",
            kind="list of dict",
            convert=replacements_of,
        ),
    ] = ()
    merge_attributes: Annotated[
        bool,
        Opt(
            "Write the attributes of the sets in `attributes` into the documents, as the Dolma toolkit does."
        ),
    ] = False
    discard_fields: Annotated[
        Sequence[str], Opt("Fields that the new documents do not have.", may_be_empty=True)
    ] = ()
    min_text_length: Annotated[
        int,
        Opt(
            "Bytes of text, without white space around it, that a document needs after replacement.",
            min=0,
            expected="a number of bytes, 0 or more",
        ),
    ] = 0
    provenance: Annotated[
        bool, Opt("Write into the metadata where each document comes from: file name and line.")
    ] = False
    sample: Annotated[
        float | None,
        Opt(
            "How often each document is taken: 0.3 for three of ten, 2.5 for each twice and half of them once more; selected by a hash of source and "
            "id.",
            convert=_sample_of,
        ),
    ] = None
    seed: Annotated[
        int,
        Opt(
            "Seed of the hash of `sample` and `downsample`, and of the shuffle.",
            min=0,
            max=2**64 - 1,
            expected="a whole number from 0 to 2**64 - 1",
        ),
    ] = 0

    def check(self) -> None:
        """Refuse filters that cannot be read."""
        super().check()
        for text in (*self.include, *self.exclude):
            check_expression(text, self.syntax)

    @property
    def replacements(self) -> tuple[Replacement, ...]:
        """Rules of span replacement."""
        return replacements_of(self.replace)

    @property
    def moves_spans(self) -> bool:
        """True if spans in attributes of texts that are changed move with their text."""
        return True

    @property
    def rate(self) -> float | None:
        """Number of times that each document is taken; None: once."""
        return None if self.sample is None or self.sample == 1 else float(self.sample)

    def notes(self) -> Iterator[str]:
        """Yield what a person may not have meant."""
        if self.rate is not None and self.rate > 1:
            yield f"sample={self.rate:g} takes each document {self.rate:g} times; a share of them is a number below 1"

    def recipe_params(self) -> dict[str, Any]:
        """Return what decides the documents, without what was not requested, for keys and journals."""
        known = {field.name: getattr(self, field.name) for field in fields_of(RecipeOptions)}
        params = known | {
            "syntax": self.syntax if self.include or self.exclude else None,
            "replace": [item.to_json() for item in self.replacements],
            "sample": None,
            "sample_rate": self.rate,
            "seed": None if self.rate is None else self.seed,
        }
        return {name: recorded(value) for name, value in params.items() if value}

    @property
    def expressions(self) -> tuple[tuple[str, Syntax], ...]:
        """All expressions that may look at attributes, with their languages."""
        filters = [(text, self.syntax) for text in (*self.include, *self.exclude)]
        spans = [(item.span, item.syntax) for item in self.replacements]
        return (*filters, *spans, *(item.selector() for item in self.replacements if item.selects))


@dataclass(frozen=True, kw_only=True)
class SpanOptions(RecipeOptions):
    """`RecipeOptions`, and what happens to the spans of texts that are changed."""

    keep_spans: bool = False  # attributes stay as they are, though their spans point elsewhere then

    @property
    def moves_spans(self) -> bool:
        """True if spans in attributes of texts that are changed move with their text."""
        return not self.keep_spans

    def recipe_params(self) -> dict[str, Any]:
        """Return what decides the documents; see `RecipeOptions`."""
        params = super().recipe_params()
        return params | ({"keep_spans": True} if self.keep_spans and self.replacements else {})


class SpanWork(Struct, frozen=True):
    """A rule of replacement as a worker applies it."""

    rule: Replacement
    column: str | None
    """Strings that replace the spans; None: the replacement itself, or a look at every document."""

    @property
    def is_slow(self) -> bool:
        """True if every document is looked at."""
        return self.rule.key is None or (self.rule.selects and self.column is None)


class Recipe(Struct, frozen=True):
    """Everything that a worker does to the rows of a dataset."""

    options: RecipeOptions
    filters: Mapping[tuple[FilterKind, str], Filter]
    """By kind and text: parts of the `where` rule, over columns of one set (`prefix_of`), and filters, over those of all (`ATTRIBUTE_PREFIX`)."""
    spans: tuple[SpanWork, ...]
    columns: Mapping[str, tuple[str, ...]]
    """Attribute keys that filters and replacements need -> sets that have them, of which later ones win."""
    lists: frozenset[str]  # those of these keys that are columns of spans
    own: Mapping[str, AttributeKind]  # those that documents themselves may have
    objects: tuple[str, ...]  # sets whose whole objects are needed, of which later ones win
    beside: Mapping[str, str] = {}
    """Further columns that are read: full name -> name in a worker."""
    cuts: GroupCuts | None = None  # of a mix that is downsampled
    removed: Tombstones = Tombstones()  # documents that were taken down

    @property
    def is_slow(self) -> bool:
        """True if documents are looked at one by one."""
        return any(item.is_slow for item in self.filters.values()) or any(span.is_slow for span in self.spans)

    @property
    def changes_nothing(self) -> bool:
        """True if documents that are taken stay as they are."""
        options = self.options
        changes = options.replace, options.min_text_length, options.discard_fields, options.provenance
        return not any((*changes, options.merge_attributes))

    @property
    def joins(self) -> bool:
        """True if what becomes of a document depends on its columns alone, so that those of several shards may be looked at together."""
        is_plain = self.cuts is None and self.options.rate is None and not self.removed
        return is_plain and self.changes_nothing

    @property
    def conditions(self) -> tuple[str, ...]:
        """Names of the conditions that drop documents, as the summary has them: of bad records, parts of the rule that do not hold, filters none of which
        lets a document in, and filters that match.
        """
        names: dict[FilterKind, list[str]] = {"where": [], "include": [], "exclude": []}
        for (kind, text), item in self.filters.items():
            names[kind].append(RuleCount(kind, text, short=item.short).name)
        includes = [" or ".join(names["include"])] if names["include"] else []
        return (BAD_RECORD, *names["where"], *includes, *names["exclude"])

    @property
    def looks_inside(self) -> bool:
        """True if the documents' own attributes matter."""
        return bool(self.columns or self.spans or self.is_slow or self.options.merge_attributes)


def columns_of(filters: Mapping[Any, Filter], spans: Sequence[SpanWork]) -> frozenset[str]:
    """Return the columns that rules, filters and replacements read."""
    columns = {name for item in filters.values() if item.rule is not None for name in item.rule.names}
    columns |= {ATTRIBUTE_PREFIX + span.rule.key for span in spans if span.rule.key is not None}
    return frozenset(columns | {span.column for span in spans if span.column is not None})


def prefix_of(name: str) -> str:
    """Return what stands before the keys of an attribute set in the columns of a worker."""
    return f"\x1f{name}\x1f"
