"""Options of `tag` for benchmarks that documents are compared with."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from dolma_dask.errors import UsageError
from dolma_dask.options.base import Opt, Options, words_of
from dolma_dask.taggers.base import Tagger, ViewTagger

if TYPE_CHECKING:
    from dolma_dask.sources.benchmarks import Comparison

NGRAM = 13
"""Words of an n-gram, as for GPT-3."""


@dataclass(frozen=True, kw_only=True)
class AgainstOptions(Options):
    """Benchmarks, and how documents are compared with them."""

    against: Annotated[
        Sequence[str] | str | None,
        Opt(
            "Benchmarks that documents are compared with, for the tagger contamination: files, folders or globs of JSON lines, Parquet, or text with an item in each line. Each file is one.",
            kind="list of str",
        ),
    ] = None
    against_text: Annotated[
        Sequence[str] | str | None,
        Opt(
            "Fields of an item that are compared, each by itself; dots lead into objects, and of a list all texts are taken. By default text.",
            kind="list of str",
        ),
    ] = None
    against_by: Annotated[
        str | None, Opt("Field of an item with the name of its benchmark, where a file holds several.")
    ] = None
    ngram: Annotated[
        int | None,
        Opt(f"Words of the n-grams by which documents are compared. By default {NGRAM}.", min=2, max=100),
    ] = None

    def comparison(self, taggers: Sequence[Tagger]) -> "Comparison | None":
        """Return what documents are compared with, if there is anything.

        Raises `UsageError`: no tagger compares, or options lack their benchmarks.
        """
        if self.against is None:
            others = [
                name for name in ("against_text", "against_by", "ngram") if getattr(self, name) is not None
            ]
            if others:
                raise UsageError(
                    f"{others[0]} says how documents are compared with benchmarks, and none were given; expected against too."
                )
            return None
        if not any(isinstance(item, ViewTagger) and item.against for item in taggers):
            names = ", ".join(item.name for item in taggers)
            raise UsageError(
                f"against={self.against!r}, but none of the taggers {names} compares with benchmarks. Leave against out, or add the tagger contamination."
            )
        from dolma_dask.sources.benchmarks import Comparison

        inputs = words_of("against", self.against)
        fields = words_of("against_text", self.against_text or "text")
        return Comparison.of(inputs, fields, self.against_by, self.ngram or NGRAM)
