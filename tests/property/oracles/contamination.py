"""Contamination, by a look at every place of a text for every size of an n-gram."""

import token_oracle
from hypothesis import strategies as st

from dolma_dask.taggers.contamination import NEAR

ORACLES: dict[str, object] = {}  # it needs benchmarks: `tests/property/test_contamination.py` gives some
NAMES = ("odd", "even")

few = st.lists(
    st.sampled_from(["a", "B", "é", "ab-c", "語", "。", "ﬃ", "e\u0301", "\u200d", "\n", "-" * (NEAR - 1)]),
    max_size=24,
)
texts = few.map(" ".join) | few.map("".join)


def table_of(items, ngram, least):
    """The n-grams of each benchmark, and the first item that has each; items are lists of texts, and even and odd ones of two benchmarks."""
    known = {name: {} for name in NAMES}
    for number, item in enumerate(items):
        for words in map(token_oracle.tokens, item):
            size = min(ngram, len(words))
            for at in range(len(words) - size + 1) if size >= least else ():
                known[NAMES[number % 2]].setdefault(tuple(words[at : at + size]), number)
    return known


def runs(grams, places):
    """Words on end in n-grams (begin, end), as (begin, end, number of words): parted where two words have none in common and too many characters between them."""
    inside = {word for begin, end in grams for word in range(begin + 1, end)}
    own = []
    for word in sorted({word for gram in grams for word in range(*gram)}):
        is_near = own and own[-1] == word - 1 and places[word][0] - places[word - 1][1] <= NEAR
        if own and not (word in inside or is_near):
            yield places[own[0]][0], places[own[-1]][1], float(len(own))
            own = []
        own.append(word)
    if own:
        yield places[own[0]][0], places[own[-1]][1], float(len(own))


def contamination(text, places, known):
    words, covered, counts = token_oracle.tokens(text), {}, {}
    sizes = {len(gram) for grams in known.values() for gram in grams}
    for at in range(len(words)):
        for size in sizes:
            gram = tuple(words[at : at + size])
            for name, grams in known.items() if len(gram) == size else ():
                if gram in grams:
                    item = grams[gram]
                    for key in (None, name, item):
                        covered.setdefault(key, set()).add((at, at + size))
                    counts[item] = counts.get(item, 0) + 1
    stretches = list(runs(covered.get(None, ()), places))

    def share(key):
        return sum(end - begin for begin, end, _ in runs(covered[key], places)) / len(text)

    spans = sorted(
        (begin, end, float(item + 1), f"items_{NAMES[item % 2]}")
        for item in counts
        for begin, end, _ in runs(covered[item], places)
    )
    most = min(counts, key=lambda item: (-counts[item], item), default=None)
    return {
        "stretches": [{"start": b, "end": e, "score": n} for b, e, n in stretches] or None,
        "share": share(None) if stretches else 0.0,
        "shares": [(f"share_{name}", share(name)) for name in NAMES if name in covered],
        "items": [{"label": label, "start": b, "end": e, "score": row} for b, e, row, label in spans] or None,
        "benchmark": None if most is None else NAMES[most % 2],
        "item": None if most is None else float(most + 1),
    }
