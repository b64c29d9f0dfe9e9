"""DPO: prompts with an answer that people chose and one that they rejected, side by side in a row of six channels."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np
from numpy.typing import NDArray

from dolma_dask.formats.hdf5 import PREFERENCE_FEATURES
from dolma_dask.options.base import Opt
from dolma_dask.options.command import described
from dolma_dask.outputs.hdf5.modes.common import MOST, PromptOptions, check_different
from dolma_dask.tokens.engine import TokenEngine
from dolma_dask.tokens.modes import Filler, Mode, RowFiller
from dolma_dask.tokens.packing import Int64s, Rows
from dolma_dask.tokens.preferences import PreferenceRecipe, fill_preferences
from dolma_dask.tokens.segments import Placed
from dolma_dask.tokens.specials import find_bos
from dolma_dask.tokens.templates import GIVEN, find_template

MAX_PROMPT = 512
"""max_prompt_length of ModelZoo."""


class PreferenceMode(Mode, frozen=True):
    """The mode: two sequences make a row."""

    per_row: ClassVar[int] = 2

    @property
    def found(self) -> Mapping[str, str]:
        """See `Mode.found`."""
        template = self._template
        return {} if template == GIVEN else {"chat_template": template}

    @property
    def notes(self) -> tuple[str, ...]:
        """See `Mode.notes`."""
        return (f"dialogues are written by {self._template}",)

    @property
    def _template(self) -> str:
        assert isinstance(self.recipe, PreferenceRecipe)
        return self.recipe.template.name

    @property
    def features(self) -> tuple[str, ...]:
        """See `Mode.features`."""
        return PREFERENCE_FEATURES

    @property
    def ids(self) -> tuple[int, ...]:
        """See `Mode.ids`."""
        return (0, 3)

    def filler(self, first_row: int) -> Filler:
        """See `Mode.filler`."""
        return PreferenceFiller(self, first_row)


class PreferenceFiller(RowFiller):
    """Makes rows of six channels."""

    def make(
        self, words: NDArray[np.int32], rows: Rows, placed: Placed
    ) -> tuple[NDArray[np.int32], Int64s, Placed]:
        """See `RowFiller.make`."""
        segments, specials = rows.segments, self.mode.specials
        eos = -1 if specials.eos_id is None else specials.eos_id
        made, counts = fill_preferences(
            words, segments.starts, segments.sizes, self.mode.length, specials.pad_id, eos
        )
        return made, counts, placed


@described
@dataclass(frozen=True, kw_only=True)
class DpoOptions(PromptOptions):
    """Options of mode DPO of `hdf5`, which takes them as ``**options``."""

    group = "DPO"
    name = "DPO"
    summary = "prompts with an answer that people chose and one that they rejected."

    chosen_key: Annotated[
        str | None,
        Opt("Field of the answer that was chosen, a text or a list of messages; by default chosen."),
    ] = None
    rejected_key: Annotated[
        str | None, Opt("Field of the answer that was rejected; by default rejected.")
    ] = None
    user_role: Annotated[str, Opt("Name of the asking role.")] = "user"
    assistant_role: Annotated[str, Opt("Name of the answering role.")] = "assistant"
    chat_template: Annotated[
        str | None,
        Opt(
            "Jinja2 template of dialogues, or the path of a file that has it; by default that of the tokenizer, else [INST] prompt [/INST] answer."
        ),
    ] = None
    response_delimiter: Annotated[
        str | None,
        Opt("Words of the template behind which the answer begins; by default found by the template."),
    ] = None
    max_prompt_length: Annotated[
        int,
        Opt(
            "Tokens that stay of a prompt, the last ones, where a record is longer than a row.",
            min=1,
            max=MOST,
        ),
    ] = MAX_PROMPT

    @property
    def answer_keys(self) -> tuple[str | None, str, str]:
        """Fields of the prompt, which may be what both answers begin with, and of both answers."""
        if self.prompt_key is self.chosen_key is self.rejected_key is None:
            return ("prompt", "chosen", "rejected")
        return self.prompt_key, self.chosen_key or "chosen", self.rejected_key or "rejected"

    def check_keys(self) -> None:
        """See `ModeOptions.check_keys`."""
        check_different(
            dict(zip(("prompt_key", "chosen_key", "rejected_key"), self.answer_keys, strict=True))
        )

    def record_fields(self) -> tuple[str, ...]:
        """See `ModeOptions.record_fields`."""
        return tuple(key for key in self.answer_keys if key is not None)

    def build(self, tokenizer: TokenEngine) -> Mode:
        """See `ModeOptions.build`."""
        recipe = PreferenceRecipe(
            tokenizer,
            self.specials(tokenizer),
            self.cleaning,
            *self.answer_keys,
            user_role=self.user_role,
            assistant_role=self.assistant_role,
            template=find_template(tokenizer, self.chat_template),
            response_delimiter=self.response_delimiter,
            length=self.max_seq_length,
            max_prompt_length=self.max_prompt_length,
            bos_id=find_bos(tokenizer),
            like_modelzoo=self.is_like_modelzoo,
        )
        return PreferenceMode(
            "DPO",
            recipe,
            length=self.max_seq_length,
            packs=False,
            least=0,
            like_modelzoo=self.is_like_modelzoo,
        )
