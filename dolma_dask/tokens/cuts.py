"""Positions at which a long text may be cut before it is encoded, so that the ids of its parts are those of the whole.

A tokenizer normalizes, splits the text into words (pre-tokenization) and encodes each word by itself. Between a letter and a space or newline most
split whatever stands around, and neither their normalizer nor their added tokens reach across. `find_cutter` reads that off the JSON: it knows the
steps of which this can be said, and gives up (None) on others: models without words (Llama 2), a normalizer that strips or prepends, regular
expressions of parts that it does not know. What it says of a tokenizer is checked on every cut all the same, on the text around it.

A text without such positions, as one without spaces, stays whole.
"""

import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
from msgspec import Struct
from numpy.typing import NDArray
from tokenizers import Tokenizer

_SEARCHED = 1 << 16
"""Bytes that are decoded at a time in search of a cut."""

_CHECKED = 64
"""Characters on either side of a cut with which it is checked."""

_LOCAL = {"NFC", "NFD", "NFKC", "NFKD", "Nmt", "Precompiled", "Lowercase", "StripAccents", "BertNormalizer"}
"""Normalizers that make the same of a word whatever follows the space behind it."""

_OF_CHARACTERS = {"Digits", "Punctuation"}
"""Pre-tokenizers that split at single characters, of which no space behind a letter is one."""

_BY_SPACE = {"Whitespace", "WhitespaceSplit", "BertPreTokenizer"}
"""Pre-tokenizers for which all white space ends a word, and is none."""

_CONTRACTIONS = ("(?i:'s|'t|'re|'ve|'m|'ll|'d)|", "'(?:[sdmt]|ll|ve|re)|", "'s|'t|'re|'ve|'m|'ll|'d|")

_ALTERNATIVES = {
    r" ?\p{L}+",
    r"[^\r\n\p{L}\p{N}]?\p{L}+",
    r" ?\p{N}+",
    r"\p{N}{1,3}",
    r"\p{N}",
    r" ?[^\s\p{L}\p{N}]+",
    r" ?[^\s\p{L}\p{N}]+[\r\n]*",
    r"\s*[\r\n]+",
    r"\s*[\r\n]",
    r"\s+(?!\S)",
    r"\s+",
}
"""Parts of regular expressions of published tokenizers (GPT-2, cl100k, Llama 3, Qwen 2); none matches a letter and white space behind it."""

_ENDS = {True: re.compile(r"[^\W\d_][ \n]"), False: re.compile(r"[^\W\d_] ")}


class _Added(Struct):
    content: str
    rstrip: bool = False


class _Steps(Struct):
    added_tokens: list[_Added] = []
    normalizer: dict[str, Any] | None = None
    pre_tokenizer: dict[str, Any] | None = None


class Cutter(Struct, frozen=True):
    """Places where a tokenizer ends a word whatever stands around."""

    at_newlines: bool  # before newlines too, not only before spaces

    def cuts(self, data: NDArray[np.uint8], size: int, tokenizer: Tokenizer) -> list[int]:
        """Return where to cut UTF-8 text into parts of about `size` bytes; none if a check fails."""
        found: list[int] = []
        while (start := (found[-1] if found else 0) + size) < data.size:
            cut = next(self._candidates(data, start), None)
            if cut is None:
                break
            position, left, right = cut
            if not _agrees(tokenizer, left, right):
                return []
            found.append(position)
        return found

    def _candidates(self, data: NDArray[np.uint8], start: int) -> Iterator[tuple[int, str, str]]:
        """Yield positions from `start` on, each with the text before and behind it."""
        for first in range(start, data.size, _SEARCHED):
            before = max(first - 4 * _CHECKED, 0)
            text = data[before : first + _SEARCHED].tobytes().decode(errors="ignore")
            skipped = before
            while skipped < data.size and data[skipped] & 0xC0 == 0x80:
                skipped += 1  # bytes of a character that began before
            known = len(data[skipped:first].tobytes().decode(errors="ignore"))
            for match in _ENDS[self.at_newlines].finditer(text, max(known - 1, 0)):
                at = match.end() - 1
                if at >= known and _is_plain_letter(text[at - 1]):
                    yield (
                        skipped + len(text[:at].encode()),
                        text[max(at - _CHECKED, 0) : at],
                        text[at : at + _CHECKED],
                    )


def _agrees(tokenizer: Tokenizer, left: str, right: str) -> bool:
    """Tell whether two texts have the ids of both together."""
    try:
        whole, *parts = (
            tokenizer.encode(text, add_special_tokens=False).ids for text in (left + right, left, right)
        )
    except Exception:  # noqa: BLE001  encoding all of it will say what is wrong with it, and where
        return False
    return bool(whole == parts[0] + parts[1])


def _is_plain_letter(char: str) -> bool:
    """Tell whether a character is a letter in every normal form."""
    return char.isalpha() and unicodedata.normalize("NFKD", char) == char


def find_cutter(content: str) -> Cutter | None:
    """Return the cutter of a tokenizer, whose JSON is `content`; None if texts must be encoded whole."""
    steps = msgspec.json.decode(content, type=_Steps)
    if any(_reaches(token) for token in steps.added_tokens):
        return None
    if not all(_is_local(step) for step in _flat(steps.normalizer, "normalizers")):
        return None
    splitting = [
        step for step in _flat(steps.pre_tokenizer, "pretokenizers") if step["type"] not in _OF_CHARACTERS
    ]
    if not splitting or not _splits(splitting[0]) or not all(map(_is_splitter, splitting[1:])):
        return None
    return Cutter(not any(map(_minds_newlines, splitting)))


def _reaches(token: _Added) -> bool:
    """Tell whether an added token may hold a letter and white space behind it."""
    return token.rstrip or (not token.content.isspace() and any(map(str.isspace, token.content)))


def _flat(step: Mapping[str, Any] | None, members: str) -> Sequence[Mapping[str, Any]]:
    if step is None:
        return []
    return (
        [one for inner in step[members] for one in _flat(inner, members)]
        if step["type"] == "Sequence"
        else [step]
    )


def _is_local(step: Mapping[str, Any]) -> bool:
    """Tell whether a normalizer is local: a run of spaces that becomes one is behind the cut as a whole."""
    runs = step["type"] == "Replace" and step.get("pattern") == {"Regex": " {2,}"}
    return runs or step["type"] in _LOCAL


def _splits(step: Mapping[str, Any]) -> bool:
    """Tell whether a pre-tokenizer ends a word between a letter and a space."""
    kind = step["type"]
    if kind == "ByteLevel":
        return bool(step.get("use_regex", True))
    if kind == "Metaspace":
        return bool(step.get("split", True))
    if kind == "Split":
        return step.get("behavior") in ("Isolated", "Removed") and _is_known(step["pattern"].get("Regex", ""))
    return kind in _BY_SPACE


def _is_splitter(step: Mapping[str, Any]) -> bool:
    """Tell whether a further pre-tokenizer works on each word by itself, as all do; those that put something before a word are not known."""
    return step["type"] in ("ByteLevel", "Split", *_BY_SPACE)


def _is_known(regex: str) -> bool:
    for contraction in _CONTRACTIONS:
        regex = regex.removeprefix(contraction)
    parts = set(regex.split("|"))
    return parts <= _ALTERNATIVES and r"\s+" in parts and any(part.endswith(r"\p{L}+") for part in parts)


def _minds_newlines(step: Mapping[str, Any]) -> bool:
    """Tell whether a pre-tokenizer puts a space before a text that begins with a newline, or goes on behind one."""
    return step["type"] == "Metaspace" or bool(step.get("add_prefix_space", False))
