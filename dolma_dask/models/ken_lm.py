"""Language models of KenLM (``.arpa``, ``.arpa.bin``), and tokenizers of SentencePiece (``.sp.model``) that cut texts for them."""

from typing import Any

from dolma_dask.models.opened import Open, model_of_file


class LanguageModel:
    """An n-gram model: how likely a line of tokens is."""

    def __init__(self, path: str) -> None:
        import kenlm

        config = kenlm.Config()
        config.show_progress = False
        config.arpa_complain = kenlm.ARPALoadComplain.NONE
        self._model: Any = kenlm.Model(path, config)

    def score(self, line: str) -> float:
        """Return the logarithm to base 10 of the probability of a line, with its end."""
        return float(self._model.score(line))


class Pieces:
    """A tokenizer whose tokens are the words of a language model."""

    def __init__(self, path: str) -> None:
        from sentencepiece import SentencePieceProcessor

        self._model: Any = SentencePieceProcessor(model_file=path)

    def cut(self, line: str) -> str:
        """Return the tokens of a line, with a space between them."""
        return " ".join(self._model.encode(line, out_type=str))


def open_language_model(name: str, open_file: Open) -> LanguageModel:
    """Open a model of the user's; it is mapped into memory as far as it can be.

    Raises `CorruptFileError`: it is none, or damaged.
    """
    return model_of_file("kenlm", name, open_file, LanguageModel)


def open_pieces(name: str, open_file: Open) -> Pieces:
    """Open a tokenizer of the user's.

    Raises `CorruptFileError`: it is none, or damaged.
    """
    return model_of_file("sentencepiece", name, open_file, Pieces)
