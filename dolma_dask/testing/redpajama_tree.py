"""A tree as RedPajama-V2 is published, of any size and with what is wrong in the real one; the same for the same seed.

Documents, quality signals, MinHash tables, duplicates and listings of several snapshots, languages and buckets. Documents are made up of the words
of the language reference, which the demo has too, some of them exact or near copies; the values of signals and signatures are drawn, not computed.
As published, tail shards have documents only, and records that the worker of the signals could not read have no row in any table; some tables are
missing, and one file of documents ends in the middle. Cost: a CPU-second for 4 MB of text.
"""

import base64
import gzip
import hashlib
import io
import itertools
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from msgspec import Struct

from dolma_dask.formats.redpajama import GROUP_ROWS, MINHASH_SCHEMA, NUM_PERM, minhash_columns
from dolma_dask.testing.python_texts import topics

SNAPSHOTS = ("2014-15", "2019-35", "2023-06")
BUCKETS = ("head", "middle", "tail")
SHARDS = 2
"""Shards of each snapshot, each with a file of documents for every language and bucket."""

LETTERS = {
    "en": "",
    "de": "uüoöaä",
    "es": "oónñií",
    "fr": "eéaàuù",
    "it": "iìuùaà",
}
"""Languages, and what becomes of some letters in half of their words."""

NGRAM = 13
"""Words that a document needs for a signature."""

_ENDS = (".", ".", ".", "!", "?", "", "...", "…", " {", "”")
_STARTS = ("", "", "", "", "", "• ", "- ")
_EXACT, _NEAR, _UNREADABLE, _MISSING = 0.12, 0.1, 0.01, 0.05
"""Shares: of exact and near copies among documents, of records that have no signals, of tables that are missing."""

_DOC_SIGNALS = {
    "rps_doc_curly_bracket": 0.01,
    "rps_doc_lorem_ipsum": 0.001,
    "rps_doc_stop_word_fraction": 0.5,
    "rps_doc_frac_chars_dupe_10grams": 0.1,
    "rps_doc_frac_chars_dupe_5grams": 0.3,
    "rps_doc_frac_chars_top_2gram": 0.1,
    "rps_doc_frac_lines_end_with_ellipsis": 0.1,
    "rps_doc_frac_no_alph_words": 0.4,
    "rps_doc_frac_unique_words": 0.9,
    "rps_doc_unigram_entropy": 7.0,
}
"""Drawn signals, and the largest value of each."""


class Tree(Struct):
    """Content of a tree."""

    documents: int = 0
    text_bytes: int = 0
    unreadable: int = 0  # records that have no row in any table
    duplicates: int = 0
    broken: list[str] = []  # files of documents that end in the middle
    missing: list[str] = []  # tables that are not there, besides those of tails


def write_tree(folder: Path, megabytes: float, seed: int = 0) -> Tree:
    """Write a tree with about so many MB of text below `folder`; files of documents have a share each."""
    tree, words, seen = Tree(), _words(), set[str]()
    shards = list(itertools.product(SNAPSHOTS, range(SHARDS), LETTERS, BUCKETS))
    broken = int(np.random.default_rng(seed).integers(len(shards)))
    pools: dict[str, list[str]] = {language: [] for language in LETTERS}
    for number, (snapshot, shard, language, bucket) in enumerate(shards):
        writer = _Writer(
            folder, f"{snapshot}/{shard:04d}/{language}_{bucket}", np.random.default_rng([seed, number])
        )
        texts = writer.texts(
            [_spelled(word, language) for word in words], pools[language], megabytes * 1e6 / len(shards)
        )
        writer.write(texts, tree, seen, is_broken=number == broken)
    for snapshot, language in itertools.product(SNAPSHOTS, LETTERS):
        for partition, buckets in {"head_middle": BUCKETS[:2], "tail": BUCKETS[2:]}.items():
            names = [
                f"{snapshot}/{shard:04d}/{language}_{one}\n" for shard in range(SHARDS) for one in buckets
            ]
            path = folder / "listings" / f"{language}-{snapshot}-{partition}.txt"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("".join(names))
    return tree


@cache
def _words() -> list[str]:
    """Return the words of the language reference, frequent ones first."""
    counts = Counter(word for topic in topics() for word in topic.text.split() if len(word) < 30)
    return [word for word, _ in sorted(counts.items(), key=lambda item: (-item[1], item[0]))]


def _spelled(word: str, language: str) -> str:
    letters = LETTERS[language]
    changed = word.translate(str.maketrans(letters[::2], letters[1::2]))
    return changed if hashlib.sha1(word.encode()).digest()[0] % 2 else word


class _Writer(Struct):
    """Writes a shard: a file of documents and its tables."""

    folder: Path
    name: str  # <snapshot>/<shard>/<language>_<bucket>
    rng: np.random.Generator

    @property
    def language(self) -> str:
        return self.name.rpartition("/")[2].partition("_")[0]

    @property
    def bucket(self) -> str:
        return self.name.rpartition("_")[2]

    def texts(self, words: Sequence[str], pool: list[str], size: float) -> list[str]:
        """Return texts of so many bytes; copies are of those in the pool, which gets some of the new ones."""
        texts, rng = list[str](), self.rng
        while size > 0:
            kind = rng.random()
            if pool and kind < _EXACT + _NEAR:
                text = pool[int(rng.integers(len(pool)))]
                text = text if kind < _EXACT else self._near(text, words)
            else:
                text = self._text(words)
                pool.append(text)
            texts.append(text)
            size -= len(text.encode())
        del pool[:-500]
        return texts

    def _text(self, words: Sequence[str]) -> str:
        """Return lines of words, of which few are frequent; some of them begin or end otherwise, or are empty."""
        rng = self.rng
        sizes = rng.integers(0, 30, int(rng.lognormal(3, 0.9)) + 1)
        drawn = iter((len(words) * rng.random(int(sizes.sum())) ** 3).astype(int).tolist())
        starts, ends = rng.integers(len(_STARTS), size=len(sizes)), rng.integers(len(_ENDS), size=len(sizes))
        return "\n".join(
            _STARTS[start] + " ".join(words[next(drawn)] for _ in range(size)) + _ENDS[end]
            for size, start, end in zip(sizes.tolist(), starts, ends, strict=True)
        )

    def _near(self, text: str, words: Sequence[str]) -> str:
        """Return a text with a few other words."""
        parts = text.split(" ")
        for _ in range(1 + len(parts) // 100):
            parts[int(self.rng.integers(len(parts)))] = words[int(self.rng.integers(len(words)))]
        return " ".join(parts)

    def write(self, texts: Sequence[str], tree: Tree, seen: set[str], is_broken: bool) -> None:
        """Write all files, and count what they hold."""
        records = [self._record(text) for text in texts]
        is_read = self.rng.random(len(records)) >= _UNREADABLE
        for row in np.flatnonzero(~is_read).tolist():
            records[row]["perplexity"] = None
        data = _packed(records)
        if is_broken:
            tree.broken.append(f"documents/{self.name}.json.gz")
            data = data[: len(data) * 2 // 3]
        self._publish("documents", ".json.gz", data)
        rows = np.flatnonzero(is_read).tolist()
        copies = [row for row in rows if not _is_new(records[row]["digest"], seen)]
        if self.bucket != "tail":
            self._write_tables(records, rows, copies, tree)
            tree.duplicates += len(copies)
        tree.documents += len(texts)
        tree.text_bytes += sum(len(text.encode()) for text in texts)
        tree.unreadable += len(records) - len(rows)

    def _write_tables(
        self, records: Sequence[dict[str, Any]], rows: Sequence[int], copies: Sequence[int], tree: Tree
    ) -> None:
        shard = f"{self.name}.json.gz"
        tables: dict[tuple[str, str], Callable[[], bytes]] = {
            ("quality_signals", ".signals.json.gz"): lambda: _packed(
                self._signals(f"{shard}/{row}", records[row]) for row in rows
            ),
            ("minhash", ".minhash.parquet"): lambda: _minhash(shard, records, rows),
            ("duplicates", ".duplicates.parquet"): lambda: _duplicates(shard, records, copies),
        }
        for (component, suffix), make in tables.items():
            if self.rng.random() < _MISSING:
                tree.missing.append(f"{component}/{self.name}{suffix}")
            else:
                self._publish(component, suffix, make())

    def _publish(self, component: str, suffix: str, data: bytes) -> None:
        path = self.folder / component / f"{self.name}{suffix}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)

    def _record(self, text: str) -> dict[str, Any]:
        """Return a record as CCNet writes it."""
        digest = hashlib.sha1(text.encode()).digest()
        domain = f"www.site{int(self.rng.integers(300))}.example"
        lines = text.count("\n") + 1
        return {
            "url": f"https://{domain}/{digest.hex()[:8]}",
            "date_download": "2023-01-08T11:00:00Z",
            "digest": f"sha1:{base64.b32encode(digest).decode()}",
            "length": len(text),
            "nlines": lines,
            "source_domain": domain,
            "title": text[:40].partition("\n")[0],
            "raw_content": text,
            "cc_segment": f"crawl-data/CC-MAIN-{self.name.partition('/')[0]}/segments/x.warc.wet.gz",
            "original_nlines": lines + 3,
            "original_length": len(text) + 200,
            "line_ids": list(range(lines)),
            "language": self.language,
            "language_score": round(float(self.rng.uniform(0.5, 1)), 2),
            "perplexity": round(float(self.rng.lognormal(5.5 + BUCKETS.index(self.bucket) / 2, 0.3)), 1),
            "bucket": self.bucket,
        }

    def _signals(self, name: str, record: dict[str, Any]) -> dict[str, Any]:
        """Return a row of quality signals, whose values are drawn but for the fields of CCNet and counts."""
        text, length = record["raw_content"], record["length"]
        drawn = self.rng.random(len(_DOC_SIGNALS)).tolist()
        scores: dict[str, float | None] = {
            "ccnet_length": float(length),
            "ccnet_nlines": float(record["nlines"]),
            "ccnet_language_score": record["language_score"],
            "ccnet_perplexity": record["perplexity"],
            "rps_doc_ut1_blacklist": None,
            "rps_doc_word_count": len(text.split()),
            "rps_doc_ldnoobw_words": float(text.count("kill")),
            **{
                key: round(most * value, 8)
                for (key, most), value in zip(_DOC_SIGNALS.items(), drawn, strict=True)
            },
        }
        lines = text.splitlines(keepends=True)
        ends = list(itertools.accumulate(map(len, lines)))
        of_lines: dict[str, Sequence[float]] = {
            "rps_lines_num_words": [len(line.split()) for line in lines],
            "rps_lines_ending_with_terminal_punctution_mark": [
                float(line.rstrip().endswith((".", "!", "?", "\u201d"))) for line in lines
            ],
        }
        return {
            "id": name,
            "id_int": int.from_bytes(hashlib.sha1(name.encode()).digest()[:8], "little"),
            "metadata": {
                "cc_segment": record["cc_segment"],
                "cc_net_source": name.rpartition("/")[0],
                "url": record["url"],
                "source_domain": record["source_domain"],
                "language": record["language"],
                "snapshot_id": self.name.partition("/")[0],
            },
            "quality_signals": {
                **{key: [[0, length, score]] for key, score in scores.items()},
                **{
                    key: [list(span) for span in zip([0, *ends], ends, found, strict=False)]
                    for key, found in of_lines.items()
                },
            },
        }


def _is_new(digest: str, seen: set[str]) -> bool:
    if digest in seen:
        return False
    seen.add(digest)
    return True


def _minhash(shard: str, records: Sequence[dict[str, Any]], rows: Sequence[int]) -> bytes:
    """Return a MinHash table with drawn signatures, the same for the same text."""
    texts = [records[row]["raw_content"] for row in rows]
    drawn = [
        np.random.default_rng(zlib.crc32(text.encode())).integers(2**32, size=NUM_PERM) for text in texts
    ]
    values = np.array(drawn, np.uint32).reshape(-1, NUM_PERM)
    is_long = np.array([len(text.split()) >= NGRAM for text in texts], np.bool_)
    columns = minhash_columns(shard, np.array(rows, np.int64), values, is_long)
    return _table(pa.table(columns, schema=MINHASH_SCHEMA))


def _duplicates(shard: str, records: Sequence[dict[str, Any]], copies: Sequence[int]) -> bytes:
    """Return a table of the records whose digest an earlier one has."""
    columns = {
        "shard_id": [shard] * len(copies),
        "doc_id": [f"{shard}/{row}" for row in copies],
        "digest": [records[row]["digest"].removeprefix("sha1:") for row in copies],
    }
    return _table(pa.table(columns, schema=pa.schema([(name, pa.string()) for name in columns])))


def _packed(rows: Iterable[dict[str, Any]]) -> bytes:
    return gzip.compress(b"".join(msgspec.json.encode(row) + b"\n" for row in rows), 6, mtime=0)


def _table(table: pa.Table) -> bytes:
    out = io.BytesIO()
    pq.write_table(table, out, row_group_size=GROUP_ROWS)
    return out.getvalue()
