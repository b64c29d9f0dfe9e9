"""Options of `dedupe` among paragraphs."""

from dataclasses import dataclass
from typing import Annotated, Any, Literal, get_args

from dolma_dask.errors import UsageError
from dolma_dask.minhash.schemes import Unit as FuzzyUnit
from dolma_dask.options.base import Opt, Options

Unit = Literal["document", "paragraph", "word", "char"]

LONGEST_NGRAM = 65_535

LARGEST = 10**18
"""Largest number of characters, words or documents: kernels count with 64 bits."""


def _separator(value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise UsageError(f"separator={value!r}; expected one character or more, by default a newline.")
    if any(escape in value for escape in (r"\n", r"\r", r"\t")):
        raise UsageError(
            f"separator={value!r} has a backslash and a letter; expected the characters themselves, in a shell written --separator $'\\n\\n'."
        )
    return value


@dataclass(frozen=True, kw_only=True)
class ParagraphOptions(Options):
    """Options for the paragraphs that are compared, and what of them."""

    group = "Paragraphs, and texts that are too short"

    separator: Annotated[
        str,
        Opt(
            r"What stands between paragraphs, of any length; by default a newline, for blank lines $'\n\n' in a shell.",
            convert=_separator,
        ),
    ] = "\n"
    skip_empty: Annotated[
        bool,
        Opt(
            "Paragraphs, or documents by their value of `by`, with nothing but white space take no part.",
            is_flag=True,
        ),
    ] = False
    min_length: Annotated[
        int,
        Opt(
            "Shorter paragraphs, or values of documents, take no part; in characters (code points).",
            min=0,
            max=LARGEST,
        ),
    ] = 0
    min_words: Annotated[
        int,
        Opt(
            "Paragraphs, or values of documents, of fewer words take no part; words by the rules of Unicode, signs included, white space left out.",
            min=0,
            max=LARGEST,
        ),
    ] = 0
    stride: Annotated[
        int,
        Opt(
            "With `ngram`: words from one n-gram to the next, behind the first two, which always count.",
            min=1,
            max=LARGEST,
        ),
    ] = 1
    overlap: Annotated[
        float,
        Opt(
            "With `ngram`: share of the n-grams of a paragraph that are there before, from which it is flagged, with this share as its score. 0 flags all that are compared. "
            "An n-gram that the paragraph itself has had is there before too, so that one that repeats itself may be flagged as the only copy of its text.",
            min=0,
            max=1,
        ),
    ] = 1.0
    skip_short: Annotated[
        bool,
        Opt(
            "With `ngram`: paragraphs of fewer words take no part, and those with one n-gram are compared by it; else all with fewer than two n-grams are compared with "
            "each other as they are.",
            is_flag=True,
        ),
    ] = False
    min_copies: Annotated[
        int | None,
        Opt(
            "Flag only what occurs in at least so many different documents, and then all of it, the first included: menus, cookie notes and other boilerplate. "
            "By default all but the first of equal paragraphs are flagged.",
            min=2,
            max=LARGEST,
        ),
    ] = None


LEAST_OPTIONS = ("skip_empty", "min_length", "min_words")
"""Those of equal documents too."""

PARAGRAPH_OPTIONS = (
    "separator",
    *LEAST_OPTIONS,
    "stride",
    "overlap",
    "skip_short",
    "min_copies",
)

_OF_NGRAMS = ("stride", "overlap", "skip_short")


def check_unit(options: Any) -> None:
    """Refuse options of paragraphs for documents, and the other way round."""
    given, unit = options.given(), options.unit
    if options.how == "fuzzy" and unit in ("document", "paragraph"):
        raise UsageError(
            f"unit={unit!r} with how='fuzzy'; expected 'word' or 'char', of which n-grams are made: similar documents are found, not paragraphs."
        )
    if options.how == "exact" and unit in get_args(FuzzyUnit):
        raise UsageError(f"unit={unit!r} with how='exact'; expected 'document' or 'paragraph'.")
    least = [name for name in LEAST_OPTIONS if name in given]
    if options.how == "fuzzy" and least:
        raise UsageError(
            f"{', '.join(least)} with how='fuzzy'; expected how='exact', of documents or paragraphs."
        )
    named = [name for name in PARAGRAPH_OPTIONS if name in given and name not in least]
    if unit != "paragraph" and named:
        raise UsageError(
            f"{', '.join(named)} without unit='paragraph'; expected unit='paragraph', which alone has them."
        )
    if unit == "paragraph":
        _check_paragraphs(options, given)


def _check_paragraphs(options: Any, given: dict[str, Any]) -> None:
    if options.by != "text":
        raise UsageError(
            f"by={options.by!r} with unit='paragraph'; expected by='text': paragraphs are of texts."
        )
    named = [name for name in _OF_NGRAMS if name in given]
    if named and options.ngram is None:
        raise UsageError(
            f"{', '.join(named)} without ngram; expected ngram, the words of an n-gram, such as ngram=13."
        )
    if options.min_copies is not None and options.keep != "first":
        raise UsageError(
            f"keep={options.keep!r} with min_copies; expected one of them: with min_copies no paragraph survives."
        )
