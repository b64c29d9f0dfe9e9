"""Words by the rules of Unicode: the rules, place by place, on the names of the classes."""

from dolma_dask.text.tables import read_arrays
from dolma_dask.text.word_breaks import CLASSES
from oracles.length import paragraphs

NUMBERS, BLOCKS = read_arrays("break_numbers", "break_blocks")
LETTERS = {"ALetter", "Hebrew_Letter"}
LINE_ENDS = {"CR", "LF", "Newline"}
IGNORED = {"Extend", "Format", "ZWJ"}
QUOTES = {"MidNumLet", "Single_Quote"}
ALIKE = LETTERS | {"Numeric", "Katakana", "ExtendNumLet"}


def class_of(char):
    return CLASSES[BLOCKS[int(NUMBERS[ord(char) >> 8]) * 256 + (ord(char) & 255)]].partition(" ")


def words(text):
    """Yield the words of a text; each number in a comment is that of a rule."""
    known = [class_of(char) for char in text]
    names = [name for name, _, _ in known]
    kept = [
        place
        for place, name in enumerate(names)
        if name not in IGNORED or place == 0 or names[place - 1] in LINE_ENDS
    ]
    start = 0
    numbers = {place: number for number, place in enumerate(kept)}
    for place in range(1, len(text)):
        before, after = names[place - 1], names[place]
        if before in LINE_ENDS or after in LINE_ENDS:
            ends = (before, after) != ("CR", "LF")  # 3, 3a, 3b
        elif after in IGNORED or (before == "ZWJ" and known[place][2] == "pictographic"):
            ends = False  # 4, 3c
        elif before == after == "WSegSpace":
            ends = False  # 3d
        else:
            number = numbers[place]
            around = [names[kept[k]] if 0 <= k < len(kept) else "" for k in range(number - 2, number + 2)]
            ends = not joins(*around)
            if around[1] == after == "Regional_Indicator":  # 15, 16
                run = number - 1
                while run >= 0 and names[kept[run]] == "Regional_Indicator":
                    run -= 1
                ends = (number - 1 - run) % 2 == 0
        if ends:
            yield text[start:place]
            start = place
    if text:
        yield text[start:]


def joins(earlier, before, after, later):
    both = {before, after}
    if both <= LETTERS or both == {"Numeric"} or both == {"Katakana"}:
        return True  # 5, 8, 13
    if both & {"Numeric"} and both & LETTERS:
        return True  # 9, 10
    if "ExtendNumLet" in both:
        return both <= ALIKE  # 13a, 13b
    if before in LETTERS and after in QUOTES | {"MidLetter"} and later in LETTERS:
        return True  # 6
    if earlier in LETTERS and before in QUOTES | {"MidLetter"} and after in LETTERS:
        return True  # 7
    if before == "Hebrew_Letter" and (after == "Single_Quote" or (after, later) == ("Double_Quote", before)):
        return True  # 7a, 7b
    if (earlier, before, after) == ("Hebrew_Letter", "Double_Quote", "Hebrew_Letter"):
        return True  # 7c
    signs = QUOTES | {"MidNum"}
    return (earlier == after == "Numeric" and before in signs) or (
        before == later == "Numeric" and after in signs
    )  # 11, 12


def in_paragraphs(text, keeps_blank=False):
    counts = [
        (start, start + len(piece), sum(1.0 for word in words(piece.strip()) if word.strip()))
        for start, piece in paragraphs(text, keeps_blank)
    ]
    return {
        name: [{"start": start, "end": end, "score": sign * count + 0.0} for start, end, count in counts]
        or None
        for name, sign in (("paragraph", 1), ("negative_paragraph", -1))
    }


def with_document(text):
    found = in_paragraphs(text)
    total = sum(span["score"] for span in found["paragraph"] or ()) + 0.0
    return {**found, "document": total, "negative_document": 0.0 - total}


ORACLES = {
    "uniseg_length_v1": lambda text: {"length": float(len([*words(text.strip())]))},
    "uniseg_length_paragraphs_v1": in_paragraphs,
    "uniseg_length_paragraphs_with_empty_v1": lambda text: in_paragraphs(text, keeps_blank=True),
    "uniseg_length_paragraphs_with_doc_length_v1": with_document,
}
