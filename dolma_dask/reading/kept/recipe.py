"""Options of a mix besides its `where` rule, and the recipe that they become once they are resolved against the attributes that are there."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from dolma_dask.errors import UsageError
from dolma_dask.formats.json.attributes import AttributeKind
from dolma_dask.options.shared import from_json
from dolma_dask.rules.downsampling import Cuts
from dolma_dask.rules.filter_columns import ATTRIBUTE_PREFIX
from dolma_dask.rules.filters import Filter, Syntax, check_expression, check_syntax
from dolma_dask.rules.replacements import Replacement, make_replacement

ReplaceLike = str | Mapping[str, Any] | Replacement
"""A rule of span replacement: its keys, also as JSON text, or the object."""

FilterKind = Literal["where", "include", "exclude"]


@dataclass(frozen=True)
class MixOptions:
    """Options of a mix that decide what is done to documents; see `dolma_dask.mix`."""

    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    syntax: Syntax = "jsonpath"
    replacements: tuple[Replacement, ...] = ()
    discard_fields: tuple[str, ...] = ()
    min_text_length: int = 0
    provenance: bool = False
    merge_attributes: bool = False
    keep_spans: bool = False  # attributes of texts that are changed stay as they are, though their spans point elsewhere then
    sample: float | None = None
    seed: int = 0  # of the sample

    def __post_init__(self) -> None:
        check_syntax(self.syntax)
        for text in (*self.include, *self.exclude):
            check_expression(text, self.syntax)
        least, seed, sample = self.min_text_length, self.seed, self.sample
        if isinstance(least, bool) or not isinstance(least, int) or least < 0:
            raise UsageError(f"min_text_length={least!r}; expected a number of bytes, 0 or more.")
        if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed < 2**64:
            raise UsageError(f"seed={seed!r}; expected a whole number from 0 to 2**64 - 1.")
        is_rate = isinstance(sample, int | float) and not isinstance(sample, bool) and 0 < sample < 1e6
        if sample is not None and not is_rate:
            raise UsageError(
                f"sample={sample!r}; expected how often each document is taken, such as 0.3 or 2.5."
            )

    @property
    def rate(self) -> float | None:
        """How often each document is taken; None: once."""
        return None if self.sample is None or self.sample == 1 else float(self.sample)

    def notes(self) -> Iterator[str]:
        """Yield what a person may not have meant."""
        if self.rate is not None and self.rate > 1:
            yield f"sample={self.rate:g} takes each document {self.rate:g} times; a share of them is a number below 1"

    def params(self) -> dict[str, Any]:
        """Return what decides the output, without what was not requested."""
        params = {
            "include": list(self.include),
            "exclude": list(self.exclude),
            "syntax": self.syntax if self.include or self.exclude else None,
            "replace": [item.to_json() for item in self.replacements],
            "discard_fields": list(self.discard_fields),
            "min_text_length": self.min_text_length,
            "provenance": self.provenance,
            "merge_attributes": self.merge_attributes,
            "keep_spans": self.keep_spans and bool(self.replacements),
            "sample_rate": self.rate,
            "seed": None if self.rate is None else self.seed,
        }
        return {name: value for name, value in params.items() if value}

    @property
    def expressions(self) -> tuple[tuple[str, Syntax], ...]:
        """All expressions that may look at attributes, with their languages."""
        filters = [(text, self.syntax) for text in (*self.include, *self.exclude)]
        spans = [(item.span, item.syntax) for item in self.replacements]
        return (*filters, *spans, *(item.selector() for item in self.replacements if item.selects))


def replacements_of(given: Sequence[ReplaceLike] | ReplaceLike) -> tuple[Replacement, ...]:
    """Return rules of span replacement, as the command line or Python gives them."""
    several = [given] if isinstance(given, str | Mapping | Replacement) else given
    expected = (
        'an object in JSON, such as {"span": "$.attributes.<key>", "min_score": 0.5, "replacement": ""}.'
    )
    return tuple(
        make_replacement(from_json("the replacement", item, expected) if isinstance(item, str) else item)
        for item in several
    )


@dataclass(frozen=True)
class SpanWork:
    """A rule of replacement as a worker applies it."""

    rule: Replacement
    column: str | None
    """Strings that replace the spans; None: the replacement itself, or a look at every document."""

    @property
    def is_slow(self) -> bool:
        """True if every document is looked at."""
        return self.rule.key is None or (self.rule.selects and self.column is None)


@dataclass(frozen=True)
class Recipe:
    """Everything that a worker does to the rows of a dataset."""

    options: MixOptions
    filters: Mapping[tuple[FilterKind, str], Filter]
    """By kind and text: parts of the `where` rule, over columns of one set (`prefix_of`), and filters, over those of all (`ATTRIBUTE_PREFIX`)."""
    spans: tuple[SpanWork, ...]
    columns: Mapping[str, tuple[str, ...]]
    """Attribute keys that filters and replacements need -> sets that have them, of which later ones win."""
    lists: frozenset[str]  # those of these keys that are columns of spans
    own: Mapping[str, AttributeKind]  # those that documents themselves may have
    objects: tuple[str, ...]  # sets whose whole objects are needed, of which later ones win
    beside: Mapping[str, str] = field(default_factory=dict)
    """Further columns that are read: full name -> name in a worker."""
    cuts: Cuts | None = None  # of a mix that is downsampled

    @property
    def is_slow(self) -> bool:
        """True if documents are looked at one by one."""
        return any(item.is_slow for item in self.filters.values()) or any(span.is_slow for span in self.spans)

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
