"""What is asked of a mix besides its `where` rule: filters, replacements, what is written and how often."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from dolma_dask.errors import UsageError
from dolma_dask.mixing.filters import Syntax, check_expression, check_syntax
from dolma_dask.mixing.replacements import Replacement, make_replacement
from dolma_dask.stages.options import (
    words_of,
)

ReplaceLike = str | Mapping[str, Any] | Replacement
"""A rule of span replacement: its keys, also as JSON text, or the object."""


@dataclass(frozen=True)
class Wishes:
    """What is asked of a mix besides a `where` rule.

    Attributes
    ----------
    include, exclude : tuple of str
        Filters; a document is kept if any of the former matches, or there is none, and none of the latter.
    syntax : {"jsonpath", "jq"}
        Their language.
    replacements : tuple of Replacement
        Spans to replace.
    discard_fields : tuple of str
        Members that are left out of the documents.
    min_text_length : int
        UTF-8 bytes of the text, without white space around it, that a document needs after replacement.
    provenance : bool
        Whether ``metadata.provenance`` says where a document comes from.
    merge_attributes : bool
        Whether attributes are written into the documents.
    sample_rate : float or None
        How often each document is taken; 0.3: three of ten, 2.5: each twice, half of them once more.
    seed : int
        Of the sample.
    """

    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    syntax: Syntax = "jsonpath"
    replacements: tuple[Replacement, ...] = ()
    discard_fields: tuple[str, ...] = ()
    min_text_length: int = 0
    provenance: bool = False
    merge_attributes: bool = False
    sample_rate: float | None = None
    seed: int = 0

    def params(self) -> dict[str, Any]:
        """Return what decides the output, without what is not asked."""
        asked = {
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
        return {name: value for name, value in asked.items() if value}

    @property
    def expressions(self) -> tuple[tuple[str, Syntax], ...]:
        """All expressions that may look at attributes, with their languages."""
        filters = [(text, self.syntax) for text in (*self.include, *self.exclude)]
        spans = [(item.span, item.syntax) for item in self.replacements]
        return (*filters, *spans, *(item.selector() for item in self.replacements if item.selects))


def make_wishes(
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
) -> Wishes:
    """Check what is asked of a mix besides its rule.

    Raises
    ------
    ExpressionError
        A filter cannot be read.
    UsageError
        A value cannot be.
    """
    language = check_syntax(syntax)
    filters = words_of("include", include), words_of("exclude", exclude)
    for text in (*filters[0], *filters[1]):
        check_expression(text, language)
    if isinstance(min_text_length, bool) or not isinstance(min_text_length, int) or min_text_length < 0:
        raise UsageError(f"min_text_length={min_text_length!r}; expected a number of bytes, 0 or more.")
    if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed < 2**64:
        raise UsageError(f"seed={seed!r}; expected a whole number from 0 to 2**64 - 1.")
    return Wishes(
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
