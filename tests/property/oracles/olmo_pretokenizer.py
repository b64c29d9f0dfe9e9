"""Pieces of OLMo's pre-tokenizer, by the library; characters that Unicode 14 did not have are for it others that it does not know either."""

from tokenizers import Regex, pre_tokenizers

from dolma_dask.text.tables import ASSIGNED, load_tables
from oracles.length import paragraphs, spans

NUMBERS, BLOCKS = load_tables()
SPLITTER = pre_tokenizers.Sequence(
    [
        pre_tokenizers.Split(Regex(r" ?\p{P}"), "isolated"),
        pre_tokenizers.Split(Regex(r" ?\d"), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
    ]
)


def is_known(char):
    return BLOCKS[int(NUMBERS[ord(char) >> 8]) * 256 + (ord(char) & 255)] & ASSIGNED


def pieces(text):
    known = "".join(char if is_known(char) else "\ue000" for char in text)
    return float(len(SPLITTER.pre_tokenize_str(known)))


def with_paragraphs(text):
    total = sum(pieces(piece) for _, piece in paragraphs(text))
    return {"paragraph": spans(text, pieces), "document": float(total)}


ORACLES = {
    "olmo_pretokenizer_v1": lambda text: {"length": pieces(text)},
    "olmo_pretokenizer_with_paragraphs_v1": with_paragraphs,
}
