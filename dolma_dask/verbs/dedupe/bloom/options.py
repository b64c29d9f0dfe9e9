"""Options of `dedupe` for Bloom filters."""

from dataclasses import dataclass
from os import PathLike
from typing import Annotated, Any

from dolma_dask.errors import UsageError
from dolma_dask.options.base import Opt, Options
from dolma_dask.verbs.dedupe.bloom.filters import RATE, Wanted

LARGEST_FILTER = 1 << 40

MOST_KEYS = 10**12

LEAST_RATE = 1e-12
"""Least share of other keys that a filter can be made for: their bits are of 64 bits of each key."""


def _file(value: Any) -> str | None:
    if value is not None and not (isinstance(value, str | PathLike) and str(value)):
        raise UsageError(f"bloom={value!r}; expected the file or URL of a Bloom filter.")
    return None if value is None else str(value)


@dataclass(frozen=True, kw_only=True)
class BloomOptions(Options):
    """Options for a Bloom filter."""

    group = "Bloom filter"

    bloom: Annotated[
        str | None,
        Opt(
            "File or URL of a Bloom filter to write, of the keys of all documents or paragraphs that were compared, one of each kept: what is in it was here. "
            "Flags are exact, they do not come from it.",
            convert=_file,
        ),
    ] = None
    read_only: Annotated[
        bool,
        Opt(
            "Flag what is in the filter, and leave it as it is: what an earlier crawl had, or the documents of a benchmark. Documents here are not compared with "
            "each other.",
            is_flag=True,
        ),
    ] = False
    bloom_bytes: Annotated[
        int | None,
        Opt("Size of the filter, rounded down to half a mebibyte or more.", min=1, max=LARGEST_FILTER),
    ] = None
    bloom_keys: Annotated[
        int | None,
        Opt(
            "Keys that the filter is made for; by default as many as there are, equal ones counted each.",
            min=1,
            max=MOST_KEYS,
        ),
    ] = None
    bloom_rate: Annotated[
        float | None,
        Opt(
            "Share of other keys that the filter may find wrongly; by default 0.000001. It decides the size with `bloom_keys`.",
            min=LEAST_RATE,
            max=0.5,
        ),
    ] = None

    @property
    def wanted(self) -> Wanted:
        """The filter as it is ordered."""
        return Wanted(self.bloom_bytes, self.bloom_keys, self.bloom_rate or RATE)


BLOOM_OPTIONS = ("bloom", "read_only", "bloom_bytes", "bloom_keys", "bloom_rate")


def check_bloom(options: Any) -> None:
    """Refuse options of filters that do not go together."""
    named = [name for name in BLOOM_OPTIONS if name in options.given()]
    if not named:
        return
    if options.bloom is None:
        raise UsageError(f"{', '.join(named)} without bloom; expected the file of the filter, --bloom FILE.")
    shapes = [name for name in named if name not in ("bloom", "read_only")]
    if options.read_only and shapes:
        raise UsageError(f"{', '.join(shapes)} with read_only; expected the filter as it is.")
    if options.bloom_bytes is not None and options.bloom_rate is not None:
        raise UsageError(
            "bloom_bytes and bloom_rate were both given; expected one of them: the other follows."
        )
    senseless = [name for name in ("min_copies",) if getattr(options, name) is not None]
    senseless += ["how='fuzzy'"] * (options.how == "fuzzy") + ["shuffle='dask'"] * (
        options.shuffle != "files"
    )
    senseless += ["keep"] * (options.read_only and options.keep != "first")
    if senseless:
        raise UsageError(
            f"bloom with {', '.join(senseless)}; expected neither: a filter is of keys of which one survives, or of those that were here before."
        )
