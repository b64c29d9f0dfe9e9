"""Lengths of texts and of their paragraphs."""


def paragraphs(text, keeps_blank=False):
    """Yield each line with its newline, and where it begins; blank ones only if asked for."""
    start = 0
    for line in text.split("\n"):
        piece = text[start : start + len(line) + 1]
        if piece and (keeps_blank or piece.strip()):
            yield start, piece
        start += len(line) + 1


def spans(text, score, keeps_blank=False):
    found = [
        {"start": start, "end": start + len(piece), "score": float(score(piece))}
        for start, piece in paragraphs(text, keeps_blank)
    ]
    return found or None


ORACLES = {
    "char_length_v1": lambda text: {"length": float(len(text))},
    "char_length_with_paragraphs_v1": lambda text: {
        "paragraph": spans(text, len),
        "document": float(len(text)),
    },
    "char_length_strip_ws_v1": lambda text: {"length_no_ws": float(len(text.strip()))},
    "bytes_length_v1": lambda text: {"bytes": float(len(text.encode()))},
    "doc_count_v1": lambda text: {"docs": 1.0},
}
