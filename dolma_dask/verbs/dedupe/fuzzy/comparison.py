"""Comparison of documents in `dedupe` by similarity: signatures, bands, verification, from what was given and the defaults of each scheme."""

import math
from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from msgspec import Struct
from msgspec.structs import asdict

from dolma_dask.errors import UsageError
from dolma_dask.minhash.bands import Bands, Curve, expected_recall, optimal_bands, summarize_curve
from dolma_dask.minhash.schemes import MinHash
from dolma_dask.results.parts import Fact
from dolma_dask.text.kernels import Floats

Verify = Literal["signatures", "ngrams", "none"]
"""Comparison of documents that share a band, before they are joined: by their signatures, and then by their n-grams."""

SHARE = (1 << 16) - 1
"""A similarity that is told of a pair is kept as a multiple of 1 / `SHARE`."""

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


class Comparison(Struct, frozen=True):
    """Parameters that decide which documents are similar."""

    minhash: MinHash
    bands: Bands
    similarity: float
    verify: Verify

    @property
    def least_matches(self) -> int:
        """Values in which the signatures of a pair have to agree; 0: pairs are not verified."""
        if self.verify == "none":
            return 0
        values = self.minhash.num_perm
        share = slack(self.similarity, values) if self.verify == "ngrams" else self.similarity
        return max(math.ceil(round(share * values, 9)), 1)  # which all have that share a band

    @property
    def similarity_scale(self) -> int:
        """Number that stands for a similarity of 1 where that of a pair is kept; 0: pairs are not verified."""
        return {"none": 0, "signatures": self.minhash.num_perm, "ngrams": SHARE}[self.verify]

    @property
    def curve(self) -> Curve:
        """Summary of the probability that a pair is found."""
        curve = summarize_curve(self.bands, self.minhash.num_perm, self.similarity, self.least_matches)
        if self.verify != "ngrams":
            return curve
        half, most = (max(one, self.similarity) for one in (curve.half, curve.nine_tenths))
        return Curve(half, most, 0.0, curve.false_negatives)

    def recall(self, jaccard: npt.ArrayLike) -> Floats:
        """Return the probability that pairs of these Jaccard similarities are found, in their shape."""
        found = expected_recall(jaccard, self.bands, self.minhash.num_perm, self.least_matches)
        return found * (np.asarray(jaccard) >= self.similarity) if self.verify == "ngrams" else found

    def facts(self) -> list[Fact]:
        """Return what describes it."""
        minhash, curve = self.minhash, self.curve
        signed = f"{minhash.ngram}-grams of {minhash.unit}s, {minhash.num_perm} values, seed {minhash.seed}"
        verified = {
            "none": "no pair",
            "signatures": f"{self.least_matches} of {minhash.num_perm} values agree",
            "ngrams": f"{self.similarity:.2f} by their n-grams",
        }
        return [
            Fact("scheme", f"{minhash.scheme}, {signed}"),
            Fact("bands", f"{self.bands.num_bands} of {self.bands.rows_per_band} rows"),
            Fact("verified", verified[self.verify]),
            Fact(
                "finds",
                f"half of the pairs at similarity {curve.half:.2f}, nine tenths at {curve.nine_tenths:.2f}",
            ),
            Fact(
                "error areas",
                f"false positives {curve.false_positives:.3f} (below {self.similarity:.2f}), false negatives {curve.false_negatives:.3f} (above)",
            ),
        ]

    def params(self) -> dict[str, Any]:
        """Return all that decides the clusters, for keys and the journal."""
        return {
            **self.minhash.params(),
            **asdict(self.bands),
            "similarity": self.similarity,
            "verify": self.verify,
        }

    def to_json(self) -> dict[str, Any]:
        """Return the same with its S-curve, as JSON-able values."""
        return {**self.params(), "curve": asdict(self.curve)}


def slack(similarity: float, num_perm: int) -> float:
    """Return the estimated similarity from which pairs are looked at: three standard errors below."""
    return max(similarity - 3 * math.sqrt(similarity * (1 - similarity) / num_perm), 0)


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
    return Comparison(minhash, bands, known.get("similarity", SIMILARITY), known.get("verify", "signatures"))


def _bands(known: Mapping[str, Any], num_perm: int) -> Bands:
    """Return the shape of the bands: as it was given, the best for a similarity, or the default."""
    best = optimal_bands(known["similarity"], num_perm) if "similarity" in known else BANDS
    shape = [name for name in ("num_bands", "rows_per_band") if name in known]
    if len(shape) == 1:
        raise UsageError(f"{shape[0]} was given alone; expected num_bands and rows_per_band, or similarity.")
    return Bands(known["num_bands"], known["rows_per_band"]) if shape else best
