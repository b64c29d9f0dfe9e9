"""Near copies of texts at a chosen similarity, and texts of scripts without spaces to copy: what recall is measured on."""

import random
from bisect import bisect
from functools import cache
from itertools import accumulate

SCRIPTS = {
    "chinese": [(0x4E00, 0x9FA5)],
    "japanese": [(0x3042, 0x3093), (0x30A2, 0x30ED), (0x4E00, 0x8FFF)],
    "thai": [(0x0E01, 0x0E30), (0x0E40, 0x0E45)],
}
"""Ranges of code points, both ends included, of which each is drawn equally often."""

EDITS = 1000
"""Most edits of a copy."""

_MARKS = "。、，・「」 ,.()"
_LATIN = ("Python", "web", "2024", "AI", "DNA", "Wikipedia", "3.5", "OK")


def char_ngrams(text: str, n: int = 5) -> set[str]:
    """Return the n-grams of the code points of a text; the whole of a shorter one."""
    return {text[at : at + n] for at in range(max(len(text) - n + 1, 1))}


def jaccard(one: set[str], other: set[str]) -> float:
    """Return the similarity of two sets that are not both empty."""
    return len(one & other) / len(one | other)


def unspaced_text(script: str, chars: int, draws: random.Random) -> str:
    """Return a text of about so many code points in one of `SCRIPTS`: words of one to four code points, the k-th most common of 2,000 with a
    frequency of 1 / k, between marks and a few words in Latin letters.
    """
    words, totals = _vocabulary(script)
    text = ""
    while len(text) < chars:
        chance = draws.random()
        if chance < 0.08:
            text += draws.choice(_MARKS)
        elif chance < 0.1:
            text += draws.choice(_LATIN)
        else:
            text += words[bisect(totals, draws.random() * totals[-1])]
    return text


def near_copy(text: str, least: float, most: float, draws: random.Random) -> str:
    """Return an edited copy whose `char_ngrams` have a Jaccard similarity to those of `text` from `least` to `most`.

    Edits replace, drop or double a character, put in a mark, a blank or a word in Latin letters, or drop a mark or blank, each at a random place.
    Raises `ValueError`: the text is so short that one edit changes more than that.
    """
    original = char_ngrams(text)
    for _ in range(10):
        wanted, copy = draws.uniform(least, most), text
        for _ in range(EDITS):
            copy = _edit(copy, text, draws)
            similarity = jaccard(original, char_ngrams(copy))
            if similarity <= wanted:
                break
        if least <= similarity <= most:
            return copy
    raise ValueError(f"no copy of {len(text)} characters between {least} and {most} in ten attempts")


def _edit(copy: str, text: str, draws: random.Random) -> str:
    at = draws.randrange(len(copy))
    match draws.randrange(6):
        case 0:
            return copy[:at] + draws.choice(text) + copy[at + 1 :]
        case 1:
            return copy[:at] + copy[at + 1 :]
        case 2:
            return copy[:at] + copy[at] + copy[at:]
        case 3:
            return copy[:at] + draws.choice(_MARKS) + copy[at:]
        case 4:
            return copy[:at] + draws.choice(_LATIN) + copy[at:]
        case _:
            marks = [place for place, char in enumerate(copy) if char in _MARKS]
            at = draws.choice(marks) if marks else at
            return copy[:at] + copy[at + 1 :]


@cache
def _vocabulary(script: str) -> tuple[list[str], list[float]]:
    """Return the words of a script, and how common those up to each are; the same in every process."""
    draws, ranges = random.Random(script), SCRIPTS[script]
    words = [
        "".join(chr(draws.randint(*draws.choice(ranges))) for _ in range(draws.randint(1, 4)))
        for _ in range(2000)
    ]
    return words, list(accumulate(1 / rank for rank in range(1, len(words) + 1)))
