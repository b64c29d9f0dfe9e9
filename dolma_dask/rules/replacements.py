"""Rules of span replacement as people write them: which spans, which scores, and what stands there afterwards."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from difflib import get_close_matches
from typing import Any

from dolma_dask.errors import ExpressionError, UsageError
from dolma_dask.rules.filter_columns import ATTRIBUTES
from dolma_dask.rules.filters import Syntax, check_expression, check_syntax
from dolma_dask.rules.jsonpath import Items, Keys, Path, parse_path

SELECTS = "$"
"""Beginning of a replacement that is a value of the document."""


@dataclass(frozen=True)
class Replacement:
    """Replace the spans of an attribute.

    Attributes
    ----------
    span : str
        Where the spans are, such as ``$.attributes.pii__pii__EMAIL_ADDRESS``.
    min_score, max_score : float, optional
        Only spans with a score in ``[min_score, max_score)``.
    replacement : str
        What they are replaced with; ``{}`` stands for the span's text. One that begins with ``$`` is a path to a string of the document, such
        as ``$.id``, or an expression in jq behind the ``$``.
    syntax : {"jsonpath", "jq"}
        Language of `span`.
    """

    span: str
    min_score: float | None = None
    max_score: float | None = None
    replacement: str = ""
    syntax: Syntax = "jsonpath"

    def __post_init__(self) -> None:
        check_syntax(self.syntax)
        check_expression(self.span, self.syntax)
        if self.selects:
            self.selector()

    @property
    def selects(self) -> bool:
        """True if the replacement is a value of the document."""
        return self.replacement.startswith(SELECTS)

    @property
    def key(self) -> str | None:
        """The attribute whose spans are meant, if the path says just this."""
        text = SELECTS + self.span.strip() if self.syntax == "jq" else self.span
        try:
            steps = parse_path(text).steps
        except ExpressionError:
            return None
        match steps:
            case (Keys((first,)), Keys((key,))) if first == ATTRIBUTES:
                return key
        return None

    def selector(self) -> tuple[str, Syntax]:
        """Return the expression behind a replacement that is a value of the document, and its language."""
        path = self.path()
        if path is not None:
            return self.replacement, "jsonpath"
        program = self.replacement.removeprefix(SELECTS)
        try:
            check_expression(program, "jq")
        except ExpressionError as error:
            raise ExpressionError(
                f"the replacement {self.replacement!r} begins with $, so that it is a value of the document, such as $.id; {error}",
                **error.details,
            ) from None
        return program, "jq"

    def path(self) -> Path | None:
        """Return the value of the document as a path of keys and indexes, None if it is something else."""
        try:
            path = parse_path(self.replacement)
        except ExpressionError:
            return None
        plain = path.steps and all(isinstance(step, Keys | Items) for step in path.steps)
        return path if plain else None

    def to_json(self) -> dict[str, Any]:
        """Return the keys that were given, as JSON-able values."""
        given = {item.name: getattr(self, item.name) for item in fields(self)}
        return {name: value for name, value in given.items() if value is not None}


def make_replacement(given: Mapping[str, Any] | Replacement) -> Replacement:
    """Return a rule from its keys, as they stand in a configuration file."""
    if isinstance(given, Replacement):
        return given
    if not isinstance(given, Mapping):
        raise UsageError(
            f"the replacement {given!r} is of type {type(given).__name__}; expected keys such as span, min_score and replacement."
        )
    names = [item.name for item in fields(Replacement)]
    for name in given:
        if name not in names:
            near = get_close_matches(str(name), names, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"expected one of {', '.join(names)}."
            raise UsageError(f"a replacement has no key {name!r}; {hint}")
    if not isinstance(given.get("span"), str):
        raise UsageError(
            f"the replacement {dict(given)!r} does not say which spans; expected span, such as $.attributes.<key>."
        )
    return Replacement(
        given["span"],
        _score(given, "min_score"),
        _score(given, "max_score"),
        _text(given, "replacement", ""),
        check_syntax(_text(given, "syntax", "jsonpath")),
    )


def _score(given: Mapping[str, Any], name: str) -> float | None:
    value = given.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise UsageError(f"{name}={value!r} of a replacement; expected a number.")
    return float(value)


def _text(given: Mapping[str, Any], name: str, default: str) -> str:
    value = given.get(name, default)
    if not isinstance(value, str):
        raise UsageError(f"{name}={value!r} of a replacement; expected a string.")
    return value
