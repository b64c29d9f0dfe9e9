"""The rows of one shard on their way through a mix: filtered, sampled, their spans replaced, their lines spliced.

What is not asked costs nothing: kept lines stay views of the block that was read. Whatever the filters, documents and attributes go through
memory once, a block of 2 MB at a time.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from dolma_dask.alignment import AlignedShard
from dolma_dask.formats.documents import METADATA, OPTIONAL, RAW, text_bytes
from dolma_dask.io.quarantine import Quarantine, Quarantines, RecordPolicy
from dolma_dask.mixing.filters import Filter
from dolma_dask.mixing.splicing import splice
from dolma_dask.quality.sampling import sampled
from dolma_dask.stages.mixing.block import MixBlock
from dolma_dask.stages.mixing.recipe import MixWork
from dolma_dask.stages.selection import conjuncts
from dolma_dask.stages.sinks import Kept

WHITE_SPACE = "\t\n\v\f\r \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u2028\u2029\u202f\u205f\u3000"
"""Unicode's White_Space, without which a text must not be too short."""


@dataclass
class MixedShard:
    """The kept documents of one shard as an iterable of `Kept`, and what was counted on the way.

    Attributes
    ----------
    work : MixWork
        What is read and done.
    policy : RecordPolicy
        For the reader.
    quarantine : Quarantine
        Takes the bad records.
    counts : dict
        ``documents_in, documents_out, text_bytes_in, text_bytes_out, bad_records``; documents for each part of the rule (``where ...``) and for
        each filter (``include ...``, ``exclude ...``); ``spans_replaced``, ``documents_changed``, ``documents_too_short``, ``documents_not_sampled``
        and ``documents_again`` where they can be.
    """

    work: MixWork
    policy: RecordPolicy
    quarantine: Quarantine | Quarantines
    counts: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        work, recipe = self.work, self.work.recipe
        named = recipe.where.names if recipe.where is not None else frozenset()
        every = named | {name for item in recipe.filters if item.rule is not None for name in item.rule.names}
        every |= {span.column for span in recipe.spans if span.column is not None}
        optional = [name for name in OPTIONAL if name in every]
        metadata = [METADATA] if recipe.wishes.provenance else []
        self.reader = AlignedShard(
            work.root,
            work.shard,
            ("id", "text", "source", RAW, *optional, *metadata),
            work.sources,
            work.fields,
            work.source,
            digests=True,
        ).open(max_record_bytes=self.policy.max_record_bytes, quarantine=self.quarantine)
        self._parts = conjuncts(recipe.where)
        self._include = _named("include", recipe.include)
        self._exclude = _named("exclude", recipe.exclude)
        self._start_counts()

    def _start_counts(self) -> None:
        wishes = self.work.recipe.wishes
        names = ["documents_in", "documents_out", "text_bytes_in", "text_bytes_out"]
        names += [f"where {part}" for part in self._parts]
        names += [name for name, _ in (*self._include, *self._exclude)]
        names += ["spans_replaced", "documents_changed"] if wishes.replacements else []
        names += ["documents_too_short"] if wishes.min_text_length else []
        names += ["documents_not_sampled", "documents_again"] if wishes.sample_rate is not None else []
        self.counts.update(dict.fromkeys(names, 0))

    def __iter__(self) -> Iterator[Kept]:
        for block in self.reader:
            rows = MixBlock(self.work, block)
            self.counts["documents_in"] += block.num_rows
            self.counts["text_bytes_in"] += text_bytes(block.batch.column("text"))
            kept = self._written(rows, self._sampled(rows, self._chosen(rows)))
            self.counts["documents_out"] += len(kept.identity)
            self.counts["text_bytes_out"] += text_bytes(kept.text)
            yield kept
        self.counts["bad_records"] = self.quarantine.count

    def _chosen(self, rows: "MixBlock") -> pa.BooleanArray:
        """Return which rows the rule and the filters keep."""
        readable = pc.is_valid(rows.batch.column("id"))
        kept = readable
        for part in self._parts:
            kept = pc.and_(kept, self._count(f"where {part}", part.mask(rows.for_where()), readable))
        if self._include:
            found = [self._count(name, rows.mask(item), readable) for name, item in self._include]
            kept = pc.and_(kept, _any(found))
        if self._exclude:
            found = [self._count(name, rows.mask(item), readable) for name, item in self._exclude]
            kept = pc.and_not(kept, _any(found))
        return kept

    def _count(self, name: str, mask: pa.BooleanArray, readable: pa.BooleanArray) -> pa.BooleanArray:
        holds = pc.and_(mask, readable)
        self.counts[name] += holds.true_count
        return holds

    def _sampled(self, rows: "MixBlock", kept: pa.BooleanArray) -> pa.BooleanArray | pa.Int64Array:
        """Return which rows are taken: a mask, or row numbers where some are taken several times."""
        rate, seed = self.work.recipe.wishes.sample_rate, self.work.recipe.wishes.seed
        if rate is None:
            return kept
        whole, part = divmod(rate, 1.0)
        more = (
            sampled(rows.batch.column("source"), rows.batch.column("id"), part, seed)
            if part
            else pa.repeat(pa.scalar(False), len(kept))
        )
        times = (int(whole) + more.to_numpy(zero_copy_only=False)) * kept.to_numpy(zero_copy_only=False)
        self.counts["documents_not_sampled"] += kept.true_count - int((times > 0).sum())
        self.counts["documents_again"] += int(np.maximum(times - 1, 0).sum())
        return pa.array(np.repeat(np.arange(len(kept)), times))

    def _written(self, rows: "MixBlock", taken: pa.BooleanArray | pa.Int64Array) -> Kept:
        """Replace spans in the chosen rows, leave out those that became too short, and splice the lines of the others."""
        recipe, wishes = self.work.recipe, self.work.recipe.wishes
        chosen = rows.take(taken)
        replaced = chosen.replaced(recipe.spans) if recipe.spans else None
        texts = chosen.batch.column("text") if replaced is None else replaced.texts
        long = _is_long(texts, wishes.min_text_length)
        if long is not None and not long.all():
            self.counts["documents_too_short"] += int((~long).sum())
            mask = pa.array(long)
            chosen, texts = chosen.take(mask), texts.filter(mask)
            replaced = None if replaced is None else chosen.replaced(recipe.spans)
        if replaced is not None:
            self.counts["spans_replaced"] += replaced.count
            self.counts["documents_changed"] += int(replaced.changed.sum())
        batch = chosen.batch
        lines = splice(batch.column(RAW), chosen.edits(replaced))
        return Kept(lines, batch.column("source"), batch.column("id"), texts, chosen.numbers)


def _named(what: str, filters: Sequence[Filter]) -> list[tuple[str, Filter]]:
    """Return filters with the names of their counts; one that is written twice counts once."""
    return list({f"{what} {item.text}": item for item in filters}.items())


def _any(masks: Sequence[pa.BooleanArray]) -> pa.BooleanArray:
    found = masks[0]
    for mask in masks[1:]:
        found = pc.or_(found, mask)
    return found


def _is_long(texts: pa.LargeStringArray, least: int) -> npt.NDArray[np.bool_] | None:
    if not least:
        return None
    sizes = pc.binary_length(pc.utf8_trim(texts, characters=WHITE_SPACE))
    return np.asarray(sizes.to_numpy(zero_copy_only=False)) >= least
