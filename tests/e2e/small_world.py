"""A small seeded world to run every verb in: raw files, a dataset to tag, a tagged dataset to mix and tokenize, and the commands."""

import gzip
import hashlib
import json
import random
import shutil
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from dolma_dask import cli
from dolma_dask.testing.tokenizer import train_tokenizer

TAGGERS = ("char_length_v1", "whitespace_tokenizer_v1", "gopher_v2")
RULE = "gopher_v2__gopher_v2__word_count >= 20 and char_length_v1__char_length_v1__length < 3000"

WILD = [
    "naïve",
    "coöperation",
    "Straße",
    "İstanbul",
    "ﬁne",
    "½",
    "Ⅷ",
    "１２３",
    "٣٤٥",
    "中文字",
    "日本語です",
    "한국어",
    "שלום",
    "مرحبا",
    "हिन्दी",
    "ไทยภาษา",
    "ẹ́",
    "́",
    "👨\u200d👩\u200d👧",
    "🇫🇷",
    "\u200b",
    "\ufeff",
    "\x00",
    "\x7f",
    "\x1b[0m",
    "\U0010ffff",
    "\ue000",
    "\ufdd0",
    "…",
    "-",
    "•",
    "https://example.org/?q=1&x=<y>",
    "{json:[1]}",
    "\\n",
    "\\u0041",
    '"quoted"',
    "'single'",
    "a/b",
    "3.14159",
    "------",
    ".....",
    "###",
]
ORDINARY = [
    "the",
    "of",
    "and",
    "to",
    "in",
    "a",
    "is",
    "that",
    "for",
    "it",
    "as",
    "was",
    "with",
    "be",
    "by",
    "on",
    "not",
    "he",
    "his",
    "but",
    "at",
    "are",
    "this",
    "have",
    "from",
    "or",
    "had",
    "an",
    "they",
    "which",
    "one",
    "you",
    "were",
    "all",
    "water",
    "people",
    "history",
    "language",
    "curious",
    "window",
    "measure",
    "harbour",
    "reading",
    "seldom",
    "promise",
    "winter",
    "copper",
    "machine",
    "garden",
    "village",
]
BREAKS = ("\n", "\n\n", "\r\n", "\u2028", "\t", "\u00a0", "\u3000")


def make_text(draw: random.Random) -> str:
    """Return words of many scripts; one text in fifty is empty, one in a hundred is long."""
    count = draw.choice((0, 5, 30, 80, 200, 600)) if draw.random() < 0.3 else draw.randrange(20, 120)
    count = 0 if draw.random() < 0.02 else count * (20 if draw.random() < 0.01 else 1)
    words = draw.choices(ORDINARY if draw.random() < 0.7 else WILD + ORDINARY, k=count)
    return "".join(word + (draw.choice(BREAKS) if draw.random() < 0.08 else " ") for word in words)


def make_lines(draw: random.Random, rows: int, name: str) -> list[bytes]:
    """Return documents as JSON lines, written in the ways that other tools write them."""
    lines = []
    for row in range(rows):
        document = {
            "id": f"{name}-{row}",
            "text": make_text(draw),
            "source": draw.choice(("web", "wïki", "books")),
        }
        if draw.random() < 0.5:
            document |= {
                "added": "2024-01-01",
                "metadata": {"n": row, "big": 12345678901234567890, "é": [1.0, None]},
                "x": "\u2028",
            }
        separators = draw.choice(((",", ":"), (", ", ": ")))
        lines.append(
            json.dumps(document, ensure_ascii=draw.random() < 0.3, separators=separators).encode() + b"\n"
        )
    return lines


def store(path: Path, lines: list[bytes], members: int = 1) -> None:
    """Write lines as the suffix says; gzip in so many members, cut anywhere."""
    path.parent.mkdir(parents=True, exist_ok=True)
    data = b"".join(lines)
    if path.name.endswith(".gz"):
        step = len(data) // members + 1
        pieces = [data[start : start + step] for start in range(0, len(data), step)] or [b""]
        path.write_bytes(b"".join(gzip.compress(piece, 1, mtime=0) for piece in pieces))
    elif path.name.endswith(".zst"):
        path.write_bytes(pa.Codec("zstd").compress(data, asbytes=True))
    else:
        path.write_bytes(data)


def make_documents(root: Path, seed: int) -> None:
    """Write twelve shards, 2 MB in all: nested folders, all JSON suffixes, many members, an empty shard."""
    draw = random.Random(seed)
    for number in range(8):
        name = f"2019-{number:02d}/part_{number}"
        store(
            root / f"documents/{name}.jsonl.gz",
            make_lines(draw, draw.randrange(100, 500), name),
            1 + number % 4,
        )
    store(root / "documents/zst/a.jsonl.zst", make_lines(draw, 300, "zst"))
    store(root / "documents/plain.jsonl", make_lines(draw, 200, "plain"))
    store(root / "documents/other.json.gz", make_lines(draw, 100, "other"), 3)
    store(root / "documents/empty.jsonl.gz", [])


def make_raw(root: Path, seed: int) -> None:
    """Write eight raw files with other field names."""
    draw = random.Random(seed)
    for number in range(8):
        lines = []
        for row in range(draw.randrange(100, 400)):
            record = {"key": f"k{row}", "body": make_text(draw), "extra": {"n": row}}
            lines.append(json.dumps(record, ensure_ascii=False).encode() + b"\n")
        store(root / f"dump/{number}.jsonl{('.gz', '.zst', '')[number % 3]}", lines, 2)


@dataclass(frozen=True)
class Verb:
    """One verb as a command, and the folder it fills.

    Attributes
    ----------
    name : str
        Of the verb.
    words : tuple of str
        Arguments; ``{}`` stands for the world's folder.
    output : str
        Folder below the world that holds all it makes.
    more : str
        What tells it from other commands of the verb.
    """

    name: str
    words: tuple[str, ...]
    output: str
    more: str = ""

    @property
    def key(self) -> str:
        """Name in `VERBS`."""
        return f"{self.name} {self.more}".rstrip()

    def command(self, world: Path, *more: str) -> list[str]:
        """Return the arguments in a certain world."""
        return [word.replace("{}", str(world)) for word in (self.name, *self.words)] + list(more)


VERBS = {
    verb.key: verb
    for verb in (
        Verb(
            "convert",
            (
                "{}/raw",
                "--to",
                "{}/converted",
                "--id",
                "key",
                "--text",
                "body",
                "--source",
                "web",
                "--shard-bytes",
                "60000",
            ),
            "converted",
        ),
        Verb("tag", ("{}/untagged", "--taggers", *TAGGERS), "untagged"),
        Verb("mix", ("{}/v0", "--to", "{}/v1", "--where", RULE), "v1"),
        Verb(
            "ragged",
            (
                "{}/v0",
                "{}/tokens",
                "--tokenizer",
                "{}/tokenizer.json",
                "--eos",
                "<|endoftext|>",
                "--where",
                RULE,
            ),
            "tokens",
        ),
        Verb(
            "hdf5",
            (
                "{}/v0",
                "{}/rows",
                "--tokenizer",
                "{}/tokenizer.json",
                "--max-seq-length",
                "64",
                "--max-rows-per-file",
                "900",
                "--where",
                RULE,
            ),
            "rows",
        ),
        Verb(
            "mix",
            (
                "{}/v0",
                "--to",
                "{}/mixed/v1",
                "--ragged",
                '{"to": "{}/mixed/tokens", "tokenizer": "{}/tokenizer.json"}',
                "--hdf5",
                '{"to": "{}/mixed/rows", "tokenizer": "{}/tokenizer.json", "max_seq_length": 64, "max_rows_per_file": 900}',
                "--where",
                RULE,
            ),
            "mixed",
            "to tokens",
        ),
    )
}


PER_SHARD = ("convert", "tag", "mix", "ragged")
"""Those of which a shard can be made by itself: rows of `hdf5` go on from shard to shard."""


def make_world(world: Path, seed: int = 7) -> None:
    """Make everything that the commands of `VERBS` need."""
    make_raw(world / "raw", seed)
    make_documents(world / "untagged", seed + 1)
    shutil.copytree(world / "untagged", world / "v0")
    train_tokenizer(ORDINARY + WILD, world / "tokenizer.json", 300)
    assert run_here(["tag", str(world / "v0"), "--taggers", *TAGGERS]) == 0


def run_here(words: list[str]) -> int:
    """Run a command in this process, without Dask's processes; return its exit status."""
    return cli.main([*words, "--scheduler", "synchronous", "--no-progress"])


def tree(folder: Path) -> dict[str, str]:
    """Return the sha256 of every file below `folder`, except the journal: what a law about bytes speaks of."""
    found = (
        path
        for path in folder.rglob("*")
        if path.is_file() and "_journal" not in path.relative_to(folder).parts
    )
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(found)
    }


def temporaries(folder: Path) -> list[str]:
    """Return everything hidden below `folder`, the journal included: nothing may be left."""
    return sorted(str(path.relative_to(folder)) for path in folder.rglob(".*"))
