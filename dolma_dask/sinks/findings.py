"""Documents of a shard that an output counts, names or refuses because of what encoding found in their texts.

Few documents are among them, so that those which are refused cost a second encoding of their block.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
from msgspec import UNSET, UnsetType

from dolma_dask.formats.documents import encode_value, text_bytes
from dolma_dask.formats.findings import LOST, NAMED, REFUSED, SPELLED, UNUSABLE
from dolma_dask.formats.ragged import SpellingRecord
from dolma_dask.io.records import QUARANTINE_HEAD, SPECIAL_TOKENS, UNUSABLE_RECORD, BadRecord
from dolma_dask.sinks.segments import PATH, ROW
from dolma_dask.sinks.sink import DocumentRows, ShardFacts
from dolma_dask.tokens.encoding import Finding, Tokens
from dolma_dask.tokens.spelled import InText

Counted = TypeVar("Counted")


class TextFindings:
    """Findings in the texts of one shard; the first of each kind are known by their places."""

    def __init__(self, shard: str, in_text: InText, *, skips_unusable: bool = False) -> None:
        self._shard, self._in_text = shard, in_text
        self._bad = {SPELLED} if in_text == "refuse" else set()
        self._bad |= set() if skips_unusable else {UNUSABLE}
        self._counts: Counter[str] = Counter()
        self._places: defaultdict[str, list[tuple[str, int, str]]] = defaultdict(list)
        self._refused_bytes = 0

    def encode(
        self, rows: DocumentRows, encode: Callable[[DocumentRows], tuple[Tokens, Counted]]
    ) -> tuple[Tokens, Counted, list[BadRecord]]:
        """Return the tokens of documents, what `encode` counted in them, and documents that are refused, of which there are no tokens."""
        tokens, counted = encode(rows)
        refused = [one for one in tokens.findings if one.kind in self._bad]
        bad = [self._refuse(rows, one) for one in refused]
        if bad:
            rows = self._without(rows, [one.row for one in refused])
            tokens, counted = encode(rows)
        for one in tokens.findings:
            self._take(rows, one, one.kind)
        return tokens, counted, bad

    def _take(self, rows: DocumentRows, found: Finding, kind: str) -> int:
        """Count a document; return its row in the shard."""
        row = int(rows.numbers[found.row])
        self._counts[kind] += 1
        if len(self._places[kind]) < NAMED:
            self._places[kind].append((self._shard, row, found.what))
        return row

    def _refuse(self, rows: DocumentRows, found: Finding) -> BadRecord:
        kind, reason = (REFUSED, SPECIAL_TOKENS) if found.kind == SPELLED else (found.kind, UNUSABLE_RECORD)
        expected = (
            f"a text that does not spell out special tokens of the tokenizer, found {found.what!r} (special_tokens_in_text=refuse; text encodes them as "
            "their characters)"
            if found.kind == SPELLED
            else f"a text in each field that the mode reads, found {found.what}"
        )
        if rows.lines is None:
            names = [name for name in rows.batch.schema.names if name not in (PATH, ROW)]
            raw = encode_value(rows.batch.select(names).slice(found.row, 1).to_pylist()[0])
        else:
            raw = rows.lines[found.row].as_py().rstrip(b"\n")
        place = self._take(rows, found, kind)
        return BadRecord(self._shard, place, -1, reason, expected, raw[:QUARANTINE_HEAD])

    def _without(self, rows: DocumentRows, refused: list[int]) -> DocumentRows:
        kept = np.ones(rows.batch.num_rows, np.bool_)
        kept[refused] = False
        left = rows.batch.filter(pa.array(kept))
        self._refused_bytes += text_bytes(rows.batch.column("text")) - text_bytes(left.column("text"))
        lines = None if rows.lines is None else rows.lines.filter(pa.array(kept))
        return DocumentRows(left, rows.numbers[kept], lines)

    def sums(self, facts: ShardFacts) -> dict[str, float]:
        """Return the counts for the record of the output: those of the findings, and those of the reading without what was refused."""
        refused = self._counts[REFUSED] + (self._counts[UNUSABLE] if UNUSABLE in self._bad else 0)
        known = facts.counts
        if not refused:
            return dict(self._counts)
        less = {"documents_out": refused, "text_bytes_out": self._refused_bytes, "bad_records": -refused}
        changed = {name: known[name] - count for name, count in less.items() if name in known}
        return {**changed, **self._counts}

    @property
    def spelled(self) -> SpellingRecord | UnsetType:
        """What the record beside the output says of special tokens in texts."""
        return spelling_of(self._in_text, self._counts[SPELLED] + self._counts[REFUSED])

    @property
    def lossy(self) -> int:
        """Documents of which characters are lost."""
        return self._counts[LOST]

    @property
    def info(self) -> Mapping[str, Any]:
        """The first documents of each kind by shard, row and what was found, for the record."""
        return {"findings": dict(self._places)} if self._places else {}


def spelling_of(in_text: InText, documents: int) -> SpellingRecord | UnsetType:
    """Return what the record beside an output says of special tokens in texts, where so many documents spell some out."""
    if in_text == "encode":
        return SpellingRecord(in_text)
    return SpellingRecord(in_text, documents) if documents or in_text == "refuse" else UNSET
