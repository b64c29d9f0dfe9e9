"""Tokens by the library, with a small tokenizer made here; repetitions by looking at every place for every period."""

import json

from tokenizers import Tokenizer, pre_tokenizers

from oracles.length import paragraphs

NAMES = ["<end>", "<pad>", *sorted(pre_tokenizers.ByteLevel.alphabet()), "th", "the", "\u0120a", "aa"]
BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
JSON = json.dumps(
    {
        "version": "1.0",
        "added_tokens": [
            {"id": number, "content": name, "special": True}
            | dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
            for number, name in enumerate(NAMES[:2])
        ],
        "pre_tokenizer": BYTE_LEVEL,
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [
                {"Sequence": {"id": "A", "type_id": 0}},
                {"SpecialToken": {"id": "<end>", "type_id": 0}},
            ],
            "pair": [],
            "special_tokens": {"<end>": {"id": "<end>", "ids": [0], "tokens": ["<end>"]}},
        },
        "model": {
            "type": "BPE",
            "vocab": {name: number for number, name in enumerate(NAMES)},
            "merges": [["t", "h"], ["th", "e"], ["\u0120", "a"], ["a", "a"]],
        },
    }
)
TOKENIZER = Tokenizer.from_str(JSON)


def count(text):
    return float(len(TOKENIZER.encode(text, add_special_tokens=False).ids))


def as_characters(text):
    """Special tokens are the characters that spell them: none of them is a merge, so each character is by itself."""
    plain = Tokenizer.from_str(json.dumps({**json.loads(JSON), "added_tokens": []}))
    return float(len(plain.encode(text, add_special_tokens=False).ids))


def stripped(text):
    return {"length": float(len(TOKENIZER.encode(text.strip()).ids)) if text.strip() else 0.0}


def repetitions(text, start=0, margin=0):
    """Yield spans; a period is followed as far as tokens equal those of the period before."""
    encoding = TOKENIZER.encode(text, add_special_tokens=False)
    ids, places = encoding.ids, encoding.offsets
    found = []
    for period in range(1, 14):
        first = 0
        while first + 3 * period <= len(ids):
            end = first + period
            while end < len(ids) and ids[end] == ids[end - period]:
                end += 1
            if end - first >= 3 * period:
                begin = max(places[first][0], margin) - margin
                found.append(
                    (start + begin, start + places[end - 1][1] - margin, float((end - first) // period))
                )
            first = end - period + 1
    return sorted(found, key=lambda span: (span[0], -span[1], -span[2]))


def summary(text, spans, is_sparse=False):
    if is_sparse and not spans:
        return dict.fromkeys(
            ("repetition", "doc_max_score_repetition", "doc_max_length_repetition", "doc_frac_repetition")
        )
    sizes = [end - start for start, end, _ in spans]
    return {
        "repetition": [dict(zip(("start", "end", "score"), span, strict=True)) for span in spans] or None,
        "doc_max_score_repetition": max([score for _, _, score in spans], default=0.0),
        "doc_max_length_repetition": float(max(sizes, default=0)),
        "doc_frac_repetition": sum(sizes) / len(text) if spans else 0.0,
    }


def of_paragraphs(text):
    pieces = paragraphs(text, keeps_blank=True)
    return summary(text, [span for start, piece in pieces for span in repetitions(f" {piece}", start, 1)])


def outermost(text):
    kept = []
    for span in repetitions(text):
        if not any(other[0] <= span[0] and span[1] <= other[1] for other in kept[-1:]):
            kept.append(span)
    return summary(text, kept, is_sparse=True)


ORACLES = {
    "tokens": lambda text: {"count": as_characters(text)},
    **dict.fromkeys(
        ("tokenizers_EleutherAI_GPT_NeoX_20B", "tokenizers_AI2_OLMo_v1"), lambda text: {"tokens": count(text)}
    ),
    **dict.fromkeys(("dolma_v1_tokenizer", "dolma_v2_tokenizer"), stripped),
    "tokenizer_repetitions_v1": lambda text: summary(text, repetitions(text)),
    "paragraph_tokenizer_repetitions_v1": of_paragraphs,
    "tokenizer_repetitions_v2r2": outermost,
}
