"""The tagger ``pii_presidio_v1``: personal data as the package presidio-analyzer finds it, by patterns and check digits. Source: ``pii.py`` of the Dolma toolkit, release 1.2.1.

The recognizers are asked without the model of a language that the package else needs: it only changes how sure they are, which is not written. They get pieces that nothing
they look for goes beyond, so that their time does not rise with the square of the length of a text.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Any

from dolma_dask.models.opened import model_of_package
from dolma_dask.taggers.base import NUMBER, SPANS, Kind, Part, ViewTagger, each_text
from dolma_dask.taggers.pii import CONTEXT, MAIL, OTHER_NUMBERS

LONGEST_RUN = 1000
"""Characters of the longest piece without white space and the like in which addresses are looked for: the time for one rises with the square."""

PHONE, IP, CARD = "PHONE_NUMBER", "IP_ADDRESS", "CREDIT_CARD"
_KINDS: dict[str, Kind] = dict.fromkeys((MAIL, PHONE, IP, CARD), "spans")
_COUNTED = (MAIL, PHONE, IP)  # of the original
_SIGNS = re.compile(r"[@:\d]")
_CARD_BEGINS = re.compile(r"\d{4}[- ]?\d{3}")
_RUN = r"[\w!#$%&'*+\-/=?^`{|}~.@:]+"
"""Letters of addresses and of what their patterns look at before and behind; of the package regex, as those."""

Piece = tuple[int, str]  # where it begins, and its text
Spans = list[tuple[int, int, float]]


class _Recognizers:
    """The recognizers of the package, by type, and the pattern of runs."""

    def __init__(self) -> None:
        import regex
        from presidio_analyzer.predefined_recognizers import (
            CreditCardRecognizer,
            EmailRecognizer,
            IpRecognizer,
            PhoneRecognizer,
        )
        from tldextract import TLDExtract

        # neither fetched nor kept in the home folder: the list that comes with the package
        extract = TLDExtract(cache_dir=None, suffix_list_urls=())

        class Mail(EmailRecognizer):
            def validate_result(self, pattern_text: str) -> bool:
                return bool(extract(pattern_text).fqdn)

        class Card(CreditCardRecognizer):
            def validate_result(self, pattern_text: str) -> bool:
                # the package regex knows digits that Python does not
                digits = pattern_text.translate({ord("-"): None, ord(" "): None})
                return digits.isdecimal() and bool(super().validate_result(pattern_text))

        self.run = regex.compile(_RUN)
        self.of = {MAIL: Mail(), PHONE: PhoneRecognizer(), IP: IpRecognizer(), CARD: Card()}

    def spans(self, kind: str, pieces: Iterable[Piece]) -> Spans:
        """Return what is of a type in pieces of a text."""
        recognizer: Any = self.of[kind]
        return sorted(
            (start + found.start, start + found.end, 1.0)
            for start, piece in pieces
            for found in recognizer.analyze(piece, [kind], None)
        )

    def runs(self, text: str) -> list[Piece]:
        """Return the runs in which an address may be."""
        runs = ((match.start(), match.group()) for match in self.run.finditer(text))
        return [(start, run) for start, run in runs if len(run) <= LONGEST_RUN]


def _lines(text: str) -> Iterator[Piece]:
    start = 0
    for line in text.split("\n"):
        yield start, line
        start += len(line) + 1


def _is_ip(run: str) -> bool:
    return run.count(":") >= 2 or run.count(".") >= 3


def _is_other(text: str, start: int, end: int) -> bool:
    """Tell whether the context of a span says that it is another number."""
    context = text[max(0, start - CONTEXT) : end + CONTEXT]
    return any(word in context for word in OTHER_NUMBERS)


def _find_all(text: str) -> dict[str, Spans]:
    if not _SIGNS.search(text):
        return {}
    recognizers = model_of_package("presidio_analyzer", "of personal data", _Recognizers)
    lines, runs = list(_lines(text)), recognizers.runs(text)
    found = {
        MAIL: recognizers.spans(MAIL, (piece for piece in runs if "@" in piece[1])),
        PHONE: recognizers.spans(PHONE, (piece for piece in lines if re.search(r"\d", piece[1]))),
        IP: recognizers.spans(IP, (piece for piece in runs if _is_ip(piece[1]))),
        CARD: recognizers.spans(CARD, (piece for piece in lines if _CARD_BEGINS.search(piece[1]))),
    }
    for kind in (PHONE, IP):
        found[kind] = [span for span in found[kind] if not _is_other(text, *span[:2])]
    return found


def _personal_data(text: str) -> list[Any]:
    """Return the spans of each type, and the number of those that are counted by that of the words."""
    found = _find_all(text)
    count = sum(len(found.get(kind, ())) for kind in _COUNTED)
    words = len(text.split()) if count else int(bool(text.strip()))
    return [*(found.get(kind) or None for kind in _KINDS), count / words if words else -1.0]


TAGGERS = (
    ViewTagger.of(
        "pii_presidio_v1",
        "Addresses and numbers of persons that presidio finds, unless the context speaks against them, and their number by the words.",
        Part(each_text(_personal_data, [SPANS] * len(_KINDS) + [NUMBER]), {**_KINDS, "doc": "document"}),
        meanings={
            MAIL: "Addresses of electronic mail whose domain ends as one of the public suffix list.",
            PHONE: "Telephone numbers that are valid in one of eight countries, or with the code of any.",
            IP: "IP addresses of versions 4 and 6.",
            CARD: "Numbers of credit cards whose check digit is right.",
            "doc": "Spans but those of credit cards by the words of the text, -1 without words.",
        },
        params=f'{{"longest_run":{LONGEST_RUN}}}',
        extra="presidio_analyzer",
        differs=f"It is presidio without the model of a language, and with the public suffix list of its package tldextract; credit cards are found too; a text without "
        f"words has -1, where the original fails; mail and IP addresses in more than {LONGEST_RUN:,} characters without white space or the like are not looked for.",
    ),
)
