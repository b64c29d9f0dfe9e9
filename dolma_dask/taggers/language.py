"""Taggers of languages. Sources: CLD2, langid.py, langdetect and lingua, whose models are in their packages; ``language.py`` of the Dolma toolkit, release 1.2.1.

A detector answers a text with labels, surest first. A row makes of its answers all labels, the surest one, or how English a text is; answers are found once in a pass
for all rows of a detector.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
from msgspec import Struct
from msgspec.structs import replace

from dolma_dask.errors import UsageError
from dolma_dask.models.fast_text import FastText, open_fast_text
from dolma_dask.models.opened import Open, model_of_package
from dolma_dask.taggers.base import NUMBERS_BY_NAME, Kind, Part, ViewTagger, each_text
from dolma_dask.text.interchangeable import interchangeable
from dolma_dask.text.kernels import Floats
from dolma_dask.text.units import Unit, cut
from dolma_dask.text.view import TextView

Detect = Callable[[Any], list[tuple[str, float]]]
"""Gives the languages of a text, surest first."""

_LEAST = 0.05  # of the probability that `language_langid_v1` says: a text that tells nothing has 0.01 of each language
_LOWEST, _DECIMALS = 0.01, 2  # of the rows ``1e2``
_SAME_DIGITS = 10  # of what langid.py and lingua answer, whatever the order of their sums


class Detector(Struct, frozen=True):
    """What finds languages."""

    name: str
    open: Callable[[], Detect]  # each time the same, once it is opened
    package: str = ""
    accepts: Callable[[TextView], TextView] | None = None  # makes texts that it does not refuse
    codes: Callable[[], Iterable[str]] | None = None  # of all languages that it may answer
    differs: str = ""
    version: int = 1
    files: tuple[str, ...] = ()
    source: str = ""
    takes_bytes: bool = False  # texts in UTF-8, as they are

    @classmethod
    def of_package(cls, package: str, name: str, load: Callable[[], Detect], **more: Any) -> "Detector":
        """Return a detector whose model is in its package."""
        return cls(name, partial(model_of_package, package, name, load), package, **more)

    def answers(self, view: TextView) -> pa.MapArray:
        """Return the languages of each text (n,), found once for all taggers of a pass."""
        key = f"languages by {self.name}"
        if key not in view.kept:
            detect = self.open()

            def languages(text: str | bytes) -> list[list[tuple[str, float]]]:
                return [detect(text)]

            texts = view if self.accepts is None else self.accepts(view)
            if self.takes_bytes:
                texts = TextView(texts.texts.view(pa.large_binary()))
            (view.kept[key],) = each_text(languages, [NUMBERS_BY_NAME])(texts)
        return view.kept[key]


def _cld2(*, is_plain: bool) -> Detect:
    import pycld2

    def detect(text: bytes) -> list[tuple[str, float]]:
        is_reliable, _, found = pycld2.detect(text, isPlainText=is_plain)
        return [(code, percent / 100) for _, code, percent, _ in found if code != "un"] if is_reliable else []

    return detect


def _cld2_codes() -> Iterable[str]:
    import pycld2

    return {code for _, code in pycld2.LANGUAGES} - {"un"}


def _langid_codes() -> Iterable[str]:
    from py3langid.langid import MODEL_FILE, LanguageIdentifier

    return map(str, LanguageIdentifier.from_model_file(MODEL_FILE).nb_classes)


def _langid() -> Detect:
    from py3langid.langid import MODEL_FILE, LanguageIdentifier

    class InDouble(LanguageIdentifier):
        """Adds up in double precision; in single, as the package does, other processors give other digits."""

        __slots__ = ()

        def _sparse_score(self, visits: Mapping[int, int], table: Floats) -> Floats:
            features, counts = list(visits), np.fromiter(visits.values(), np.float64, len(visits))
            found: Floats = np.log1p(counts) @ table[features] + self.nb_pc
            return found

    identifier = InDouble.from_model_file(MODEL_FILE, norm_probs=True)
    return lambda text: [
        (code, round(found, _SAME_DIGITS)) for code, found in identifier.rank(text) if found >= _LEAST
    ]


def _langdetect() -> Detect:
    from pathlib import Path

    from langdetect import PROFILES_DIRECTORY, DetectorFactory, LangDetectException

    factory = DetectorFactory()
    factory.set_seed(0)
    # in an order that does not depend on the file system
    factory.load_json_profile(
        [path.read_text("utf-8") for path in sorted(Path(PROFILES_DIRECTORY).iterdir())]
    )

    def detect(text: str) -> list[tuple[str, float]]:
        detector = factory.create()
        detector.append(text)
        try:
            return [(found.lang, found.prob) for found in detector.get_probabilities()]
        except LangDetectException:  # nothing in it tells a language
            return []

    return detect


def _lingua() -> Detect:
    from lingua import Language, LanguageDetectorBuilder

    detector = LanguageDetectorBuilder.from_languages(*Language.all()).build()

    def detect(text: str) -> list[tuple[str, float]]:
        found = detector.compute_language_confidence_values(text)
        # the package adds up in another order each time, which decides the last digits
        sure = [(one.language.iso_code_639_1.name.lower(), round(one.value, _SAME_DIGITS)) for one in found]
        return sorted(sure, key=_by_size)

    return detect


def fast_text_languages(model: FastText, text: str) -> list[tuple[str, float]]:
    """Return the labels of a classifier of languages, for the text in lower case and in one line."""
    return model.predict(text.lower().replace("\n", " ").strip())


def _labels(detector: Detector, view: TextView) -> Iterator[pa.Array]:
    yield detector.answers(view)


def _surest(detector: Detector, view: TextView) -> Iterator[pa.Array]:
    yield _chosen(detector.answers(view), most=1)


def surest_apart(detector: Detector, view: TextView) -> Iterator[pa.Array]:
    """Yield the surest language as a text, and how sure it is."""
    answers = detector.answers(view)
    offsets = np.asarray(answers.offsets)
    first = pa.array(offsets[:-1], mask=np.diff(offsets) == 0)
    yield answers.keys.take(first)
    yield answers.items.take(first)


def _rounded(detector: Detector, view: TextView) -> Iterator[pa.Array]:
    """Yield the languages above a hundredth, in hundredths."""
    answers = detector.answers(view)
    is_high = np.asarray(answers.items) > _LOWEST
    counts = np.concatenate(([0], np.cumsum(is_high)))
    numbers = [round(number, _DECIMALS) for number in answers.items.filter(pa.array(is_high)).to_pylist()]
    offsets = pa.array(counts[np.asarray(answers.offsets)], pa.int32())
    yield pa.MapArray.from_arrays(
        offsets, answers.keys.filter(pa.array(is_high)), pa.array(numbers, pa.float64())
    )


def _chosen(answers: pa.MapArray, most: int) -> pa.MapArray:
    """Return the first labels of each text."""
    offsets = np.asarray(answers.offsets)
    counts = np.minimum(np.diff(offsets), most)
    kept = (
        np.repeat(offsets[:-1], counts)
        + np.arange(counts.sum())
        - np.repeat(np.cumsum(counts) - counts, counts)
    )
    bounds = np.concatenate(([0], np.cumsum(counts))).astype(np.int32)
    return pa.MapArray.from_arrays(
        pa.array(bounds), answers.keys.take(pa.array(kept)), answers.items.take(pa.array(kept))
    )


def _english_of(answers: pa.MapArray) -> Floats:
    rows = np.repeat(np.arange(len(answers)), np.diff(np.asarray(answers.offsets)))
    is_english = np.asarray(answers.keys.to_numpy(zero_copy_only=False) == "en", np.bool_)
    english = np.zeros(len(answers))
    english[rows[is_english]] = np.asarray(answers.items)[is_english]
    return english


def _english(detector: Detector, view: TextView) -> Iterator[Floats]:
    english = _english_of(detector.answers(view))
    yield english
    yield 1 - english


def _english_alone(detector: Detector, view: TextView) -> Iterator[Floats]:
    yield _english_of(detector.answers(view))


def _share_of_english(detector: Detector, view: TextView) -> Iterator[Floats]:
    """Yield how English the paragraphs are, weighted by their code points, by those of the text; both numbers of an empty text are 0."""
    pieces = cut(view, "paragraph")
    weights = (pieces.ends - pieces.starts) * _english_of(detector.answers(pieces.view))
    rows = np.repeat(np.arange(len(view)), np.diff(pieces.bounds))
    share = np.bincount(rows, weights, len(view)) / np.maximum(view.lengths, 1)
    yield share
    yield np.where(view.lengths > 0, 1 - share, 0.0)


def _share_of_each(detector: Detector, view: TextView) -> Iterator[pa.Array]:
    """Yield the share of code points in paragraphs of each language, the surest of them, as labels that begin with ``doc_``; most common first."""
    pieces = cut(view, "paragraph")
    surest = _chosen(detector.answers(pieces.view), most=1)
    languages = iter(surest.keys.to_pylist())
    known = np.diff(np.asarray(surest.offsets)) > 0
    sizes = pieces.ends - pieces.starts
    rows: list[list[tuple[str, float]]] = []
    for row, length in enumerate(view.lengths.tolist()):
        found: dict[str, int] = {}
        for piece in range(pieces.bounds[row], pieces.bounds[row + 1]):
            if known[piece]:
                language = next(languages)
                found[language] = found.get(language, 0) + int(sizes[piece])
        rows.append([(f"doc_{name}", size / length) for name, size in sorted(found.items(), key=_by_size)])
    yield pa.array(rows, NUMBERS_BY_NAME)


def _by_size(item: tuple[str, float]) -> tuple[float, str]:
    return -item[1], item[0]


class Shape(Struct, frozen=True):
    """What a row makes of the answers of a detector."""

    description: str
    parts: tuple[
        tuple[Callable[[Detector, TextView], Iterable[pa.Array | Floats]], Mapping[str, Kind], Unit], ...
    ]
    meanings: Mapping[str, str] = {}

    def of(self, detector: Detector) -> tuple[Part, ...]:
        """Return the parts of a tagger."""
        return tuple(Part(partial(scorer, detector), types, unit) for scorer, types, unit in self.parts)


_LABELS: Mapping[str, Kind] = {"languages": "labels"}
_PARTS_ENGLISH: Mapping[str, Kind] = {"en": "document", "not_en": "document"}
_MEANING = {
    "languages": "a key for each language",
    "en": "how English it is",
    "not_en": "1 less that",
    "doc_en": "how English the paragraphs are, weighted by their code points, by those of the text",
    "doc_not_en": "1 less that; 0 for an empty text",
}


def _meanings(*types: str) -> dict[str, str]:
    return {type: _MEANING[type] for type in types}


DOCUMENT = Shape("Languages of the text, and how sure each is.", ((_labels, _LABELS, "document"),))
PARAGRAPHS = Shape("Languages of each paragraph, and how sure each is.", ((_labels, _LABELS, "paragraph"),))
ROUNDED = Shape("Languages of the text above a hundredth, in hundredths.", ((_rounded, _LABELS, "document"),))
ENGLISH = Shape(
    "How English the text is.", ((_english, _PARTS_ENGLISH, "document"),), _meanings("en", "not_en")
)
ENGLISH_ALONE = Shape(
    "How English the text is, without `not_en`.",
    ((_english_alone, {"en": "document"}, "document"),),
)
ENGLISH_PARAGRAPHS = Shape(
    "How English each paragraph is.", ((_english, _PARTS_ENGLISH, "paragraph"),), _meanings("en", "not_en")
)
ENGLISH_WITH_SHARE = Shape(
    "How English each paragraph is, and the text by its paragraphs.",
    (
        (_english, _PARTS_ENGLISH, "paragraph"),
        (_share_of_english, {"doc_en": "document", "doc_not_en": "document"}, "document"),
    ),
    _meanings("en", "not_en", "doc_en", "doc_not_en"),
)
SUREST = Shape(
    "Languages of the text, and the surest one of them.",
    (
        (_labels, _LABELS, "document"),
        (surest_apart, {"language": "scalar", "confidence": "document"}, "document"),
    ),
    {
        **_meanings("languages"),
        "language": "the surest one",
        "confidence": "how sure that is, from 0 to 1; for CLD2 the share of the text",
    },
)
SUREST_PARAGRAPHS = Shape(
    "Language of each paragraph, and how sure it is.", ((_surest, _LABELS, "paragraph"),)
)
SUREST_WITH_SHARE = Shape(
    "Language of each paragraph, and the share of each language in the text.",
    ((_surest, _LABELS, "paragraph"), (_share_of_each, {"shares": "labels"}, "document")),
    {
        "languages": "a key for each language",
        "shares": "code points in paragraphs of it, by those of the text, as doc_en",
    },
)


def _rows(detector: Detector, shapes: Mapping[str, Shape]) -> Iterator[ViewTagger]:
    for name, shape in shapes.items():
        yield ViewTagger.of(
            name,
            f"{shape.description[:-1]}, by {detector.name}.",
            *shape.of(detector),
            meanings=shape.meanings,
            version=detector.version,
            differs=detector.differs,
            extra=detector.package,
            files=detector.files,
            source=detector.source,
            load=partial(_with_model, shape, detector) if detector.files else None,
            labels=None if detector.codes is None else partial(_known, detector.codes),
        )


def _known(codes: Callable[[], Iterable[str]], type: str) -> list[str]:
    """Return all labels that a column of a type may have."""
    return sorted(f"doc_{code}" if type == "shares" else code for code in codes())


def _with_model(
    shape: Shape, detector: Detector, files: Mapping[str, Open]
) -> Callable[..., Iterable[pa.Array | np.ndarray]]:
    """Return the function of a row that asks a model of the user's."""
    name, open_file = min(files.items())
    detect = partial(fast_text_languages, open_fast_text(name, open_file))
    return ViewTagger.of("", "", *shape.of(Detector(detector.name, lambda: detect))).function


def _no_detector() -> Detect:
    raise UsageError("there is no model of languages; give its file in the folder of --artifacts.")


_BLANKED = "Characters that CLD2 refuses become spaces; the original first tries the text in ASCII letters, which may be of another language."
CLD2 = Detector.of_package(
    "pycld2",
    "CLD2 on plain text",
    partial(_cld2, is_plain=True),
    accepts=interchangeable,
    codes=_cld2_codes,
    takes_bytes=True,
)
_CLD2 = Detector.of_package(
    "pycld2",
    "CLD2",
    partial(_cld2, is_plain=False),
    accepts=interchangeable,
    codes=_cld2_codes,
    takes_bytes=True,
    differs=_BLANKED,
)
_CLD2_BY_CODE = replace(
    _CLD2,
    differs="Languages have their codes; the original has two letters of English names, `ge` for German and Georgian, and `un` for what is unknown. "
    + _BLANKED,
)
_LANGID = Detector.of_package("py3langid", "langid.py", _langid, codes=_langid_codes, version=2)
_LANGDETECT = Detector.of_package("langdetect", "langdetect", _langdetect)
# Han characters of either language are Chinese or Japanese by chance: the package itself answers now so, now so
_LINGUA = Detector.of_package(
    "lingua", "lingua, which may answer otherwise next time where languages tie", _lingua, version=2
)
_CLD3 = Detector(
    "CLD3",
    _no_detector,
    source="the package cld3 cannot be installed on the versions of Python that are needed here. Use cld2_en_doc_v2 or "
    "cld2_en_paragraph_with_doc_score_v2, or language_langid_v1, which is right more often.",
)
_LID = Detector(
    "fastText",
    _no_detector,
    "fasttext",
    files=("fasttext/lid.176.bin", "fasttext/lid.176.ftz"),
    source="The models are published on fasttext.cc (supervised models, language identification).",
)

TAGGERS = (
    *_rows(
        CLD2,
        {
            "language_cld2_v1": SUREST,
            "language_cld2_paragraphs_v1": SUREST_PARAGRAPHS,
            "language_cld2_paragraphs_with_document_v1": SUREST_WITH_SHARE,
        },
    ),
    *_rows(
        _LANGID,
        {
            "language_langid_v1": SUREST,
            "language_langid_paragraphs_v1": SUREST_PARAGRAPHS,
            "language_langid_paragraphs_with_document_v1": SUREST_WITH_SHARE,
        },
    ),
    *_rows(_CLD2_BY_CODE, {"cld2_doc_v2": DOCUMENT, "cld2_paragraph_v2": PARAGRAPHS}),
    *_rows(
        _CLD2,
        {
            "cld2_en_doc_v2": ENGLISH,
            "cld2_en_paragraph_v2": ENGLISH_PARAGRAPHS,
            "cld2_en_paragraph_with_doc_score_v2": ENGLISH_WITH_SHARE,
        },
    ),
    *_rows(
        _CLD3,
        {
            "cld3_en_doc_v2": ENGLISH,
            "cld3_en_paragraph_v2": ENGLISH_PARAGRAPHS,
            "cld3_en_paragraph_with_doc_score_v2": ENGLISH_WITH_SHARE,
        },
    ),
    *_rows(
        _LANGDETECT,
        {
            "langdetect_doc_v1": DOCUMENT,
            "langdetect_doc_en_v1": ENGLISH,
            "langdetect_paragraph_v1": PARAGRAPHS,
            "langdetect_en_paragraph_v1": ENGLISH_PARAGRAPHS,
        },
    ),
    *_rows(
        _LINGUA,
        {
            "lingua_doc_v1": DOCUMENT,
            "lingua_1e2": ROUNDED,
            "lingua_doc_en_v1": ENGLISH,
            "lingua_en_only_v1": ENGLISH_ALONE,
            "lingua_par_v1": PARAGRAPHS,
            "lingua_en_par_v1": ENGLISH_PARAGRAPHS,
        },
    ),
    *_rows(
        _LID,
        {
            "ft_lang_id_doc_v1": DOCUMENT,
            "ft_lang_id_1e2": ROUNDED,
            "ft_lang_id_en_doc_v2": ENGLISH,
            "ft_lang_id_en_only_v2": ENGLISH_ALONE,
            "ft_lang_id_paragraph_v1": PARAGRAPHS,
            "ft_lang_id_en_paragraph_v2": ENGLISH_PARAGRAPHS,
            "ft_lang_id_en_paragraph_with_doc_score_v2": ENGLISH_WITH_SHARE,
        },
    ),
)
