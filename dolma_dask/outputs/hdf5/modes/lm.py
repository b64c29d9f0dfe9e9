"""LMData: documents as one stream of tokens, or each by itself, cut into rows that a language model predicts token by token.

Packed, documents are not kept apart in a row but by the token that ends them, which is predicted like any other.
"""

from dataclasses import dataclass
from typing import Annotated, Any

from dolma_dask.options.base import Opt
from dolma_dask.options.command import described
from dolma_dask.outputs.hdf5.modes.common import DocumentOptions
from dolma_dask.tokens.engine import TokenEngine
from dolma_dask.tokens.lm_documents import LmRecipe
from dolma_dask.tokens.modes import Mode
from dolma_dask.tokens.packing import Tail


@described
@dataclass(frozen=True, kw_only=True)
class LmOptions(DocumentOptions):
    """Options of mode LMData of `hdf5`, which takes them as ``**options``."""

    group = "LMData, FIM"
    name = "LMData"
    summary = "documents as one stream of tokens, each predicted from those before it."

    tail: Annotated[
        Tail,
        Opt("What happens to the last tokens, which fill no row: one more row with padding, or nothing."),
    ] = "pad"
    pack_sequences: Annotated[
        bool,
        Opt(
            "Rows go on from document to document; else every document begins a row, and its last row is padded."
        ),
    ] = True

    def notes(self) -> tuple[str, ...]:
        """See `ModeOptions.notes`."""
        own = []
        if self.tail == "drop" and not self.pack_sequences:
            own.append(
                "tail=drop has no effect: without pack_sequences no tokens are left over, and the last row of each document is padded"
            )
        if self.min_sequence_len is not None and self.pack_sequences:
            own.append(
                "min_sequence_len has no effect: with pack_sequences documents are one stream, and short ones stay in it"
            )
        return (*own, *super().notes())

    def build(self, tokenizer: TokenEngine) -> Mode:
        """See `ModeOptions.build`."""
        return Mode("LMData", **self.mode_options(tokenizer))

    def mode_options(self, tokenizer: TokenEngine) -> dict[str, Any]:
        """Return what makes rows of documents."""
        return {
            "recipe": LmRecipe(**self.recipe_options(tokenizer)),
            "length": self.max_seq_length,
            "packs": self.pack_sequences,
            "tail": self.tail,
            "least": self.least,
            "short_seq_prob": self.short_seq_prob,
            "seed": self.seed,
            "inverted_mask": self.inverted_mask and not self.is_like_modelzoo,
            "like_modelzoo": self.is_like_modelzoo,
        }
