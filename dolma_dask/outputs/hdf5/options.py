"""Options of HDF5 rows, as `hdf5` and the mixes that make such rows take them, and the job that they become."""

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from msgspec.structs import replace

from dolma_dask.engine.documents import DocumentList
from dolma_dask.formats.hdf5 import MAX_ROWS_PER_FILE
from dolma_dask.io import files
from dolma_dask.io.quarantine import RecordPolicy
from dolma_dask.options.base import OUTPUT, Opt, fields_of, without_empty
from dolma_dask.outputs.hdf5.job import Hdf5Job
from dolma_dask.outputs.tokenizing import TokenizingOptions
from dolma_dask.tokens.cleaning import Cleaning, Normalizer
from dolma_dask.tokens.engine import TokenEngine
from dolma_dask.tokens.lm import LmData
from dolma_dask.tokens.lm_documents import Cutting, LmRecipe
from dolma_dask.tokens.modes import check_mode
from dolma_dask.tokens.packing import Tail
from dolma_dask.tokens.specials import find_specials
from dolma_dask.tokens.spelled import InText

Compat = Literal["modelzoo-2.2"]

MODELZOO: Compat = "modelzoo-2.2"
"""The release whose effective defaults and quirks can be requested."""

MIN_TOKENS = {None: 10, MODELZOO: 6}
"""min_sequence_len: what ModelZoo's documentation says, and what its command line does."""


@dataclass(frozen=True, kw_only=True)
class RowOptions(TokenizingOptions):
    """Options that decide the rows, as `hdf5`, the mixes that make rows and `write_hdf5` take them."""

    tokenizer: Annotated[
        str,
        Opt(
            "A tokenizer.json (Hugging Face tokenizers), a folder that has one, or a model on the hub: EleutherAI/pythia-70m, with a revision behind @."
        ),
    ]
    mode: Annotated[
        str, Opt("LMData: documents as a stream of tokens, each predicted from those before it.")
    ] = "LMData"
    max_seq_length: Annotated[int, Opt("Tokens of a row.")] = 2048
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
    min_sequence_len: Annotated[
        int | None,
        Opt("Without packing: rows of fewer tokens are left out; by default 10."),
    ] = None
    short_seq_prob: Annotated[
        float,
        Opt(
            "Share of rows that are cut at random, 2 to `max_seq_length` - 1 tokens being left; the others are lost."
        ),
    ] = 0.0
    seed: Annotated[int, Opt("Seed of the rows that are cut at random.")] = 0
    use_ftfy: Annotated[bool | None, Opt("Repair texts with ftfy first; by default not.")] = None
    ftfy_normalizer: Annotated[
        Normalizer | None,
        Opt("Unicode normalization that ftfy ends with. In Python None for none."),
    ] = "NFC"
    wikitext_detokenize: Annotated[bool, Opt("Put the punctuation of wikitext together.")] = False
    split_text_to_tokenize: Annotated[
        bool,
        Opt("Cut texts before they are tokenized, for tokenizers that are slow on long texts."),
    ] = False
    chunk_len_to_split: Annotated[int, Opt("Characters after which the next space begins a piece.")] = 2000
    remove_bos_in_chunks: Annotated[
        bool,
        Opt("What the tokenizer adds stands around a document, not around each of its pieces."),
    ] = False
    inverted_mask: Annotated[bool, Opt("The loss mask is 1 where nothing is predicted.")] = False
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
        """Refuse an unknown mode, and repairs that ModelZoo does not make."""
        super().check()
        check_mode(self.mode)
        if self.is_like_modelzoo:
            self.cleaning.check_like_modelzoo()

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

    @property
    def least(self) -> int:
        """Tokens of the shortest row of a document by itself."""
        return MIN_TOKENS[self.compat] if self.min_sequence_len is None else self.min_sequence_len

    def lm_data(self, tokenizer: TokenEngine) -> LmData:
        """Return the mode for a tokenizer."""
        is_like = self.is_like_modelzoo
        recipe = LmRecipe(
            tokenizer,
            find_specials(tokenizer, self.eos, self.pad, self.eos_id, self.pad_id, pads_with_eos=is_like),
            self.cleaning,
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
        target = ("tokenizer", "engine", "mode", "max_rows_per_file")
        own = {f.name: getattr(self, f.name) for f in fields_of(RowOptions) if f.name not in target}
        known = {**own, "use_ftfy": self.repairs, "min_sequence_len": self.least}
        known["special_tokens_in_text"] = self.in_text
        if (
            self.in_text == "text"
        ):  # what rows were made with before there was the option is compared with these
            del known["special_tokens_in_text"]
        if self.repairs:
            known["ftfy_version"] = self.cleaning.ftfy
        others = [name for name in known if name not in (*shared, *specials)]
        return {
            "processing": {name: known[name] for name in shared},
            "dataset": {name: known[name] for name in others},
        }


def make_job(documents: DocumentList, to: str, rows: RowOptions, policy: RecordPolicy) -> Hdf5Job:
    """Return a call of `hdf5` that can be run."""
    tokens = rows.opened()
    sections = rows.sections()
    known = {"tokenizer": tokens.file_name, "tokenizer_fingerprint": tokens.fingerprint}
    known |= {"distrusts": tokens.distrusts} if tokens.distrusts else {}
    return Hdf5Job(
        replace(documents, notes=(*documents.notes, *rows.notes(), *tokens.notes)),
        files.normalize(to),
        rows.lm_data(tokens),
        rows.max_rows_per_file,
        policy,
        {
            "setup": without_empty({"mode": rows.mode, **documents.shown}),
            "processing": {**known, **sections["processing"], "max_rows_per_file": rows.max_rows_per_file},
            "dataset": sections["dataset"],
        },
    )
