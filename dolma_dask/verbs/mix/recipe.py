"""Options of a mix besides its `where` rule, and the recipe that they become once they are resolved against the attributes that are there."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from dolma_dask.errors import UsageError
from dolma_dask.formats.json.attributes import AttributeKind
from dolma_dask.rules.filters import Filter, Syntax, check_expression, check_syntax
from dolma_dask.rules.replacements import Replacement, make_replacement
from dolma_dask.rules.rules import Rule
from dolma_dask.verbs.options import words_of

ReplaceLike = str | Mapping[str, Any] | Replacement
"""A rule of span replacement: its keys, also as JSON text, or the object."""


@dataclass(frozen=True)
class MixOptions:
    """Options of a mix that decide what is done to documents, checked; see `dolma_dask.mix`."""

    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    syntax: Syntax = "jsonpath"
    replacements: tuple[Replacement, ...] = ()
    discard_fields: tuple[str, ...] = ()
    min_text_length: int = 0
    provenance: bool = False
    merge_attributes: bool = False
    sample_rate: float | None = None
    seed: int = 0  # of the sample

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
            "sample_rate": self.sample_rate,
            "seed": self.seed if self.sample_rate is not None else None,
        }
        return {name: value for name, value in params.items() if value}

    @property
    def expressions(self) -> tuple[tuple[str, Syntax], ...]:
        """All expressions that may look at attributes, with their languages."""
        filters = [(text, self.syntax) for text in (*self.include, *self.exclude)]
        spans = [(item.span, item.syntax) for item in self.replacements]
        return (*filters, *spans, *(item.selector() for item in self.replacements if item.selects))


def make_options(
    *,
    include: Sequence[str] = (),
    exclude: Sequence[str] = (),
    syntax: str = "jsonpath",
    replacements: Sequence[ReplaceLike] | ReplaceLike = (),
    discard_fields: Sequence[str] = (),
    min_text_length: int = 0,
    provenance: bool = False,
    merge_attributes: bool = False,
    sample_rate: float | None = None,
    seed: int = 0,
) -> MixOptions:
    """Check the options of a mix besides its rule."""
    language = check_syntax(syntax)
    filters = words_of("include", include), words_of("exclude", exclude)
    for text in (*filters[0], *filters[1]):
        check_expression(text, language)
    if isinstance(min_text_length, bool) or not isinstance(min_text_length, int) or min_text_length < 0:
        raise UsageError(f"min_text_length={min_text_length!r}; expected a number of bytes, 0 or more.")
    if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed < 2**64:
        raise UsageError(f"seed={seed!r}; expected a whole number from 0 to 2**64 - 1.")
    return MixOptions(
        include=filters[0],
        exclude=filters[1],
        syntax=language,
        replacements=tuple(make_replacement(_from_text(item)) for item in _several(replacements)),
        discard_fields=words_of("discard_fields", discard_fields),
        min_text_length=min_text_length,
        provenance=bool(provenance),
        merge_attributes=merge_attributes,
        sample_rate=_rate(sample_rate),
        seed=seed,
    )


def _several(given: Sequence[ReplaceLike] | ReplaceLike) -> Sequence[ReplaceLike]:
    return [given] if isinstance(given, str | Mapping | Replacement) else given


def _from_text(given: ReplaceLike) -> Mapping[str, Any] | Replacement:
    if not isinstance(given, str):
        return given
    try:
        return msgspec.json.decode(given, type=dict[str, Any])
    except msgspec.DecodeError as error:
        raise UsageError(
            f"cannot read the replacement {given!r}: {error}; expected an object in JSON, such as "
            '{"span": "$.attributes.<key>", "min_score": 0.5, "replacement": ""}.'
        ) from None


def _rate(rate: float | None) -> float | None:
    if rate is None:
        return None
    if isinstance(rate, bool) or not isinstance(rate, int | float) or not 0 < rate < 1e6:
        raise UsageError(f"sample={rate!r}; expected how often each document is taken, such as 0.3 or 2.5.")
    return None if rate == 1 else float(rate)


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

    where: Rule | None = None  # with full names
    where_keys: Mapping[str, str] = field(
        default_factory=dict
    )  # its attribute keys -> sets they are read from
    include: tuple[Filter, ...] = ()
    exclude: tuple[Filter, ...] = ()
    spans: tuple[SpanWork, ...] = ()
    options: MixOptions = field(default_factory=MixOptions)
    columns: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Attribute keys that filters and replacements need -> sets that have them, of which later ones win."""
    lists: frozenset[str] = frozenset()  # those of these keys that are columns of spans
    own: Mapping[str, AttributeKind] = field(default_factory=dict)  # those that documents themselves may have
    objects: tuple[str, ...] = ()  # sets whose whole objects are needed, of which later ones win

    @property
    def names(self) -> frozenset[str]:
        """Columns that rules, filters and replacements read."""
        rules = [rule for rule in (self.where, *(item.rule for item in self.filters)) if rule is not None]
        spans = {span.column for span in self.spans if span.column is not None}
        return frozenset().union(spans, *(rule.names for rule in rules))

    @property
    def filters(self) -> tuple[Filter, ...]:
        """All filters."""
        return (*self.include, *self.exclude)

    @property
    def is_slow(self) -> bool:
        """True if documents are looked at one by one."""
        return any(item.is_slow for item in self.filters) or any(item.is_slow for item in self.spans)

    @property
    def looks_inside(self) -> bool:
        """True if the documents' own attributes matter."""
        return bool(self.columns or self.spans or self.is_slow or self.options.merge_attributes)


def prefix_of(name: str) -> str:
    """Return what stands before the keys of an attribute set in the columns of a worker."""
    return f"{name}\x1f"
