"""The beginnings of the texts of documents beside a bound: the only texts that what-if reads, and of no more documents than `MAX_TEXTS`.

Cost: the shards of these documents up to their rows.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace

from dolma_dask.dataset import Dataset
from dolma_dask.display import counted
from dolma_dask.formats import layout
from dolma_dask.io.documents import DocumentFile
from dolma_dask.questions.what_if.answer import WhatIf

EXCERPT_CHARACTERS = 400
"""Code points of a document that are shown."""

MAX_TEXTS = 400
"""Documents whose texts are read."""

MAX_SHARDS = 40
"""Shards that are opened for them: those with the most of them come first."""


def with_excerpts(answer: WhatIf, dataset: Dataset) -> WhatIf:
    """Return the answer with the beginnings of the texts of its examples, as far as `MAX_TEXTS` and `MAX_SHARDS` allow."""
    wanted: defaultdict[str, set[int]] = defaultdict(set)
    for example in answer.examples[:MAX_TEXTS]:
        wanted[example.shard].add(example.row)
    order = sorted(wanted, key=lambda shard: (-len(wanted[shard]), shard))
    texts = {
        (shard, row): text
        for shard in order[:MAX_SHARDS]
        for row, text in _texts(dataset, shard, sorted(wanted[shard]))
    }
    examples = tuple(replace(row, excerpt=texts.get((row.shard, row.row), "")) for row in answer.examples)
    left = len({(row.shard, row.row) for row in examples} - texts.keys())
    note = (
        f"the texts of {counted(left, 'document')} beside the bounds were not read, as they lie in many shards",
    )
    return replace(answer, examples=examples, notes=(*answer.notes, *(note if left else ())))


def _texts(dataset: Dataset, shard: str, rows: Sequence[int]) -> Iterator[tuple[int, str]]:
    """Yield the beginnings of the texts of some rows, ascending."""
    left = list(rows)
    file = DocumentFile(dataset.url(layout.document_path(shard)), ("text",), source=dataset.source)
    for block in file:
        while left and left[0] < block.first_row + block.num_rows:
            row = left.pop(0)
            text = block.batch.column("text")[row - block.first_row].as_py() or ""
            yield row, _beginning(text)
        if not left:
            return


def _beginning(text: str) -> str:
    if len(text) <= EXCERPT_CHARACTERS:
        return text
    return text[:EXCERPT_CHARACTERS].rstrip() + "\N{HORIZONTAL ELLIPSIS}"
