"""Languages: what the packages say of each text, in plain Python."""

import math
import unicodedata
from collections import Counter
from functools import cache
from pathlib import Path

import numpy as np

from oracles.length import paragraphs, spans


def _is_refused(char):
    code = ord(char)
    is_none = code & 0xFFFE == 0xFFFE or 0xFDD0 <= code < 0xFDF0
    return is_none or (unicodedata.category(char) == "Cc" and char not in "\t\n\f\r")


def cld2(text, is_plain=False):
    import pycld2

    clean = "".join(" " * len(char.encode()) if _is_refused(char) else char for char in text)
    is_reliable, _, found = pycld2.detect(clean, isPlainText=is_plain)
    return [(code, percent / 100) for _, code, percent, _ in found if is_reliable and code != "un"]


def cld2_plain(text):
    return cld2(text, is_plain=True)


@cache
def _langid():
    from py3langid.langid import MODEL_FILE, LanguageIdentifier

    return LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)


def langid(text):
    model = _langid()
    visits = Counter()
    state, data = 0, model._encode(text)
    for byte in data:
        state = model.tk_nextmove[(model.tk_row[state] << 8) + byte]
        if model.tk_output[state] >= 0:
            visits[model.tk_output[state]] += 1
    scores = model.nb_pc.astype(float) if visits else np.zeros(len(model.nb_classes))
    for feature, count in visits.items():
        scores += math.log1p(count) * model.nb_ptc[feature].astype(float)
    weights = [math.exp((one - max(scores)) / math.sqrt(len(data) or 1)) for one in scores]
    sure = Counter()
    for code, weight in zip(model.nb_classes, weights, strict=True):
        sure[code] += weight / math.fsum(weights)
    return [(code, round(found, 10)) for code, found in sure.most_common() if found >= 0.05]


@cache
def _langdetect():
    from langdetect import PROFILES_DIRECTORY, DetectorFactory

    factory = DetectorFactory()
    # their order decides the last digits of sums
    factory.load_json_profile(
        [path.read_text("utf-8") for path in sorted(Path(PROFILES_DIRECTORY).iterdir())]
    )
    factory.set_seed(0)
    return factory


def langdetect(text):
    from langdetect import LangDetectException

    detector = _langdetect().create()
    detector.append(text)
    try:
        return [(found.lang, found.prob) for found in detector.get_probabilities()]
    except LangDetectException:
        return []


@cache
def _lingua():
    from lingua import Language, LanguageDetectorBuilder

    return LanguageDetectorBuilder.from_languages(*Language.all()).build()


def lingua(text):
    found = _lingua().compute_language_confidence_values(text)
    codes = [(one.language.iso_code_639_1.name.lower(), round(one.value, 10)) for one in found]
    return sorted(codes, key=lambda pair: (-pair[1], pair[0]))


def document(detect):
    return lambda text: {"languages": detect(text)}


def rounded(detect):
    return lambda text: {"languages": [(name, round(sure, 2)) for name, sure in detect(text) if sure > 0.01]}


def of_paragraphs(detect, most=None):
    def oracle(text):
        found = [
            {"label": name, "start": start, "end": start + len(piece), "score": sure}
            for start, piece in paragraphs(text)
            for name, sure in detect(piece)[:most]
        ]
        return {"languages": found or None}

    return oracle


def english_of(detect, text):
    return dict(detect(text)).get("en", 0.0)


def english(detect):
    return lambda text: {"en": english_of(detect, text), "not_en": 1 - english_of(detect, text)}


def english_alone(detect):
    return lambda text: {"en": english_of(detect, text)}


def english_paragraphs(detect):
    return lambda text: {
        "en": spans(text, lambda piece: english_of(detect, piece)),
        "not_en": spans(text, lambda piece: 1 - english_of(detect, piece)),
    }


def english_with_share(detect):
    def oracle(text):
        found = english_paragraphs(detect)(text)
        weighted = sum((span["end"] - span["start"]) * span["score"] for span in found["en"] or [])
        share = weighted / len(text) if text else 0.0
        return {**found, "doc_en": share, "doc_not_en": 1 - share if text else 0.0}

    return oracle


def surest(detect):
    def oracle(text):
        found = detect(text)
        name, sure = found[0] if found else (None, None)
        return {"languages": found, "language": name, "confidence": sure}

    return oracle


def surest_with_share(detect):
    def oracle(text):
        found = of_paragraphs(detect, 1)(text)["languages"]
        sizes = {}
        for span in found or []:
            sizes[span["label"]] = sizes.get(span["label"], 0) + span["end"] - span["start"]
        ordered = sorted(sizes, key=lambda name: (-sizes[name], name))
        return {"languages": found, "shares": [(f"doc_{name}", sizes[name] / len(text)) for name in ordered]}

    return oracle


ORACLES = {
    **{
        f"language_{name}{rest}_v1": oracle
        for name, detect in {"cld2": cld2_plain, "langid": langid}.items()
        for rest, oracle in {
            "": surest(detect),
            "_paragraphs": of_paragraphs(detect, 1),
            "_paragraphs_with_document": surest_with_share(detect),
        }.items()
    },
    "cld2_doc_v2": document(cld2),
    "cld2_paragraph_v2": of_paragraphs(cld2),
    "cld2_en_doc_v2": english(cld2),
    "cld2_en_paragraph_v2": english_paragraphs(cld2),
    "cld2_en_paragraph_with_doc_score_v2": english_with_share(cld2),
    "langdetect_doc_v1": document(langdetect),
    "langdetect_doc_en_v1": english(langdetect),
    "langdetect_paragraph_v1": of_paragraphs(langdetect),
    "langdetect_en_paragraph_v1": english_paragraphs(langdetect),
    "lingua_doc_v1": document(lingua),
    "lingua_1e2": rounded(lingua),
    "lingua_doc_en_v1": english(lingua),
    "lingua_en_only_v1": english_alone(lingua),
    "lingua_par_v1": of_paragraphs(lingua),
    "lingua_en_par_v1": english_paragraphs(lingua),
}
