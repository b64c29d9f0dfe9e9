"""Taggers that ask classifiers of fastText, which the user gives. Sources: ``jigsaw.py``, ``quality.py`` and ``code_composition.py`` of the Dolma toolkit, release 1.2.1; RedPajama-V2.

A model is found by its name below the folder of ``--artifacts``; a text is one line for it.
"""

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from itertools import pairwise
from pathlib import PurePosixPath
from typing import Any

import numpy as np
import pyarrow as pa

from dolma_dask.errors import UsageError
from dolma_dask.models.fast_text import FastText, open_fast_text
from dolma_dask.models.opened import Open
from dolma_dask.taggers.base import NUMBER, NUMBERS_BY_NAME, Kind, Part, Scorer, ViewTagger, each_text
from dolma_dask.taggers.labels import check_names
from dolma_dask.text.units import Unit

Load = Callable[[Mapping[str, Open]], Scorer]

_WHITE = re.compile(r"[\t-\r \x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]+")
"""White space of Unicode, by which the tokenizer library cuts; `str.split` has four controls besides."""
_FEWEST = 4  # characters of a line whose label the classifier of code and prose is asked for
_OTHER = "other"  # the label of shorter ones
_ANY_LABELS = "Labels of {}, by every model of fastText in the folder fasttext."
_ANY: Mapping[str, Any] = {
    "files": ("fasttext/*.bin", "fasttext/*.ftz"),
    "source": "Classifiers are published beside many corpora; `fasttext supervised` trains one.",
}
REFERENCES = {
    "wikiref": "pages that Wikipedia refers to",
    "palm": "books, Wikipedia and chosen pages",
    "wikipedia": "Wikipedia",
}
"""Models of RedPajama-V2, and what they tell from Common Crawl."""
_LABELS: Mapping[str, Kind] = {"labels": "labels"}


def in_one_line(text: str) -> str:
    """Return a text as fastText takes it."""
    return text.replace("\n", " ").strip()


def _all_models(files: Mapping[str, Open]) -> Scorer:
    """Score by every model that is there, each label under the names of both."""
    models = {PurePosixPath(name).stem: open_fast_text(name, files[name]) for name in sorted(files)}
    check_names([PurePosixPath(name).stem for name in sorted(files)], "models")
    check_names([f"{name}__{label}" for name, model in models.items() for label in model.labels], "labels")

    def labels(text: str) -> list[list[tuple[str, float]]]:
        line = in_one_line(text)
        return [
            [
                (_key(f"{name}__{label}"), score)
                for name, model in models.items()
                for label, score in model.predict(line)
            ]
        ]

    return each_text(labels, [NUMBERS_BY_NAME])


def _key(name: str) -> str:
    return f"_{name}" if name[0].isdigit() else name


def _two_labels(files: Mapping[str, Open]) -> Scorer:
    """Score both labels, under their names with the prefix, as the toolkit writes them."""
    model = _only(files)
    if len(model.labels) != 2:
        raise _foreign(files, model, "two labels, one of them with `non`")

    def labels(text: str) -> list[list[tuple[str, float]]]:
        return [[(f"__label__{label}", score) for label, score in model.predict(in_one_line(text))]]

    return each_text(labels, [NUMBERS_BY_NAME])


def _high_quality(files: Mapping[str, Open]) -> Scorer:
    """Score the label ``hq``: of the two labels the better one is asked, since both are rounded."""
    model = _only(files)
    if {*model.labels} != {"hq", "cc"}:
        raise _foreign(files, model, "the labels hq and cc")

    def score(text: str) -> tuple[float | None]:
        return (_better_than_crawled(model, " ".join(text.strip().splitlines())),)

    return each_text(score, [NUMBER])


def _better_than_crawled(model: FastText, line: str) -> float | None:
    """Return how sure the label is that is not ``cc``, text of Common Crawl, by the better one of both."""
    return next((1 - sure if label == "cc" else sure for label, sure in model.predict(line, 1)), None)


def _likeness(files: Mapping[str, Open]) -> Scorer:
    """Score by the models of `REFERENCES` that are there; an empty text has none."""
    models = {PurePosixPath(name).stem: open_fast_text(name, files[name]) for name in sorted(files)}

    def scores(text: str) -> list[float | None]:
        line = " ".join(text.splitlines()).strip()
        return [
            _better_than_crawled(models[name], line) if line and name in models else None
            for name in REFERENCES
        ]

    return each_text(scores, [NUMBER] * len(REFERENCES))


def _words_alone(files: Mapping[str, Open]) -> Scorer:
    """Score all labels of the words with a space between them; a text without words has none."""
    model = _only(files)

    def labels(text: str) -> list[list[tuple[str, float]]]:
        line = _WHITE.sub(" ", text).strip(" ")
        return [model.predict(line) if line else []]

    return each_text(labels, [NUMBERS_BY_NAME])


def _code_and_prose(files: Mapping[str, Open]) -> Scorer:
    """Score how often neighbouring lines are code and prose, and of each label the share and the number of lines, and how unsure the model is of them on average."""
    model = _only(files)

    def numbers(text: str) -> list[list[tuple[str, float]]]:
        judged = list(_judged_lines(model, text))
        borders = sum({before, label} == {"code", "prose"} for (before, _), (label, _) in pairwise(judged))
        found = [("boundaries", float(borders))]
        for label in dict.fromkeys(label for label, _ in judged):
            bits = [entropy for name, entropy in judged if name == label]
            found.append((f"{label}_pct", round(len(bits) / len(judged), 2)))
            found.append((label, float(len(bits))))
            found.append((f"{label}_entropy", sum(bits) / len(bits)))
        return [found]

    return each_text(numbers, [NUMBERS_BY_NAME])


def _judged_lines(model: FastText, text: str) -> Iterator[tuple[str, float]]:
    """Yield the label of each line that is not blank, and the entropy of all labels in bits."""
    for line in filter(None, map(str.strip, text.splitlines())):
        labels = model.predict(line) if len(line) >= _FEWEST else []
        entropy = -sum(sure * math.log2(sure) for _, sure in labels if sure > 0)
        yield labels[0][0] if labels else _OTHER, entropy


def _only(files: Mapping[str, Open]) -> FastText:
    return open_fast_text(*min(files.items()))


def _foreign(files: Mapping[str, Open], model: FastText, expected: str) -> UsageError:
    found = ", ".join(model.labels[:5])
    return UsageError(
        f"{min(files)} has {len(model.labels)} labels ({found}); expected {expected}. Give the model that the tagger is made for, or use "
        "fasttext_document_v1 with any other."
    )


def _loaded(
    load: Load, types: Mapping[str, Kind], unit: Unit, files: Mapping[str, Open]
) -> Callable[..., Iterable[pa.Array | np.ndarray]]:
    return ViewTagger.of("", "", Part(load(files), types, unit)).function


def _no_model(*_: object) -> list[pa.Array]:
    raise UsageError("there is no model; give its file in the folder of --artifacts.")


def _row(
    name: str,
    description: str,
    load: Load,
    unit: Unit = "document",
    types: Mapping[str, Kind] = _LABELS,
    **more: Any,
) -> ViewTagger:
    return ViewTagger.of(
        name,
        description,
        Part(_no_model, types, unit),
        extra="fasttext",
        load=partial(_loaded, load, types, unit),
        **more,
    )


def _of_toolkit(model: str, folder: str = "https://dolma-artifacts.org/fasttext_models") -> dict[str, Any]:
    name = PurePosixPath(model).name
    return {"files": (f"fasttext/{name}",), "source": f"It is published as {folder}/{model}."}


_HATE = _of_toolkit("jigsaw_fasttext_bigrams_20230515/jigsaw_fasttext_bigrams_hatespeech_final.bin")
_NSFW = _of_toolkit("jigsaw_fasttext_bigrams_20230515/jigsaw_fasttext_bigrams_nsfw_final.bin")
_SENTENCES = "Sentences are those of the package sentencex; the original takes those of blingfire."

TAGGERS = (
    _row("fasttext_document_v1", _ANY_LABELS.format("the text"), _all_models, **_ANY),
    _row("fasttext_sentence_v1", _ANY_LABELS.format("each sentence"), _all_models, "sentence", **_ANY),
    _row("fasttext_paragraph_v1", _ANY_LABELS.format("each paragraph"), _all_models, "paragraph", **_ANY),
    _row("jigsaw_hatespeech_document_v2", "How hateful the text is, and how harmless.", _two_labels, **_HATE),
    _row(
        "jigsaw_hatespeech_sentence_v2",
        "How hateful each sentence is, and how harmless.",
        _two_labels,
        "sentence",
        differs=_SENTENCES,
        **_HATE,
    ),
    _row("jigsaw_nsfw_document_v1", "How obscene the text is, and how harmless.", _two_labels, **_NSFW),
    _row(
        "jigsaw_nsfw_sencence_v2",
        "How obscene each sentence is, and how harmless; the name is spelled as in the toolkit.",
        _two_labels,
        "sentence",
        differs=_SENTENCES,
        **_NSFW,
    ),
    _row(
        "dclm-oh-eli5",
        "How much the text is like instructions and good answers, by the classifier of DCLM.",
        _high_quality,
        types={"score": "document"},
        **_of_toolkit(
            "openhermes_reddit_eli5_vs_rw_v2_bigram_200k_train.bin",
            "https://huggingface.co/mlfoundations/fasttext-oh-eli5/resolve/main",
        ),
    ),
    _row(
        "dolma17-quality",
        "What the text is like of the sources of Dolma 1.7: a key for each.",
        _words_alone,
        differs="A text without words has no value; the original fails.",
        **_of_toolkit("dolma-1_7/cc_wiki_wikiref_sw_pes2o_adult_fakenews_math_books_openhermes.bin"),
    ),
    _row(
        "code_composition",
        "How many lines are code, prose or something else, and how often one stands beside the other.",
        _code_and_prose,
        types={"composition": "labels"},
        meanings={
            "composition": "boundaries: how often neighbouring lines are code and prose; and for each label of a line, such as code: code, number of lines that are not "
            "blank; code_pct, their share, in hundredths; code_entropy, how unsure the model is of them, mean of bits. Lines of up to three characters are `other`"
        },
        files=("fasttext/code-comment-prose-model.bin",),
        source="Its author has published it as techarb/code-prose-composition on huggingface.co; `fasttext supervised` trains one of lines labelled __label__code, "
        "__label__prose and __label__other.",
        differs="A label keeps the letters that it begins with, of which the original cuts off those of `__label__`; a line of which the model says nothing is `other`, "
        "where the original fails.",
    ),
    _row(
        "redpajama_v2_ml",
        "How much the text is like chosen sources and unlike Common Crawl, by classifiers as RedPajama-V2 has them.",
        _likeness,
        types={f"rps_doc_ml_{name}_score": "document" for name in REFERENCES},
        meanings={f"rps_doc_ml_{name}_score": f"like {what}" for name, what in REFERENCES.items()},
        decimals=8,
        files=tuple(f"fasttext/{name}.bin" for name in REFERENCES),
        source="RedPajama-V2 has published some; `fasttext supervised` trains one of 75,000 texts labelled __label__cc and as many of another label.",
        differs="Each model that is there scores texts of all languages; the original asks wikiref and palm for English, wikipedia for others.",
    ),
)
