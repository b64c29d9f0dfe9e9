"""Personal data by the patterns of the Dolma toolkit, where an address may also end with the text."""

import re

from oracles.length import paragraphs

PATTERNS = {
    "EMAIL_ADDRESS": r"[.\s@,?!;:)(]*([^\s@]+@[^\s@,?!;:)(]+?)[.\s@,?!;:)(]?(?:\s|\Z)",
    "PHONE_NUMBER": r"\s+\(?(\d{3})\)?[-. ]*(\d{3})[-. ]?(\d{4})",
    "IP_ADDRESS": r"(?:(?:25[0-5]|2[0-4][0-9]|[01]?[0-9][0-9]?)\.){3}(?:25[0-5]|2[0-4][0-9]|[01]?[0-9][0-9]?)",
}


def is_kept(kind, text, match):
    if kind == "EMAIL_ADDRESS":
        return is_address(match.group())
    context = text[max(0, match.start() - 100) : match.end() + 100]
    return not re.search("isbn|doi|#", context)


def is_address(found):
    before, domain, *_ = found.split("@")
    return before.strip() != "(" and "." in domain


def spans(matches, start=0):
    return [{"start": start + match.start(), "end": start + match.end(), "score": 1.0} for match in matches]


def in_document(text):
    found = {
        kind: spans(match for match in re.finditer(pattern, text) if is_kept(kind, text, match))
        for kind, pattern in PATTERNS.items()
    }
    count, words = sum(map(len, found.values())), len(text.split())
    result = {kind: listed or None for kind, listed in found.items()}
    return result | {"doc": count / words if words else -1.0, "doc_count": float(count)}


def without_count(text):
    return {name: value for name, value in in_document(text).items() if name != "doc_count"}


def in_paragraphs(text):
    found = {kind: [] for kind in PATTERNS}
    for start, piece in paragraphs(text):
        for kind, pattern in PATTERNS.items():
            matches = re.finditer(pattern, piece)
            if kind == "EMAIL_ADDRESS":
                matches = (match for match in matches if is_address(match.group(1)))
            found[kind] += spans(matches, start)
    every = [span for listed in found.values() for span in listed]
    size = sum(span["end"] - span["start"] for span in every)
    result = {kind: listed or None for kind, listed in found.items()}
    return result | {
        "doc_count": float(len(every)),
        "doc_frac": size / len(text) if text else -1.0,
    }


ORACLES = {
    "pii_regex_v1": without_count,
    "pii_regex_v2": without_count,
    "pii_regex_with_counts_v2": in_document,
    "pii_regex_with_counts_fast_v2": in_paragraphs,
}
