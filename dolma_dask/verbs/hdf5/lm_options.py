"""Options of language-modelling rows, under the names that ModelZoo's create_hdf5_dataset gives them, and what they make of a tokenizer."""

from dataclasses import dataclass
from typing import Any, Literal

from dolma_dask.errors import UsageError
from dolma_dask.tokens.cleaning import Cleaning, Normalizer
from dolma_dask.tokens.engine import TokenEngine
from dolma_dask.tokens.lm import LmData
from dolma_dask.tokens.lm_documents import Cutting, LmRecipe
from dolma_dask.tokens.packing import Tail
from dolma_dask.tokens.specials import AskedSpecials
from dolma_dask.verbs.options import check_choice

Compat = Literal["modelzoo-2.2"]

MODELZOO: Compat = "modelzoo-2.2"
"""The release whose effective defaults and quirks can be asked for."""

LEAST_TOKENS = {None: 10, MODELZOO: 6}
"""min_sequence_len: what ModelZoo's documentation says, and what its command line does."""


@dataclass(frozen=True)
class LmOptions:
    """Options that decide the rows of LMData; for each option see `dolma_dask.verbs.hdf5.verb.hdf5`."""

    max_seq_length: int = 2048
    tail: Tail = "pad"
    pack_sequences: bool = True
    eos: str | None = None
    pad: str | None = None
    eos_id: int | None = None
    pad_id: int | None = None
    min_sequence_len: int | None = None
    short_seq_prob: float = 0.0
    seed: int = 0
    use_ftfy: bool | None = None
    ftfy_normalizer: Normalizer | None = "NFC"
    wikitext_detokenize: bool = False
    split_text_to_tokenize: bool = False
    chunk_len_to_split: int = 2000
    remove_bos_in_chunks: bool = False
    inverted_mask: bool = False
    compat: Compat | None = None

    def __post_init__(self) -> None:
        check_choice("tail", self.tail, ("pad", "drop"))
        if self.compat not in (None, MODELZOO):
            raise UsageError(f"compat={self.compat!r}; expected {MODELZOO!r}, or nothing.")

    @property
    def is_like_modelzoo(self) -> bool:
        """True for the quirks of ModelZoo 2.2."""
        return self.compat == MODELZOO

    @property
    def repairs(self) -> bool:
        """True if ftfy repairs the texts."""
        return self.is_like_modelzoo if self.use_ftfy is None else self.use_ftfy

    @property
    def least(self) -> int:
        """Tokens of the shortest row of a document by itself."""
        return LEAST_TOKENS[self.compat] if self.min_sequence_len is None else self.min_sequence_len

    def mode(self, tokenizer: TokenEngine) -> LmData:
        """Return the mode for a tokenizer."""
        is_like = self.is_like_modelzoo
        asked = AskedSpecials(self.eos, self.pad, self.eos_id, self.pad_id)
        recipe = LmRecipe(
            tokenizer,
            asked.find(tokenizer, pads_with_eos=is_like),
            Cleaning(self.repairs, self.ftfy_normalizer, self.wikitext_detokenize),
            Cutting(
                self.chunk_len_to_split if self.split_text_to_tokenize else None,
                drops_heads=self.remove_bos_in_chunks and not is_like,
                drops_first=self.remove_bos_in_chunks and is_like,
            ),
            skips_empty=is_like,
        )
        return LmData(
            recipe,
            length=self.max_seq_length,
            packs=self.pack_sequences,
            tail=self.tail,
            least=self.least,
            short_seq_prob=self.short_seq_prob,
            seed=self.seed,
            inverted_mask=self.inverted_mask and not is_like,
            like_modelzoo=is_like,
        )

    def notes(self) -> tuple[str, ...]:
        """Return what a person should know."""
        if self.inverted_mask and self.is_like_modelzoo:
            return ("inverted_mask does nothing under compat, as in ModelZoo 2.2",)
        return ()

    def sections(self) -> dict[str, dict[str, Any]]:
        """Return the values in force, by ModelZoo's sections."""
        shared = ("max_seq_length", "short_seq_prob", "seed", "tail", "compat")
        specials = ("eos", "pad", "eos_id", "pad_id")
        known = {**vars(self), "use_ftfy": self.repairs, "min_sequence_len": self.least}
        others = [name for name in known if name not in (*shared, *specials)]
        return {
            "processing": {name: known[name] for name in shared},
            "dataset": {name: known[name] for name in others},
        }
