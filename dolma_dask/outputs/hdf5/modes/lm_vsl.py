"""LMData_VSL: documents packed into rows whole, each attending to itself alone.

A document that is longer than a row is several sequences, which overlap by one token; each fills rows of its own or shares one. The fourth channel says how
many later positions may attend to a token, the fifth its place in its sequence: a model with these sees no document beside another.
"""

from dataclasses import dataclass
from typing import Annotated

from dolma_dask.options.base import Opt
from dolma_dask.options.command import described
from dolma_dask.outputs.hdf5.modes.common import DocumentOptions, PackingOptions
from dolma_dask.tokens.engine import TokenEngine
from dolma_dask.tokens.lm_documents import SequenceRecipe
from dolma_dask.tokens.modes import Mode

MIN_SEGMENT = 2
"""Tokens of the shortest sequence: one to see and one to predict."""


@described
@dataclass(frozen=True, kw_only=True)
class LmVslOptions(DocumentOptions, PackingOptions):
    """Options of mode LMData_VSL of `hdf5`, which takes them as ``**options``."""

    group = "LMData_VSL"
    name = "LMData_VSL"
    summary = "documents side by side in rows, each seeing itself alone."

    fold_long_doc: Annotated[
        bool,
        Opt("Documents that are longer than a row are cut into several sequences; else they are left out."),
    ] = True

    def build(self, tokenizer: TokenEngine) -> Mode:
        """See `ModeOptions.build`."""
        recipe = SequenceRecipe(
            **self.recipe_options(tokenizer),
            length=self.max_seq_length,
            least=self.least,
            folds=self.fold_long_doc,
            short_seq_prob=self.short_seq_prob,
            seed=self.seed,
        )
        return Mode(
            "LMData_VSL",
            recipe,
            length=self.max_seq_length,
            least=MIN_SEGMENT,
            inverted_mask=self.inverted_mask and not self.is_like_modelzoo,
            **self.packing_options(),
        )
