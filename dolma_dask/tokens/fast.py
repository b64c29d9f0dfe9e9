"""A faster engine for the same ids: ``fastokens``, for byte-level BPE (GPT-2, NeoX, Llama 3 and most since), 30 to 50 times as fast as ``tokenizers``.

``tokenizers`` stays the definition. The other engine is used for a tokenizer only after it has given equal ids for the texts of `probes`, some 8,000 mixtures of
Unicode with the special tokens of the tokenizer, and the same with a vocabulary of random pairs in place of the tokenizer's own (`of_pairs`), which shows
where a text is cut into words whether or not a merge crosses that place. That one also encodes each character by itself (`characters`). Characters that differ, such as a long s behind an
apostrophe where a pattern ignores case, are avoided: documents with one are left to the definition. This proof is kept in the user's cache folder beside the fingerprint of
the tokenizer and the versions of both libraries, so that a machine pays for it once. After that, the first document of every block and each 256th are compared for ever
(`FastTokenizer.encode`). The first difference ends the work with `EngineDiffersError`, and the proof is refuted: what was made is made anew by the definition, under a
key of its own.

Cost: 0.2 to 0.4 CPU-seconds to build; 120 to 190 MB of text per CPU-second; the comparison adds a tenth. The proof takes some 3 CPU-seconds.
"""

import os
import random
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import msgspec
import numpy as np
import pyarrow as pa
from msgspec import Struct
from numpy.typing import NDArray
from tokenizers import Tokenizer, pre_tokenizers

from dolma_dask.errors import EngineDiffersError
from dolma_dask.text import compute as pc
from dolma_dask.tokens.encoding import pieces_of

Engine = Literal["auto", "tokenizers", "fastokens"]
"""What makes ids: the fast engine where it is installed and proved, the definition, or the fast engine or an error."""

CHECKED = 256
"""One document of so many is compared."""

_CHECKED_BYTES = 1 << 18
"""Longer documents are not compared: the definition would take 100 MB of memory for one."""

LEAST_VOCABULARY = 10_000
"""Tokens of a vocabulary for which a proof is worth its time: smaller ones are of tests and trials. One that is asked for by name is proved all the same."""

MOST_AVOIDED = 200
"""Characters that may differ; an engine with more of them is not used."""

VERSION = 2
"""Raised whenever the proof asks for more than before."""

_PROBES = 8_000
_SEED = 20_240_817
_THREADS = ("RAYON_NUM_THREADS", "FASTOKENS_BPE_THREADS")
"""Variables that the engine reads when it starts."""

_SHOWN = 60
"""Characters of a text that a message shows."""


@cache
def fast_version() -> str | None:
    """Return the fast engine that is installed and what it is compared with, None if it is not installed."""
    if find_spec("fastokens") is None:
        return None
    try:
        return f"fastokens {version('fastokens')} beside tokenizers {version('tokenizers')}"
    except PackageNotFoundError:
        return None


@contextmanager
def _one_thread() -> Iterator[None]:
    """Let an engine that is started in the block encode in the thread that calls it: each of its own would fill a cache of words anew, and workers are what
    runs side by side."""
    ours = [name for name in _THREADS if name not in os.environ]
    os.environ.update(dict.fromkeys(ours, "1"))
    try:
        yield
    finally:
        for name in ours:
            del os.environ[name]


_CALL_BYTES = 4 << 20
"""Text that the engine gets at once: more than a block of documents has, unless one is large."""


class FastTokenizer:
    """A tokenizer of the fast engine, and the same one of the definition."""

    def __init__(self, content: str, tokenizer: Tokenizer, fingerprint: str = "", avoid: str = "") -> None:
        with _one_thread():
            import fastokens

            self._fast = fastokens.Tokenizer.from_json_str(content)
            self._fast.no_truncation()
            self._fast.no_padding()
            self._fast.encode_batch_flat(["", ""])  # starts its threads
        self._tokenizer = tokenizer
        self._fingerprint = fingerprint
        self._avoid = "[" + "".join(rf"\x{{{ord(char):x}}}" for char in avoid) + "]" if avoid else ""

    def ids(self, texts: list[str]) -> tuple[NDArray[np.uint32], NDArray[np.int64]]:
        """Return the ids of texts, back to back, and where each text's begin and end (n_texts + 1,)."""
        ids, offsets = self._fast.encode_batch_flat(texts)
        return np.frombuffer(ids, np.uint32), np.frombuffer(offsets, np.uint64).astype(np.int64)

    def avoided(self, texts: pa.LargeStringArray) -> NDArray[np.int64]:
        """Return the rows of documents that are to be encoded by the definition."""
        if not self._avoid:
            return np.empty(0, np.int64)
        found = pc.match_substring_regex(texts, self._avoid)
        return np.flatnonzero(found.to_numpy(zero_copy_only=False))

    def encode(self, texts: pa.LargeStringArray) -> tuple[NDArray[np.uint32], NDArray[np.int64]]:
        """Return the ids of a block of documents and their lengths (n_docs,).

        Raises `EngineDiffersError`: of the documents that are compared, one has other ids.
        """
        ids, lengths = self._in_pieces(texts)
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        sizes = pc.binary_length(texts).to_numpy(zero_copy_only=False)
        avoided = set(self.avoided(texts).tolist())
        rows = [
            row
            for row in range(0, len(texts), CHECKED)
            if sizes[row] <= _CHECKED_BYTES and row not in avoided
        ]
        some = texts.take(pa.array(rows, pa.int64())).to_pylist()
        found = [ids[offsets[row] : offsets[row + 1]] for row in rows]
        text = _differing(self._tokenizer, some, found)
        if text is not None:
            raise EngineDiffersError(
                f"{fast_version()} {differs_for(_shown(text))} (tokenizer {self._fingerprint}); expected those of tokenizers, and nothing that it made is believed. Take "
                "engine=tokenizers with overwrite."
            )
        return ids, lengths

    def _in_pieces(self, texts: pa.LargeStringArray) -> tuple[NDArray[np.uint32], NDArray[np.int64]]:
        """Encode a block, a large one in several calls: each takes 9 times its text."""
        made = [
            self.ids(texts.slice(start, stop - start).to_pylist())
            for start, stop in pieces_of(texts, _CALL_BYTES)
        ]
        if len(made) == 1:
            return made[0][0], np.diff(made[0][1])
        parts = ([np.empty(0, np.uint32)], [np.empty(0, np.int64)])
        for ids, offsets in made:
            parts[0].append(ids)
            parts[1].append(np.diff(offsets))
        return np.concatenate(parts[0]), np.concatenate(parts[1])


def _shown(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def _differing(tokenizer: Tokenizer, texts: list[str], found: list[NDArray[np.uint32]]) -> str | None:
    """Return the first text whose ids are not those of the definition."""
    encodings = tokenizer.encode_batch_fast(texts, add_special_tokens=False)
    pairs = zip(texts, encodings, found, strict=True)
    return next((text for text, known, ids in pairs if known.ids != ids.tolist()), None)


def differs_for(text: str) -> str:
    """Say that ids differ."""
    return f"gives other ids for the text {text!r}"


class Proof(Struct, frozen=True):
    """What is known of the fast engine for one tokenizer."""

    engine: str  # versions of what was compared
    avoid: str = ""  # characters of documents that it does not encode
    differs: str | None = (
        None  # for which text it gives other ids, or why it cannot be used; None: it gives the same
    )
    was_used: bool = False  # that was found only after work had been done with it
    version: int = VERSION


def proof_of(fingerprint: str, content: str, tokenizer: Tokenizer) -> Proof:
    """Return the proof for a tokenizer and the engines that are installed: what this machine knows, or from now on knows."""
    engine = fast_version()
    assert engine is not None, "asked only where the engine is installed"
    if (known := kept(fingerprint)) is not None:
        return known
    proof = _prove(engine, content, tokenizer)
    keep(fingerprint, proof)
    return proof


def _prove(engine: str, content: str, tokenizer: Tokenizer) -> Proof:
    """Compare the engines."""
    try:
        pairs = of_pairs(content)
        if pairs is None:
            return Proof(engine, differs="is used for byte-level BPE only")
        cutter = Tokenizer.from_str(pairs)
        both = [(FastTokenizer(content, tokenizer), tokenizer), (FastTokenizer(pairs, cutter), cutter)]
        avoid = "".join(sorted(set(_other_characters(*both[1]))))
        if len(avoid) > MOST_AVOIDED or any(map(_is_sample, avoid)):
            return Proof(
                engine, differs=f"gives other ids for {len(avoid):,} characters, such as {avoid[0]!r}"
            )
        names = [token.content for token in tokenizer.get_added_tokens_decoder().values()]
        texts = [text for text in probes(names) if not set(text) & set(avoid)]
        found = next(
            (text for fast, known in both if (text := _first_other(fast, known, texts)) is not None), None
        )
    except Exception as error:  # noqa: BLE001  neither library raises anything more precise, and the definition will do
        return Proof(engine, differs=f"cannot be used: {error}")
    return Proof(engine, avoid, None if found is None else differs_for(_shown(found)))


def _first_other(fast: FastTokenizer, tokenizer: Tokenizer, texts: list[str]) -> str | None:
    ids, offsets = fast.ids(texts)
    return _differing(tokenizer, texts, [ids[start:stop] for start, stop in pairwise(offsets)])


def _other_characters(fast: FastTokenizer, tokenizer: Tokenizer) -> Iterator[str]:
    """Yield the characters that have other ids in some surroundings."""
    chars = characters()
    groups = [chars[start : start + _TOGETHER] for start in range(0, len(chars), _TOGETHER)]
    for group in _others(fast, tokenizer, groups):
        yield from _others(fast, tokenizer, list(group))


def _others(fast: FastTokenizer, tokenizer: Tokenizer, groups: list[str]) -> list[str]:
    texts = ["".join(map(_around, group)) for group in groups]
    ids, offsets = fast.ids(texts)
    encodings = tokenizer.encode_batch_fast(texts, add_special_tokens=False)
    parts = (ids[start:stop].tolist() for start, stop in pairwise(offsets))
    return [group for group, known, part in zip(groups, encodings, parts, strict=True) if known.ids != part]


_TOGETHER = 16


def _around(char: str) -> str:
    """Return a character in the surroundings that patterns of tokenizers look at: letters, digits, spaces, newlines, apostrophes and signs."""
    c = char
    return f"a{c}b {c}{c} 1{c}'{c}a '{c}'s {c}\n{c}  {c}'ll\n"


_UNIFORM = ((0x3400, 0x4DC0), (0x4E00, 0xA000), (0xAC00, 0xD7A4), (0xE000, 0xF900), (0x10000, 0x20000))
"""Ranges of characters that are alike for patterns: ideographs, Hangul, private use, and the scripts and signs beyond the basic plane."""

_EVERY = 16
"""One of so many is taken of them."""


def _is_sample(char: str) -> bool:
    """Tell whether a character stands for others that are not looked at."""
    return ord(char) >= 0x20000 or any(first <= ord(char) < stop for first, stop in _UNIFORM)


def characters() -> str:
    """Return the characters of the basic plane, one in 16 of those that are alike, and a few of other planes."""
    alike = {code for first, stop in _UNIFORM for code in range(first, stop) if code % _EVERY}
    codes = (code for code in range(1, 0x20000) if code not in alike and not 0xD800 <= code < 0xE000)
    return "".join(map(chr, (*codes, 0x20000, 0x2FA1D, 0xE0001, 0x10FFFD)))


def of_pairs(content: str) -> str | None:
    """Return the JSON of a byte-level tokenizer with a vocabulary of all pairs of bytes, merged in a random order, in place of its own; None if it is of another kind."""
    known = msgspec.json.decode(content)
    kinds = {step["type"] for step in _steps(known["pre_tokenizer"])}
    if known["model"].get("type", "BPE") != "BPE" or "ByteLevel" not in kinds:
        return None
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    merges = [(one, other) for one in alphabet for other in alphabet]
    random.Random(_SEED).shuffle(merges)
    names = [*alphabet, *(f"{one}{other}" for one, other in merges)]
    vocabulary = {name: number for number, name in enumerate(names)}
    added = [
        {**token, "id": vocabulary.setdefault(token["content"], len(vocabulary))}
        for token in known["added_tokens"]
    ]
    model = {**known["model"], "vocab": vocabulary, "merges": merges, "ignore_merges": False}
    dropped = dict.fromkeys(("post_processor", "truncation", "padding"))
    changed = {**known, **dropped, "model": model, "added_tokens": added}
    return msgspec.json.encode(changed).decode()


def _steps(step: dict[str, Any] | None) -> list[dict[str, Any]]:
    if step is None:
        return []
    return (
        [one for inner in step["pretokenizers"] for one in _steps(inner)]
        if step["type"] == "Sequence"
        else [step]
    )


_RANGES = (
    (0x20, 0x7F), (0x61, 0x7B), (0x41, 0x5B), (0x30, 0x3A), (0x09, 0x0E), (0xA0, 0x180), (0x300, 0x370), (0x370, 0x400), (0x400, 0x500),
    (0x590, 0x600), (0x600, 0x700), (0x900, 0x980), (0xE00, 0xE80), (0x1100, 0x1200), (0x2000, 0x2070), (0x20A0, 0x2200), (0x3040, 0x3100), (0x4E00, 0x9FFF),
    (0x1800, 0x18B0), (0xAC00, 0xD7A4), (0xE000, 0xE100), (0xFE00, 0xFE10), (0xFF00, 0xFFF0), (0x1D400, 0x1D500), (0x1F300, 0x1F650), (0x20000, 0x20100),
)  # fmt: skip
"""Code points of Latin, spaces, marks, scripts of all kinds of letters, Hangul in letters and syllables, signs, emoji and unassigned ones."""

_HAND_MADE = (
    "", " ", "\n", "\r\n\r\n", "a" * 5_000, " " * 300, "\u0000", "\ufeff text", "e\u0301 \u00e9", "\u1100\u1161\u11a8 \uac01", "it's we'LL I'm\u2019s",
    "\U0001f468\u200d\U0001f469\u200d\U0001f467", "1234567890" * 50, "\t\t  \n \n\n x", "\u3000\u00a0\u2003", "\ufb01\u2126\u212b", "\x7f\x80\x85\xa0",
)  # fmt: skip


def probes(specials: list[str]) -> list[str]:
    """Return texts to compare engines by, always the same: runs of characters of several ranges, mixed with special tokens, whole and cut, and with runs of spaces."""
    drawn = random.Random(_SEED)
    others = ["'", "'\u017f", "\u180e", " ", "  ", "\n", "\n\n", "\t", " " * 7, "'s", "'ll ", *specials[:64]]
    texts = [*_HAND_MADE, *specials[:64]]
    while len(texts) < _PROBES:
        parts = [_part(drawn, others) for _ in range(drawn.randint(1, 6))]
        texts.append("".join(parts))
    return texts


def _part(drawn: random.Random, others: list[str]) -> str:
    chance = drawn.random()
    if chance < 0.3:
        return drawn.choice(others)
    if chance < 0.35:
        other = drawn.choice(others)
        return other[: drawn.randint(0, len(other))]
    first, stop = drawn.choice(_RANGES)
    return "".join(chr(drawn.randrange(first, stop)) for _ in range(drawn.randint(1, 12)))


def _place(fingerprint: str) -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser()
    return Path(base) / "dolma_dask" / "engines" / f"{fingerprint}.json"


def kept(fingerprint: str) -> Proof | None:
    """Return the proof that this machine keeps for a tokenizer and the engines that are installed, if any."""
    try:
        known = msgspec.json.decode(_place(fingerprint).read_bytes(), type=Proof)
    except (
        OSError,
        RuntimeError,
        msgspec.DecodeError,
    ):  # not there, or damaged: it is made anew; or nobody's home
        return None
    installed = fast_version() in (known.engine, None)
    return known if installed and known.version == VERSION else None


def keep(fingerprint: str, proof: Proof) -> None:
    """Write a proof for later runs; where nothing can be written, they pay for it again."""
    new = None
    try:
        path = _place(fingerprint)
        new = path.with_name(f"{path.name}.{os.getpid()}")
        path.parent.mkdir(parents=True, exist_ok=True)
        new.write_bytes(msgspec.json.encode(proof))
        new.replace(path)
    except (OSError, RuntimeError):
        if new is not None:
            with suppress(OSError):
                new.unlink()
