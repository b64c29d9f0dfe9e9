"""How documents are compared by `dedupe` by similarity: signatures, bands, verification, from what was given and the defaults of each scheme."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

from dolma_dask.errors import UsageError
from dolma_dask.minhash.bands import Bands, optimal_bands
from dolma_dask.minhash.schemes import MinHash

Verify = Literal["signatures", "none"]
"""Comparison of documents that share a band, before they are joined."""

SIMILARITY = 0.7
"""Jaccard similarity from which documents are duplicates."""

BANDS = Bands(14, 8)
"""Shape of the bands at `SIMILARITY`: finds 56 % of the pairs with just this similarity and 92 % of those with 0.8. The shape of FineWeb, among others."""

_OF_SCHEME: Mapping[str, Mapping[str, Any]] = {
    "redpajama_v2": {"ngram": 13, "similarity": 0.8, "verify": "none"},
    "datasketch": {"seed": 1},
    "datasketch_legacy": {"seed": 1},
}
"""Defaults of schemes where they differ: those of the projects that they come from."""


@dataclass(frozen=True)
class Comparison:
    """What decides which documents are similar."""

    minhash: MinHash
    bands: Bands
    similarity: float
    verify: Verify

    @property
    def least_matches(self) -> int:
        """Values in which the signatures of a pair have to agree; 0: pairs are not verified."""
        if self.verify == "none":
            return 0
        return math.ceil(round(self.similarity * self.minhash.num_perm, 9))

    def params(self) -> dict[str, Any]:
        """Return all that decides the clusters, for keys and the journal."""
        return {
            **self.minhash.params(),
            **vars(self.bands),
            "similarity": self.similarity,
            "verify": self.verify,
        }


def comparison_of(given: Mapping[str, Any]) -> Comparison:
    """Return the comparison that some options of `dedupe` ask for; those that are None take the defaults of the scheme.

    Raises `UsageError`: a value that an option cannot have, or bands of more values than a signature has.
    """
    known = {name: value for name, value in given.items() if value is not None}
    known = {**_OF_SCHEME.get(str(known.get("scheme")), {}), **known}
    names = ("scheme", "ngram", "unit", "num_perm", "seed")
    minhash = MinHash(**{name: known[name] for name in names if name in known})
    bands = _bands(known, minhash.num_perm)
    bands.check(minhash.num_perm)
    verify = known.get("verify", "signatures")
    if verify not in get_args(Verify):
        raise UsageError(f"verify={verify!r}; expected one of {', '.join(get_args(Verify))}.")
    return Comparison(minhash, bands, known.get("similarity", SIMILARITY), verify)


def _bands(known: Mapping[str, Any], num_perm: int) -> Bands:
    """Return the shape of the bands: as it was given, the best for a similarity, or the default."""
    best = optimal_bands(known["similarity"], num_perm) if "similarity" in known else BANDS
    shape = [name for name in ("num_bands", "rows_per_band") if name in known]
    if len(shape) == 1:
        raise UsageError(f"{shape[0]} was given alone; expected num_bands and rows_per_band, or similarity.")
    return Bands(known["num_bands"], known["rows_per_band"]) if shape else best
