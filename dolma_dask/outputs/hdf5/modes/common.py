"""Options of HDF5 rows that several modes have, and what they mean for a tokenizer.

A mode is a class of options, in a file of its own: its fields, those that it inherits, and `build`. Users make one (`dk.DpoOptions(...)`) or name the mode
and its options in a call; what a mode does not have is refused by `RowOptions`.
"""

from abc import abstractmethod
from collections.abc import KeysView, Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import Annotated, Any, ClassVar, Literal

from dolma_dask.errors import UsageError
from dolma_dask.formats.hdf5 import MAX_ROWS_PER_FILE
from dolma_dask.options.base import OUTPUT, Opt
from dolma_dask.outputs.tokenizing import TokenizingOptions
from dolma_dask.tokens.cleaning import Cleaning, Normalizer
from dolma_dask.tokens.engine import TokenEngine
from dolma_dask.tokens.lm_documents import Cutting
from dolma_dask.tokens.modes import Mode, Packing
from dolma_dask.tokens.shortening import check_short
from dolma_dask.tokens.specials import Specials, find_specials
from dolma_dask.tokens.spelled import InText

Compat = Literal["modelzoo-2.2"]

MODELZOO: Compat = "modelzoo-2.2"
"""The release whose effective defaults and quirks can be requested."""

MOST = 2**30
"""The largest number of tokens, characters or sequences that an option takes: more are a slip, and no row of so many fits into memory."""

MIN_TOKENS = {None: 10, MODELZOO: 6}
"""min_sequence_len: what ModelZoo's documentation says, and what its command line does."""


@dataclass(frozen=True, kw_only=True)
class ModeOptions(TokenizingOptions):
    """Options of all modes; unpacked (`**options`), the arguments of a call."""

    name: ClassVar[str]
    """The mode."""

    summary: ClassVar[str]
    """What the mode makes, in a sentence."""

    tokenizer: Annotated[
        str,
        Opt(
            "A tokenizer.json (Hugging Face tokenizers), a folder that has one, or a model on the hub: EleutherAI/pythia-70m, with a revision behind @."
        ),
    ]
    max_seq_length: Annotated[int, Opt("Tokens of a row.", min=1, max=MOST)] = 2048
    eos: Annotated[
        str | None,
        Opt('Token behind each document; by default the tokenizer\'s own. "none" for none.'),
    ] = None
    pad: Annotated[
        str | None,
        Opt("Token that fills a row; by default the tokenizer's own, else that of `eos`."),
    ] = None
    eos_id: Annotated[int | None, Opt("Token behind each document, by its id.")] = None
    pad_id: Annotated[int | None, Opt("Token that fills a row, by its id.")] = None
    seed: Annotated[
        int, Opt("Seed of all that is drawn at random but the order of rows.", min=0, max=2**63 - 1)
    ] = 0
    use_ftfy: Annotated[bool | None, Opt("Repair texts with ftfy first; by default not.")] = None
    ftfy_normalizer: Annotated[
        Normalizer | None,
        Opt("Unicode normalization that ftfy ends with. In Python None for none."),
    ] = "NFC"
    wikitext_detokenize: Annotated[bool, Opt("Put the punctuation of wikitext together.")] = False
    shuffle: Annotated[
        bool, Opt("Write the rows of all files in an order drawn by `shuffle_seed`.", group=OUTPUT)
    ] = False
    shuffle_seed: Annotated[
        int, Opt("Seed of the order of rows; with `shuffle`.", min=0, max=2**63 - 1, group=OUTPUT)
    ] = 0
    max_rows_per_file: Annotated[
        int,
        Opt(
            "Files have at most so many rows, and nearly the same number.",
            min=1,
            expected="a number of rows from 1 on",
            group=OUTPUT,
        ),
    ] = MAX_ROWS_PER_FILE
    compat: Annotated[
        Compat | None,
        Opt("Do as that release of ModelZoo where it differs from its documentation; see the notes."),
    ] = None

    def check(self) -> None:
        """Refuse a field for two things, and repairs that ModelZoo does not make."""
        super().check()
        self.check_keys()
        if self.is_like_modelzoo:
            self.cleaning.check_like_modelzoo()

    def check_keys(self) -> None:
        """Refuse fields of records that do not go together."""

    def keys(self) -> KeysView[str]:
        """Return the names of the arguments of a call: the mode, and what was given."""
        return self._arguments.keys()

    def __getitem__(self, name: str) -> Any:
        """Return the value of an argument of a call."""
        return self._arguments[name]

    @property
    def _arguments(self) -> dict[str, Any]:
        return {"mode": self.name, **self.given()}

    def record_fields(self) -> tuple[str, ...]:
        """Return the fields of records that are read, as dotted paths; none: their texts."""
        return ()

    @abstractmethod
    def build(self, tokenizer: TokenEngine) -> Mode:
        """Return the mode for a tokenizer."""

    def notes(self) -> tuple[str, ...]:
        """Return what a person should know."""
        return ()

    @property
    def order_seed(self) -> int | None:
        """Seed of the order of rows; None: that of the documents."""
        return self.shuffle_seed if self.shuffle else None

    @property
    def is_like_modelzoo(self) -> bool:
        """True for the quirks of ModelZoo 2.2."""
        return self.compat == MODELZOO

    @property
    def in_text(self) -> InText:
        """Treatment of special tokens that texts spell out; ModelZoo encodes them."""
        return "encode" if self.is_like_modelzoo and self.special_tokens_in_text is None else super().in_text

    @property
    def repairs(self) -> bool:
        """True if ftfy repairs the texts."""
        return self.is_like_modelzoo if self.use_ftfy is None else self.use_ftfy

    @property
    def cleaning(self) -> Cleaning:
        """Repairs of every text."""
        return Cleaning(self.repairs, self.ftfy_normalizer, self.wikitext_detokenize)

    def specials(self, tokenizer: TokenEngine) -> Specials:
        """Return the tokens around documents and behind the last."""
        return find_specials(
            tokenizer, self.eos, self.pad, self.eos_id, self.pad_id, pads_with_eos=self.is_like_modelzoo
        )


def check_different(keys: Mapping[str, str | None]) -> None:
    """Refuse a field of records for two options."""
    for (name, key), (other, same) in combinations(keys.items(), 2):
        if key is not None and key == same:
            raise UsageError(f"{name} and {other} are both {key!r}; expected a field for each.")


@dataclass(frozen=True, kw_only=True)
class LossOptions(ModeOptions):
    """Options of modes whose rows have one loss mask."""

    group = "All modes but DPO"

    min_sequence_len: Annotated[
        int | None,
        Opt(
            "Documents, or rows of a document by itself, of fewer tokens are left out; by default 10.",
            min=0,
            max=MOST,
        ),
    ] = None
    inverted_mask: Annotated[bool, Opt("The loss mask is 1 where nothing is predicted.")] = False

    @property
    def least(self) -> int:
        """Tokens of the shortest document, or row of a document by itself."""
        return MIN_TOKENS[self.compat] if self.min_sequence_len is None else self.min_sequence_len


@dataclass(frozen=True, kw_only=True)
class PromptOptions(ModeOptions):
    """Options of modes whose records have a prompt."""

    group = "Summarization, Summarization_VSL, DPO"

    prompt_key: Annotated[
        str | None,
        Opt(
            "Field of the prompt; with dots if it is inside of another: metadata.question. DPO can do without: the prompt is then what both dialogues begin with."
        ),
    ] = None


@dataclass(frozen=True, kw_only=True)
class DocumentOptions(LossOptions):
    """Options of modes whose records are texts."""

    group = "LMData, LMData_VSL, FIM"

    short_seq_prob: Annotated[
        float,
        Opt(
            "Share of rows (LMData_VSL: of documents) that are cut at random, 2 to `max_seq_length` - 1 tokens being left; the others are lost.",
            min=0,
            max=1,
        ),
    ] = 0.0
    split_text_to_tokenize: Annotated[
        bool,
        Opt("Cut texts before they are tokenized, for tokenizers that are slow on long texts."),
    ] = False
    chunk_len_to_split: Annotated[
        int, Opt("Characters after which the next space begins a piece.", min=1, max=MOST)
    ] = 2000
    remove_bos_in_chunks: Annotated[
        bool,
        Opt("Special tokens that the tokenizer adds stand around a document, not around each of its pieces."),
    ] = False

    def check(self) -> None:
        """Refuse short rows among rows that are too short to be cut."""
        super().check()
        check_short(self.short_seq_prob, self.max_seq_length)

    def recipe_options(self, tokenizer: TokenEngine) -> dict[str, Any]:
        """Return what makes the way from texts to ids."""
        is_like = self.is_like_modelzoo
        return {
            "engine": tokenizer,
            "specials": self.specials(tokenizer),
            "cleaning": self.cleaning,
            "cutting": Cutting(
                self.chunk_len_to_split if self.split_text_to_tokenize else None,
                drops_heads=self.remove_bos_in_chunks and not is_like,
                drops_first=self.remove_bos_in_chunks and is_like,
            ),
            "skips_empty": is_like,
        }

    def notes(self) -> tuple[str, ...]:
        """See `ModeOptions.notes`."""
        said = ["inverted_mask does nothing under compat, as in ModelZoo 2.2"]
        said = said if self.inverted_mask and self.is_like_modelzoo else []
        idle = {"chunk_len_to_split", "remove_bos_in_chunks"} & self.given(DocumentOptions).keys()
        if idle and not self.split_text_to_tokenize:
            said.append(
                f"{' and '.join(sorted(idle))} without split_text_to_tokenize: no effect, texts are not cut"
            )
        return (*said, *super().notes())


@dataclass(frozen=True, kw_only=True)
class PackingOptions(ModeOptions):
    """Options of modes in which several documents share a row without seeing each other."""

    group = "LMData_VSL, Summarization_VSL"

    packing: Annotated[
        Packing | None,
        Opt(
            "How sequences are put together: best_fit (the default) wastes least; next_fit keeps their order; spfhp and lpfhp as published by Graphcore; modelzoo as "
            "that tool."
        ),
    ] = None
    max_sequences_per_row: Annotated[
        int | None, Opt("Sequences that share a row at most; by default any number.", min=1, max=MOST)
    ] = None
    max_chunk_size: Annotated[
        int, Opt('With packing="modelzoo": KiB of text whose sequences may share rows.', min=1, max=MOST)
    ] = 1024

    def check(self) -> None:
        """Refuse a limit of sequences for ModelZoo's packing, which knows none."""
        super().check()
        if self.way == "modelzoo" and self.max_sequences_per_row is not None:
            how = "packing" if self.packing else f"compat={self.compat!r}, so packing"
            raise UsageError(
                f"{how}='modelzoo' with max_sequences_per_row={self.max_sequences_per_row}; expected no limit, or packing best_fit, next_fit, spfhp or lpfhp, which have one."
            )

    def notes(self) -> tuple[str, ...]:
        """See `ModeOptions.notes`."""
        is_idle = self.max_chunk_size != PackingOptions.max_chunk_size and self.way != "modelzoo"
        own = (
            f"max_chunk_size has no effect: only packing=modelzoo looks at chunks, and this is {self.way}",
        )
        return (*(own if is_idle else ()), *super().notes())

    @property
    def way(self) -> Packing:
        """How sequences are put together."""
        return self.packing or ("modelzoo" if self.is_like_modelzoo else "best_fit")

    def packing_options(self) -> dict[str, Any]:
        """Return what a mode needs to know of them."""
        return {
            "packing": self.way,
            "max_sequences": self.max_sequences_per_row,
            "max_chunk_size": self.max_chunk_size,
        }
