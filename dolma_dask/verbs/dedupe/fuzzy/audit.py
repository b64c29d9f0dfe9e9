"""Audit of a deduplication by similarity: the same job on a sample of the documents and copies of them whose similarities are known.

Everything lies in a temporary folder of this machine, and nothing is written beside the documents. Originals are documents of the sample that are like no other,
so that a copy is found by its original or not at all.
"""

import json
import random
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from dolma_dask.dataset import Dataset, open_dataset
from dolma_dask.display import counted, percent
from dolma_dask.engine import run_job
from dolma_dask.errors import DataError
from dolma_dask.exchange.flag_rows import COLUMNS
from dolma_dask.formats import layout
from dolma_dask.io.documents import DocumentFile
from dolma_dask.io.parquet import open_parquet
from dolma_dask.io.quarantine import RecordPolicy
from dolma_dask.minhash.bands import Bands, band_keys
from dolma_dask.minhash.schemes import jaccard
from dolma_dask.options.groups import RunOptions
from dolma_dask.reading.columns import find_columns
from dolma_dask.results.parts import Fact
from dolma_dask.results.table import Column, Table
from dolma_dask.verbs.dedupe.choice import Choice
from dolma_dask.verbs.dedupe.fuzzy.comparison import Comparison
from dolma_dask.verbs.dedupe.fuzzy.job import FuzzyDeduplication
from dolma_dask.verbs.dedupe.fuzzy.planting import LEVELS, Copy, plant, shingle_sets
from dolma_dask.verbs.dedupe.summary import DedupeSummary

PAIRS = 200
"""Copies of each level, if the documents are enough."""

SAMPLE = 3 * PAIRS * len(LEVELS) // 2
"""Documents of the sample, some of which are like others or too short to be originals."""

MAX_CHARACTERS = 50_000
"""Code points of the longest document of the sample."""

SHARD_CHARS = 32_000_000
"""Code points that are read of a shard; the documents of the sample are drawn from them."""

MAX_SHARDS = 64
"""Shards that the sample is drawn from, unless they have too few documents."""


@dataclass(frozen=True)
class AuditLevel:
    """Copies of about one similarity.

    Attributes
    ----------
    similarity : float
        Mean Jaccard similarity of copies and originals, by their n-grams.
    pairs, found : int
        Copies, and how many of them ended up in the cluster of their original.
    expected : float
        Share of the pairs that the curve says are found.
    error : float
        Its binomial standard error.
    """

    similarity: float
    pairs: int
    found: int
    expected: float
    error: float


class AuditSummary(DedupeSummary, frozen=True):
    """The outcome of an audit; its counts are those of the sample.

    ``sampled`` documents were drawn, ``copies`` planted, ``joined_by_others`` of them left out since other documents came into their cluster. Of the
    sampled documents ``removed`` were flagged for another one, and ``removed_wrongly`` of these are less similar to it than they should be.

    Attributes
    ----------
    levels : tuple of AuditLevel
        By similarity.
    """

    levels: tuple[AuditLevel, ...] = ()

    def facts(self) -> list[Fact]:
        return super().facts()[1:]  # no shard is done

    @property
    def figures(self) -> tuple[str, ...]:
        """Figures that a pipeline shows of it in a line."""
        levels = (
            f"{percent(one.found, one.pairs)} at {one.similarity:.2f} ({percent(one.expected)})"
            for one in self.levels
        )
        return (
            (f"planted copies found, by similarity (expected): {', '.join(levels)}",) if self.levels else ()
        )

    def tables(self) -> list[Table]:
        return [Table.of("Planted copies", _LEVELS, self.levels)]


_LEVELS = (
    Column("similarity", "real"),
    Column("pairs"),
    Column("found", "share", lambda one: one.found / one.pairs),
    Column("expected", "share"),
    Column("standard error", "share", "error"),
)


def run_audit(dataset: Dataset, comparison: Comparison, max_record_bytes: int) -> AuditSummary:
    """Plant copies into a sample of the documents, deduplicate it, and compare what is found with what is expected.

    Raises `DataError`: no document is long enough and unlike enough to others.
    """
    started, seed = time.monotonic(), comparison.minhash.seed
    texts = draw_texts(dataset, random.Random(seed), max_record_bytes)
    originals = _isolated(texts, comparison)[: PAIRS * len(LEVELS)]
    copies = plant(texts, originals, comparison.minhash, seed)
    if not copies:
        raise DataError(
            f"{dataset.root}: of {counted(len(texts), 'document')} none is long enough, and unlike enough to the others, to be copied at a known "
            "similarity; expected some with a few dozen words."
        )
    clusters = _clusters([*texts, *(copy.text for copy in copies)], comparison)
    survivors = {row: cluster[0] for cluster in clusters for row in cluster}
    counts, levels = _measure(texts, copies, clusters, comparison)
    removed = _removed(texts, survivors, comparison)
    wrong = sum(alike < comparison.similarity for alike in removed)
    return AuditSummary(
        "dedupe --audit",
        dataset.root,
        done=1,  # the sample
        counts={"sampled": len(texts), "copies": len(copies), **counts, "removed": len(removed), "removed_wrongly": wrong},
        notes=(
            f"removed wrongly: less similar than {comparison.similarity:.2f} to the document that stands for them; joined by others: copies that are "
            "not counted, since further documents came into their cluster",
        ),
        seconds=time.monotonic() - started,
        comparison=comparison,
        levels=levels,
    )  # fmt: skip


# ------------------------------------------------------------------------------------------------ the sample


def draw_texts(dataset: Dataset, draws: random.Random, max_record_bytes: int) -> list[str]:
    """Draw texts from random shards, of small ones first, so that larger ones make up for what they lack; of each from its beginning."""
    shards = draws.sample(dataset.shards, len(dataset.shards))
    shards = [*sorted(shards[:MAX_SHARDS], key=lambda shard: shard.bytes), *shards[MAX_SHARDS:]]
    texts: list[str] = []
    for number, shard in enumerate(shards):
        if len(texts) >= SAMPLE:
            break
        left = max(min(len(shards), MAX_SHARDS) - number, 1)
        share = -(-(SAMPLE - len(texts)) // left)
        file = DocumentFile(
            dataset.url(f"{layout.DOCUMENTS}/{shard.path}"),
            ("text",),
            source=dataset.source,
            max_record_bytes=max_record_bytes,
        )
        texts += _drawn(_beginning(file), share, draws)
    return texts[:SAMPLE]


def _beginning(file: DocumentFile) -> Iterator[str]:
    """Yield the texts of `SHARD_CHARS` that are neither missing nor too long."""
    left = SHARD_CHARS
    for block in file:
        for text in block.batch.column(0).to_pylist():
            if text is not None and len(text) <= MAX_CHARACTERS:
                left -= len(text)
                yield text
        if left <= 0:
            return


def _drawn(texts: Iterator[str], count: int, draws: random.Random) -> list[str]:
    """Draw some of a stream of texts, each with the same chance."""
    kept: list[str] = []
    for number, text in enumerate(texts):
        if number < count:
            kept.append(text)
        elif (place := draws.randrange(number + 1)) < count:
            kept[place] = text
    return kept


def _isolated(texts: Sequence[str], comparison: Comparison) -> list[int]:
    """Return which texts have a whole n-gram and share no band of four values with any other: about four fifths of the pairs from a similarity of
    0.5 on share one.
    """
    signatures = comparison.minhash.sign(pa.array(texts, pa.large_string()))
    rows = min(4, comparison.minhash.num_perm)
    bands = Bands(min(comparison.minhash.num_perm // rows, 32), rows)
    keys = band_keys(signatures.values, bands, 0, bands.num_bands)
    _, places, counts = np.unique(keys, return_inverse=True, return_counts=True)
    alone = (counts[places.reshape(keys.shape)] == 1).all(axis=1)
    isolated: list[int] = np.flatnonzero(alone & (signatures.kinds == 0)).tolist()
    return isolated


def _clusters(texts: Sequence[str], comparison: Comparison) -> list[list[int]]:
    """Deduplicate texts in a temporary folder; return the clusters as rows, the survivor first."""
    with tempfile.TemporaryDirectory(prefix="dolma_dask-audit-") as folder:
        path = Path(folder) / layout.DOCUMENTS / "sample.jsonl"
        path.parent.mkdir()
        with path.open("w", encoding="utf-8") as out:
            out.writelines(
                json.dumps({"id": str(row), "source": "sample", "text": text}) + "\n"
                for row, text in enumerate(texts)
            )
        found = open_dataset(folder)
        job = FuzzyDeduplication(
            dataset=found,
            selected=found,
            columns=find_columns(found, COLUMNS),
            name="audit",
            file_format=None,
            policy=RecordPolicy(),
            comparison=comparison,
            choice=Choice(),
        )
        run_job(job, RunOptions(scheduler="synchronous", progress=False))
        with open_parquet(found.url(layout.clusters_path("audit"))) as file:
            rows = file.read(columns=["cluster_row", "row"]).to_pylist()
    clusters: defaultdict[int, list[int]] = defaultdict(list)
    for row in rows:
        clusters[row["cluster_row"]].append(row["row"])
    return [sorted(cluster) for cluster in clusters.values()]


# ------------------------------------------------------------------------------------------------ what was found


def _measure(
    texts: Sequence[str], copies: Sequence[Copy], clusters: Sequence[Sequence[int]], comparison: Comparison
) -> tuple[dict[str, int], tuple[AuditLevel, ...]]:
    """Count the copies that were found, by level; those whose cluster other documents joined are left out."""
    cluster_of = {row: set(cluster) for cluster in clusters for row in cluster}
    found: defaultdict[float, list[tuple[float, bool]]] = defaultdict(list)
    joined = 0
    for number, copy in enumerate(copies):
        pair = {copy.original, len(texts) + number}
        together = set[int]().union(*(cluster_of.get(row, set()) for row in pair))
        if together - pair:
            joined += 1
        else:
            found[copy.level].append((copy.similarity, bool(together)))
    levels = tuple(_level(pairs, comparison) for _, pairs in sorted(found.items()))
    return {"joined_by_others": joined}, levels


def _level(pairs: Sequence[tuple[float, bool]], comparison: Comparison) -> AuditLevel:
    similarities = np.array([similarity for similarity, _ in pairs])
    chances = comparison.recall(similarities)
    error = float(np.sqrt((chances * (1 - chances)).sum())) / len(pairs)
    found = sum(is_found for _, is_found in pairs)
    return AuditLevel(float(similarities.mean()), len(pairs), found, float(chances.mean()), error)


def _removed(texts: Sequence[str], survivors: dict[int, int], comparison: Comparison) -> list[float]:
    """Return how similar each removed document of the sample is to the one that stands for it."""
    pairs = [(row, first) for row, first in survivors.items() if first < row < len(texts)]
    return [
        jaccard(*shingle_sets([texts[row], texts[first]], comparison.minhash)) or 0.0 for row, first in pairs
    ]
