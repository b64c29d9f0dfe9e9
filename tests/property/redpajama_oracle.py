"""The rule signals of RedPajama-V2 in plain Python, from their definitions: slow, with the JSON types that are published."""

import math
import re
import string
import unicodedata
from collections import Counter

TOKEN = re.compile(r"\w+|[^\w\s]+")
SENTENCE = re.compile(r"\b[^.!?]+[.!?]*")
LINE = re.compile(r"[^\n]*\n|[^\n]+$")
LATIN = re.compile(r"[a-zA-Z]")
NO_PUNCTUATION = str.maketrans("", "", string.punctuation)
BULLETS = tuple("\u2022\u2023\u25b6\u25c0\u25e6\u25a0\u25a1\u25aa\u25ab\u2013")
BUCKETS = {"head": 0.0, "middle": 1.0, "tail": 2.0}


def normalise(text):
    lowered = text.translate(NO_PUNCTUATION).lower().strip()
    return unicodedata.normalize("NFD", re.sub(r"\s+", " ", lowered))


def split_lines(text):
    return [match.group() for match in LINE.finditer(text)]


def ngrams(words, n):
    return [tuple(words[at : at + n]) for at in range(len(words) - n + 1)]


def share(count, of):
    return round(count / of, 8) if of else None


def content(text, raw, words, stop_words, bad_words, category):
    """`stop_words` and `bad_words` are those of the document's language, None where there are none."""
    normal = " ".join(words)
    return {
        "rps_doc_curly_bracket": round((text.count("{") + text.count("}")) / len(text), 8) if text else 0.0,
        "rps_doc_ldnoobw_words": None if bad_words is None else _bad_words(words, bad_words),
        "rps_doc_lorem_ipsum": round(normal.count("lorem ipsum") / len(normal), 8) if normal else 0.0,
        "rps_doc_stop_word_fraction": None if stop_words is None else _stop_share(raw, words, stop_words),
        "rps_doc_ut1_blacklist": category,
    }


def _bad_words(words, listed):
    sizes = {1 + entry.count(" ") for entry in listed}
    return float(sum(" ".join(ngram) in listed for n in sizes for ngram in ngrams(words, n)))


def _stop_share(raw, words, listed):
    return share(sum(word in listed for word in raw), len(raw)) if words else 0.0


def repetitions(words):
    chars = sum(map(len, words))
    result = {}
    for n in (10, 5, 6, 7, 8, 9):
        result[f"rps_doc_frac_chars_dupe_{n}grams"] = _covered(words, n, chars)
    for n in (2, 3, 4):
        result[f"rps_doc_frac_chars_top_{n}gram"] = _top(words, n, chars)
    return result


def _covered(words, n, chars):
    if len(words) < n or chars == 0:
        return 0.0
    found = ngrams(words, n)
    counts = Counter(found)
    covered = {at + k for at, ngram in enumerate(found) if counts[ngram] > 1 for k in range(n)}
    return round(sum(len(words[at]) for at in covered) / chars, 8)


def _top(words, n, chars):
    counts = Counter(ngrams(words, n))
    if not counts:
        return 0.0
    ngram, count = counts.most_common(1)[0]
    return round(sum(map(len, ngram)) * count / chars, 8) if count > 1 else 0.0


def natural_language(text, raw, words, lines):
    ends = [line.rstrip() for line in lines]
    symbols = text.count("#") + text.count("...") + text.count("\u2026")
    latin = share(sum(LATIN.search(word) is not None for word in raw), len(raw))
    return {
        "rps_doc_frac_all_caps_words": share(sum(map(str.isupper, raw)), len(raw)),
        "rps_doc_frac_lines_end_with_ellipsis": share(
            sum(end.endswith(("...", "\u2026")) for end in ends), len(lines)
        ),
        "rps_doc_frac_no_alph_words": None
        if latin is None
        else round(1 - sum(LATIN.search(word) is not None for word in raw) / len(raw), 8),
        "rps_doc_frac_unique_words": share(len(set(words)), len(words)),
        "rps_doc_mean_word_length": share(sum(map(len, words)), len(words)),
        "rps_doc_num_sentences": float(len(SENTENCE.findall(text))),
        "rps_doc_symbol_to_word_ratio": share(symbols, len(raw)),
        "rps_doc_unigram_entropy": _entropy(words),
        "rps_doc_word_count": len(words),
    }


def _entropy(words):
    if not words:
        return None
    shares = [count / len(words) for count in Counter(words).values()]
    return round(sum(-share * math.log(share) for share in shares), 8)


def line_scores(line):
    normal = normalise(line)
    words = normal.split()
    end = line.rstrip()
    return {
        "rps_lines_ending_with_terminal_punctution_mark": float(end.endswith((".", "!", "?", "\u201d"))),
        "rps_lines_javascript_counts": float(words.count("javascript")),
        "rps_lines_num_words": len(words),
        "rps_lines_numerical_chars_fraction": round(sum(map(str.isnumeric, normal)) / len(normal), 8)
        if normal
        else 0.0,
        "rps_lines_start_with_bulletpoint": float(line.lstrip().startswith(BULLETS)),
        "rps_lines_uppercase_letter_fraction": round(sum(map(str.isupper, line)) / len(line), 8),
    }


def line_signals(lines):
    result = {name: [] for name in line_scores("x")}
    start = 0
    for line in lines:
        for name, score in line_scores(line).items():
            result[name].append([start, start + len(line), score])
        start += len(line)
    if not lines:
        result["rps_lines_start_with_bulletpoint"] = [[0, 0, None]]
    return result


def rule_signals(text, stop_words=None, bad_words=None, category=None):
    """All rule signals of a text as they are published: name to spans, in the order of the names."""
    raw, words, lines = TOKEN.findall(text), normalise(text).split(), split_lines(text)
    document = {
        **content(text, raw, words, stop_words, bad_words, category),
        **repetitions(words),
        **natural_language(text, raw, words, lines),
    }
    return {name: [[0, len(text), score]] for name, score in document.items()} | line_signals(lines)


def ccnet_signals(record, length):
    """The fields of CCNet's record (metadata), as they are published."""
    names = ("length", "original_length", "nlines", "original_nlines", "language_score", "perplexity")
    values = {f"ccnet_{name}": None if record[name] is None else float(record[name]) for name in names}
    values["ccnet_bucket"] = BUCKETS.get(record["bucket"])
    return {name: [[0, length, value]] for name, value in values.items()}
