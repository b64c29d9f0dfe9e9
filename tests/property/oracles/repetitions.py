"""Repetitions by the pattern of the Dolma toolkit."""

import re

from oracles.length import paragraphs


def repetitions(pieces, text):
    spans = [
        {
            "start": start + match.start(),
            "end": start + match.end(),
            "score": float(match.group().count(match.group(1))),
        }
        for start, piece in pieces
        for match in re.finditer(r"(.+?)(\s?\1){3,}", piece)
    ]
    sizes = [span["end"] - span["start"] for span in spans]
    return {
        "repetition": spans or None,
        "doc_max_score_repetition": max((span["score"] for span in spans), default=0.0),
        "doc_max_length_repetition": float(max(sizes, default=0)),
        "doc_frac_repetition": sum(sizes) / max(len(text), 1),
    }


ORACLES = {
    "repetitions_v1": lambda text: repetitions([(0, text)], text),
    "paragraph_repetitions_v1": lambda text: repetitions(paragraphs(text, keeps_blank=True), text),
}
