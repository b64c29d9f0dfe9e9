"""Summarization and Summarization_VSL: prompts with their completions, of which only the completions are predicted.

Each pair is a row; or all pairs of a dialogue are one sequence, and several of these share a row without seeing each other. Nothing is cut: what is longer
than a row is left out, counted and named.
"""

import re
from dataclasses import dataclass
from typing import Annotated, Any

from dolma_dask.errors import UsageError
from dolma_dask.options.base import Opt
from dolma_dask.options.command import described
from dolma_dask.outputs.hdf5.modes.common import LossOptions, PackingOptions, PromptOptions, check_different
from dolma_dask.tokens.engine import TokenEngine
from dolma_dask.tokens.modes import Mode
from dolma_dask.tokens.pairs import PairRecipe
from dolma_dask.tokens.specials import with_token

SPELLED_BREAK = re.compile(r"\\[nt](?![A-Za-z])")
"""A line break or tab as a shell hands it over between quotes."""


@dataclass(frozen=True, kw_only=True)
class PairOptions(PromptOptions, LossOptions):
    """Options of modes whose records are prompts with their completions."""

    group = "Summarization, Summarization_VSL"

    completion_key: Annotated[str | None, Opt("Field of the completion.")] = None
    multi_turn_key: Annotated[
        str | None, Opt("Field of a dialogue, in place of both: a list, prompts and completions in turn.")
    ] = None
    multi_turn_content_key: Annotated[
        str | None, Opt("Field of the text in each item of a dialogue; by default items are texts.")
    ] = None
    prompt_prefix: Annotated[
        str | None, Opt("Words before each prompt, such as <|user|>; special tokens in them are meant.")
    ] = None
    completion_prefix: Annotated[str | None, Opt("Words before each completion; they are not predicted.")] = (
        None
    )
    sep_token: Annotated[
        str | None, Opt("Token between prompt and completion; one that the vocabulary lacks is added to it.")
    ] = None

    def check(self) -> None:
        """Refuse a line break that is spelled."""
        super().check()
        for name in ("prompt_prefix", "completion_prefix"):
            if SPELLED_BREAK.search(getattr(self, name) or ""):
                raise UsageError(
                    f"{name}={getattr(self, name)!r} has a backslash and a letter; expected a line break or tab itself: in a shell $'...\\n', in YAML \"...\\n\"."
                )

    def check_keys(self) -> None:
        """See `ModeOptions.check_keys`."""
        pair = {"prompt_key": self.prompt_key, "completion_key": self.completion_key}
        given = [name for name, key in pair.items() if key is not None]
        if self.multi_turn_key is not None and given:
            raise UsageError(
                f"multi_turn_key={self.multi_turn_key!r} and {' and '.join(given)} were given; expected the field of dialogues alone, or those of pairs."
            )
        check_different(pair)

    def record_fields(self) -> tuple[str, ...]:
        """See `ModeOptions.record_fields`."""
        keys = (
            (self.prompt_key, self.completion_key) if self.multi_turn_key is None else (self.multi_turn_key,)
        )
        return tuple(key for key in keys if key is not None)

    def pair_options(
        self, tokenizer: TokenEngine, *, joins_turns: bool, eos_after_prompt: bool
    ) -> dict[str, Any]:
        """Return what makes rows of pairs."""
        engine, sep_id = (
            (tokenizer, None) if self.sep_token is None else with_token(tokenizer, self.sep_token)
        )
        recipe = PairRecipe(
            engine,
            self.specials(engine),
            self.cleaning,
            prompt_key=self.prompt_key,
            completion_key=self.completion_key,
            multi_turn_key=self.multi_turn_key,
            multi_turn_content_key=self.multi_turn_content_key,
            prompt_prefix=self.prompt_prefix,
            completion_prefix=self.completion_prefix,
            sep_id=sep_id,
            eos_after_prompt=eos_after_prompt,
            length=self.max_seq_length,
            least=self.least,
            by_position=self.is_like_modelzoo,
            joins_turns=joins_turns,
        )
        return {
            "recipe": recipe,
            "length": self.max_seq_length,
            "packs": False,
            "least": 0,
            "inverted_mask": self.inverted_mask,
            "like_modelzoo": self.is_like_modelzoo,
        }


@described
@dataclass(frozen=True, kw_only=True)
class SummarizationOptions(PairOptions):
    """Options of mode Summarization of `hdf5`, which takes them as ``**options``."""

    name = "Summarization"
    summary = "prompts with their completions, which alone are predicted, each pair in a row of its own."

    def build(self, tokenizer: TokenEngine) -> Mode:
        """See `ModeOptions.build`."""
        options = self.pair_options(tokenizer, joins_turns=False, eos_after_prompt=False)
        return Mode("Summarization", **options, shows_last=True)


@described
@dataclass(frozen=True, kw_only=True)
class SummarizationVslOptions(PairOptions, PackingOptions):
    """Options of mode Summarization_VSL of `hdf5`, which takes them as ``**options``."""

    group = "Summarization_VSL"
    name = "Summarization_VSL"
    summary = (
        "prompts with their completions, or whole dialogues, side by side in rows, each seeing itself alone."
    )

    eos_after_prompt: Annotated[
        bool, Opt("The token that ends a document stands behind each prompt too.")
    ] = False

    def build(self, tokenizer: TokenEngine) -> Mode:
        """See `ModeOptions.build`."""
        options = self.pair_options(tokenizer, joins_turns=True, eos_after_prompt=self.eos_after_prompt)
        return Mode("Summarization_VSL", **options, **self.packing_options())
