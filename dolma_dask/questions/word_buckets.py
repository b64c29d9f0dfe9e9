"""word-buckets: how often words and pairs of words of a dataset fall into the buckets of the tagger ``importance``; a file of some 60 KB."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, ClassVar

import msgspec
import numpy as np
from msgspec import Struct

from dolma_dask.display import last_name
from dolma_dask.engine.fold import fold, mask_of, readable_rows, shards_of
from dolma_dask.io import files
from dolma_dask.io.publish import publish
from dolma_dask.options.base import OUTPUT, Opt
from dolma_dask.options.command import command
from dolma_dask.options.groups import Documents, QuestionOptions, check_outside, target_of
from dolma_dask.options.kept import KeptOptions
from dolma_dask.reading.columns import find_columns
from dolma_dask.reading.reader import AlignedShard
from dolma_dask.reading.selection import select
from dolma_dask.results.answer import Answer
from dolma_dask.results.parts import Fact, Facts, Part
from dolma_dask.rules.rules import Rule
from dolma_dask.taggers.importance import BUCKETS, BucketCounts, count_buckets
from dolma_dask.text.kernels import Counts
from dolma_dask.text.view import TextView


class WordBuckets(Answer, frozen=True):
    """Words of a dataset, counted in buckets; prints as facts."""

    name: str
    documents: int
    words: int
    empty_buckets: int
    where: str  # the file with the counts

    def parts(self) -> Iterator[Part]:
        """Yield the facts."""
        names = ("documents", "words", "empty_buckets")
        facts = [Fact(name.replace("_", " "), getattr(self, name), "integer") for name in names]
        yield Facts(f"words of {self.name}", [*facts, Fact("where", self.where)])


class BucketSums(Struct, frozen=True):
    """Counts of some shards."""

    documents: int
    words: int
    counts: Counts  # (buckets,)

    def __add__(self, other: "BucketSums") -> "BucketSums":
        return BucketSums(
            self.documents + other.documents, self.words + other.words, self.counts + other.counts
        )


@dataclass(frozen=True)
class CountWords:
    """Counts the words of each shard; see `dolma_dask.engine.fold.Fold`."""

    rule: Rule | None
    verb: ClassVar[str] = "word_buckets"

    def start(self) -> BucketSums:
        """Return the counts of no shards."""
        return BucketSums(0, 0, np.zeros(BUCKETS, np.int64))

    def count(self, shard: AlignedShard) -> BucketSums:
        """Return the counts of one shard."""
        documents, words, counts = 0, 0, np.zeros(BUCKETS, np.int64)
        for rows in readable_rows(shard):
            kept = rows if self.rule is None else rows.filter(mask_of(self.rule, rows))
            documents += kept.num_rows
            words += count_buckets(TextView(kept.column("text")), counts)
        return BucketSums(documents, words, counts)


@dataclass(frozen=True, kw_only=True)
class WordBucketOptions(KeptOptions, QuestionOptions):
    """Options of `word-buckets`."""

    to: Annotated[
        str,
        Opt(
            "File of the counts, for --artifacts of tag: FOLDER/importance/source.json, or FOLDER/importance/NAME.json of a target.",
            group=OUTPUT,
            convert=target_of,
        ),
    ]


@command
def word_buckets(dataset: Documents, /, *, options: WordBucketOptions) -> WordBuckets:
    """Count words and pairs of words in the buckets of the tagger importance, and write the counts.

    Example: dolma-dask word-buckets corpus/wiki/v0 --to models/importance/wikipedia.json

    Returns
    -------
    WordBuckets
    """
    part = options.selected(options.open(dataset))
    target = files.normalize(options.to)
    check_outside(target, part.root)
    rule = select(part, options.where, options.attributes).rule
    columns = find_columns(part, ["text"], options.attributes).with_rule(rule, options.attributes)
    sums = fold(CountWords(rule), shards_of(columns), options, in_order=False)
    counts = sums.counts.tolist()
    with publish(target) as file:
        file.write(msgspec.json.encode(BucketCounts(sums.documents, sums.words, counts)))
    return WordBuckets(last_name(part.root), sums.documents, sums.words, counts.count(0), target)
