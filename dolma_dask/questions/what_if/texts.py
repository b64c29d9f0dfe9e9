"""Texts of documents, of which attributes are read alone: estimates of their bytes and tokens, and the beginnings of those that are shown.

A column that grows with the text (characters, else words) tells the documents apart; the text of the shards, which the verbs that read it
have counted, says how many bytes stand for one unit of it: for each group from the shards that hold it alone, where there are such. Tokens are bytes times
a ratio. Beginnings cost the shards of their documents up to their rows.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from msgspec import Struct

from dolma_dask.dataset import Dataset
from dolma_dask.display import without_blank_lines
from dolma_dask.formats import layout
from dolma_dask.formats.documents import text_bytes
from dolma_dask.io.documents import DocumentFile
from dolma_dask.journal import Journal
from dolma_dask.registry import names_of
from dolma_dask.rules.signal_names import short_name
from dolma_dask.text.kernels import Counts, Floats

TOKENS_PER_BYTE = 0.25
"""Taken for every text: a vocabulary of 50,000 makes a token of some four bytes of English (the RedPajama-V2 tables: 4.3)."""

BYTES_PER_WORD = 6.0
"""Taken where no verb has counted the text: a word of English with the white space behind it."""

ASSUMED = "taken for every text; --tokenizer measures it"
"""Origin of `TOKENS_PER_BYTE`, in words."""

SAMPLED_SHARDS = 8
"""Shards whose first documents a tokenizer sees."""

SAMPLED_ROWS = 200

EXCERPT_CHARACTERS = 400
"""Code points of a document that are shown."""

MAX_TEXTS = 400
"""Documents whose beginnings are read."""

MAX_SHARDS = 40
"""Shards that are opened for them: those with the most of them come first."""

Place = tuple[str, int]
"""Shard and row of a document."""


@dataclass(frozen=True)
class Amount:
    """Documents with their text; bytes and tokens are estimates, None if nothing tells them."""

    documents: int
    bytes: int | None = None
    tokens: int | None = None


class GroupSizes(Struct, frozen=True, eq=False):
    """Bytes and tokens of units, by group."""

    per_unit: Floats  # (groups,) bytes of text; NaN if nothing tells them
    tokens_per_byte: float
    how: str  # for people

    def amount(self, counts: Counts, groups: slice | list[int]) -> Amount:
        """Return what the documents and units (n, 2) of some groups make."""
        documents, units = int(counts[:, 0].sum()), counts[:, 1]
        text = float(np.sum((units * self.per_unit[groups])[units > 0]))
        if np.isnan(text):
            return Amount(documents)
        return Amount(documents, round(text), round(text * self.tokens_per_byte))


def measure_of(length: str | None, text_bytes: Counts, ratio: float, ratio_from: str) -> GroupSizes:
    """Return the measure for units of the column `length` (None: a unit is a document); `text_bytes` is that of `DropSums`."""
    text, units = text_bytes.astype(np.float64).T
    every = text[-1] / units[-1] if units[-1] else np.nan
    with np.errstate(invalid="ignore", divide="ignore"):
        own = np.where(units[:-1] > 0, text[:-1] / units[:-1], every)
    tokens = f"tokens are bytes x {ratio:.4g} ({ratio_from})"
    if np.isnan(every):
        if length is None:
            return GroupSizes(own, ratio, "bytes and tokens are not known: no verb has counted the text")
        each = BYTES_PER_WORD if length.endswith("word_count") else 1.0
        how = f"bytes are estimated from {short_name(length)} x {each:g}, since no verb has counted the text; {tokens}"
        return GroupSizes(np.full_like(own, each), ratio, how)
    unit = "documents, all taken for equally long," if length is None else short_name(length)
    how = (
        f"bytes are estimated from {unit} x {every:.4g}, the bytes of text in the journal for each; {tokens}"
    )
    return GroupSizes(own, ratio, how)


def text_bytes_of(dataset: Dataset) -> dict[str, int]:
    """Return the bytes of text of each shard, as the verbs that read it have counted them; without shards that have changed since."""
    sizes = {shard.path: shard.bytes for shard in dataset.shards}
    found: dict[str, int] = {}
    for verb in names_of("documents"):
        for record in Journal(dataset.root, verb).records.values():
            path = record.unit.removeprefix(f"{layout.DOCUMENTS}/")
            written = [file.bytes for file in record.files if file.path == record.unit]
            if "text_bytes_out" in record.counts and written == [sizes.get(path)]:
                found[path] = int(record.counts["text_bytes_out"])
    for record in Journal(dataset.root, "tag").records.values():
        path = layout.document_path(record.shard)
        read = [one.bytes for one in record.inputs if one.path == path]
        if "text_bytes" in record.counts and read == [sizes.get(record.shard)]:
            found[record.shard] = int(record.counts["text_bytes"])
    return found


def ratio_of(
    dataset: Dataset, tokens_per_byte: float | None, tokenizer: str | None, seed: int
) -> tuple[float, str]:
    """Return tokens per byte, and where the number comes from."""
    if tokens_per_byte is not None:
        return float(tokens_per_byte), "as given"
    measured = None if tokenizer is None else _measured_ratio(dataset, tokenizer, seed)
    if measured is None:
        return TOKENS_PER_BYTE, ASSUMED
    return measured, f"measured with {tokenizer} on the first documents of some shards"


def _measured_ratio(dataset: Dataset, tokenizer: str, seed: int) -> float | None:
    """Return tokens per byte of the first documents of some shards, spread evenly from one that the seed draws; None without text."""
    from dolma_dask.io.tokenizer import open_tokenizer  # rarely needed, and costs a third of a start

    encoder = open_tokenizer(tokenizer)
    count = len(dataset.shards)
    first = int(np.random.default_rng(seed).integers(max(count, 1)))
    step = max(count // SAMPLED_SHARDS, 1)
    tokens = text = 0
    for number in range(min(SAMPLED_SHARDS, count)):
        path = layout.document_path(dataset.shards[(first + step * number) % count].path)
        block = next(iter(DocumentFile(dataset.url(path), ("text",), source=dataset.source)), None)
        if block is not None:
            texts = block.batch.column("text").drop_null().slice(0, SAMPLED_ROWS)
            tokens += len(encoder.encode(texts).ids)
            text += text_bytes(texts)
    return tokens / text if text else None


# ------------------------------------------------------------------------------------------------ beginnings


def read_beginnings(dataset: Dataset, documents: Sequence[Place]) -> dict[Place, str]:
    """Return the beginnings of the texts of some documents, as far as `MAX_TEXTS` and `MAX_SHARDS` allow."""
    wanted: defaultdict[str, set[int]] = defaultdict(set)
    for shard, row in documents[:MAX_TEXTS]:
        wanted[shard].add(row)
    order = sorted(wanted, key=lambda shard: (-len(wanted[shard]), shard))
    return {
        (shard, row): text
        for shard in order[:MAX_SHARDS]
        for row, text in _beginnings(dataset, shard, sorted(wanted[shard]))
    }


def _beginnings(dataset: Dataset, shard: str, rows: list[int]) -> Iterator[tuple[int, str]]:
    """Yield the beginnings of the texts of some rows, ascending; no rows are left behind."""
    file = DocumentFile(dataset.url(layout.document_path(shard)), ("text",), source=dataset.source)
    for block in file:
        while rows and rows[0] < block.first_row + block.num_rows:
            row = rows.pop(0)
            yield row, _beginning(block.batch.column("text")[row - block.first_row].as_py() or "")
        if not rows:
            return


def _beginning(text: str) -> str:
    text = without_blank_lines(text)
    if len(text) <= EXCERPT_CHARACTERS:
        return text
    return text[:EXCERPT_CHARACTERS].rstrip() + "\N{HORIZONTAL ELLIPSIS}"
