"""Taggers of perplexity: how unlikely a text is to the language models of the user, 10 to the power of the negative logarithm by the number of tokens and ends.

Source: ``perplexity.py`` and ``text_normalizer.py`` of cc_net, which made CCNet and the numbers of RedPajama-V2. A model of CCNet is a pair, ``en.arpa.bin`` of KenLM and
``en.sp.model`` of SentencePiece: the text becomes one line of pieces. A model without the other scores the words of each line. The language of a document is not looked at:
each model that is there scores each text, and the key of its number is the name before the first dot. Buckets are not made of the numbers; thresholds are rules.
"""

import sys
import unicodedata
from collections.abc import Callable, Iterable, Mapping
from functools import cache, partial
from pathlib import PurePosixPath

import numpy as np
import pyarrow as pa
from msgspec import Struct

from dolma_dask.errors import UsageError
from dolma_dask.models.ken_lm import LanguageModel, Pieces, open_language_model, open_pieces
from dolma_dask.models.opened import Open
from dolma_dask.taggers.base import NUMBERS_BY_NAME, Kind, Part, ViewTagger, each_text
from dolma_dask.text.units import Unit

_LABELS: Mapping[str, Kind] = {"perplexity": "labels"}
_PIECES = ".sp.model"
_SPELLED = {
    '"': "„”“«»」「《》",
    "'": "´’",
    "-": "–━►",
    " - ": "—",
    ",": "，、",
    ".": "。",
    ". ": "．",
    "...": "…",
    ":": "∶：",
    "?": "？",
    "!": "！",
    "(": "（",
    ")": "）",
    ";": "；",
    "~": "～",
    "<": "〈",
    ">": "〉",
    "[": "【",
    "]": "】",
    "%": "％",
}
"""Punctuation, and all that is spelled as it."""


@cache
def _table() -> dict[int, str | None]:
    """Return what becomes of characters: digits are 0, marks and controls are left out."""
    table: dict[int, str | None] = {ord(char): to for to, chars in _SPELLED.items() for char in chars}
    for code in range(sys.maxunicode + 1):
        category = unicodedata.category(chr(code))
        if category == "Nd":
            table[code] = "0"
        elif category in ("Mn", "Cc"):
            table[code] = None
    return table


def normalise_line(line: str) -> str:
    """Return a line in lower case, without accents and controls, with 0 for every digit and plain punctuation."""
    return unicodedata.normalize("NFD", line.strip().lower()).translate(_table())


class Scale(Struct, frozen=True):
    """A language model, with the tokenizer that it needs or without."""

    model: LanguageModel
    pieces: Pieces | None = None

    def perplexity(self, text: str) -> float | None:
        """Return the perplexity of a text; None if it has no words."""
        lines = text.split("\n") if self.pieces is None else [text]
        lines = [normalise_line(line) for line in lines]
        if self.pieces is not None:
            lines = [self.pieces.cut(line) for line in lines]
        if not any(line.split() for line in lines):
            return None
        score = sum(self.model.score(line) for line in lines)
        return float(10.0 ** (-score / sum(len(line.split()) + 1 for line in lines)))


def _loaded(unit: Unit, files: Mapping[str, Open]) -> Callable[..., Iterable[pa.Array | np.ndarray]]:
    scales = {name: _scale(own, files) for name, own in sorted(_by_name(files).items())}

    def perplexities(text: str) -> list[list[tuple[str, float]]]:
        line = text if unit == "document" else text.removesuffix("\n")
        found = ((name, scale.perplexity(line)) for name, scale in scales.items())
        return [[(name, number) for name, number in found if number is not None]]

    return ViewTagger.of("", "", Part(each_text(perplexities, [NUMBERS_BY_NAME]), _LABELS, unit)).function


def _by_name(files: Mapping[str, Open]) -> dict[str, list[str]]:
    """Return the files of each model."""
    found: dict[str, list[str]] = {}
    for path in files:
        found.setdefault(PurePosixPath(path).name.partition(".")[0], []).append(path)
    return found


def _scale(paths: list[str], files: Mapping[str, Open]) -> Scale:
    models = [path for path in paths if not path.endswith(_PIECES)]
    if len(models) != 1:
        raise UsageError(
            f"{', '.join(sorted(paths))}: found {len(models)} language models of this name; expected one, as en.arpa.bin, with or without en{_PIECES} "
            "beside it. Take the others out of the folder."
        )
    pieces = [open_pieces(path, files[path]) for path in paths if path.endswith(_PIECES)]
    return Scale(open_language_model(models[0], files[models[0]]), *pieces)


def _no_model(*_: object) -> list[pa.Array]:
    raise UsageError("there is no model; give its file in the folder of --artifacts.")


def _row(name: str, description: str, unit: Unit) -> ViewTagger:
    return ViewTagger.of(
        name,
        description,
        Part(_no_model, _LABELS, unit),
        extra="kenlm",
        files=("kenlm/*.arpa", "kenlm/*.arpa.bin", f"kenlm/*{_PIECES}"),
        source="CCNet has published a pair for each of 48 languages; lmplz of KenLM makes one of a text.",
        load=partial(_loaded, unit),
    )


TAGGERS = (
    _row("perplexity_ccnet_v1", "Perplexity of the text, by each model in the folder kenlm.", "document"),
    _row(
        "perplexity_ccnet_paragraphs_v1",
        "Perplexity of each paragraph, by each model in the folder kenlm.",
        "paragraph",
    ),
)
