"""Options of HDF5 rows, as `hdf5` and the mixes that make such rows take them, and the job that they become."""

from dataclasses import dataclass, replace
from typing import Any, Literal

from dolma_dask.errors import UsageError
from dolma_dask.formats.hdf5 import MAX_ROWS_PER_FILE
from dolma_dask.io import files
from dolma_dask.io.quarantine import RecordPolicy
from dolma_dask.io.tokenizer import open_tokenizer
from dolma_dask.options.shared import check_choice, without_empty
from dolma_dask.outputs.hdf5.job import Documents, Hdf5Job
from dolma_dask.tokens.cleaning import Cleaning, Normalizer
from dolma_dask.tokens.engine import TokenEngine
from dolma_dask.tokens.lm import LmData
from dolma_dask.tokens.lm_documents import Cutting, LmRecipe
from dolma_dask.tokens.modes import check_mode
from dolma_dask.tokens.packing import Tail
from dolma_dask.tokens.specials import find_specials

Compat = Literal["modelzoo-2.2"]

MODELZOO: Compat = "modelzoo-2.2"
"""The release whose effective defaults and quirks can be requested."""

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
        if self.is_like_modelzoo:
            self.cleaning.check_like_modelzoo()

    @property
    def is_like_modelzoo(self) -> bool:
        """True for the quirks of ModelZoo 2.2."""
        return self.compat == MODELZOO

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
        return LEAST_TOKENS[self.compat] if self.min_sequence_len is None else self.min_sequence_len

    def mode(self, tokenizer: TokenEngine) -> LmData:
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
        known = {**vars(self), "use_ftfy": self.repairs, "min_sequence_len": self.least}
        if self.repairs:
            known["ftfy_version"] = self.cleaning.ftfy
        others = [name for name in known if name not in (*shared, *specials)]
        return {
            "processing": {name: known[name] for name in shared},
            "dataset": {name: known[name] for name in others},
        }


@dataclass(frozen=True)
class Target:
    """Target and tokenizer of the rows; for each option see `hdf5`."""

    to: str
    tokenizer: str
    mode: str = "LMData"
    max_rows_per_file: int = MAX_ROWS_PER_FILE

    def __post_init__(self) -> None:
        check_mode(self.mode)
        if self.max_rows_per_file < 1:
            raise UsageError(
                f"max_rows_per_file={self.max_rows_per_file}; expected a number of rows from 1 on."
            )


def make_job(documents: Documents, target: Target, rows: LmOptions, policy: RecordPolicy) -> Hdf5Job:
    """Return a call of `hdf5` that can be run."""
    tokens = open_tokenizer(target.tokenizer)
    sections = rows.sections()
    known = {"tokenizer": tokens.file_name, "tokenizer_fingerprint": tokens.fingerprint}
    return Hdf5Job(
        replace(documents, notes=(*documents.notes, *rows.notes())),
        files.normalize(target.to),
        rows.mode(tokens),
        target.max_rows_per_file,
        policy,
        {
            "setup": without_empty({"mode": target.mode, **documents.shown}),
            "processing": {**known, **sections["processing"], "max_rows_per_file": target.max_rows_per_file},
            "dataset": sections["dataset"],
        },
    )
