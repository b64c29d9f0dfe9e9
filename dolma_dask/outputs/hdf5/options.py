"""Options of HDF5 rows, as `hdf5` and the mixes that make such rows take them, and the job that they become."""

from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Annotated, Any

from msgspec.structs import replace

from dolma_dask.display import near_or_all
from dolma_dask.engine.documents import DocumentList
from dolma_dask.errors import UsageError
from dolma_dask.io import files
from dolma_dask.io.quarantine import RecordPolicy
from dolma_dask.options.base import Opt, fields_of, without_empty
from dolma_dask.outputs.hdf5.job import Hdf5Job
from dolma_dask.outputs.hdf5.modes import MODES
from dolma_dask.outputs.hdf5.modes.dpo import DpoOptions
from dolma_dask.outputs.hdf5.modes.fim import FimOptions
from dolma_dask.outputs.hdf5.modes.lm import LmOptions
from dolma_dask.outputs.hdf5.modes.lm_vsl import LmVslOptions
from dolma_dask.outputs.hdf5.modes.summarization import SummarizationOptions, SummarizationVslOptions
from dolma_dask.tokens.engine import TokenEngine
from dolma_dask.tokens.modes import Mode


@dataclass(frozen=True, kw_only=True)
class RowOptions(FimOptions, LmVslOptions, SummarizationOptions, SummarizationVslOptions, DpoOptions):
    """Options that decide the rows, as `hdf5`, the mixes that make rows and `write_hdf5` take them: those of all modes."""

    name = LmOptions.name

    mode: Annotated[
        str,
        Opt(" ".join(f"{name}: {kind.summary}" for name, kind in MODES.items())),
    ] = name

    def check(self) -> None:
        """Refuse an unknown mode, and options that it does not have."""
        check_mode(self.mode)
        super().check()
        own = {field.name for field in fields_of(MODES[self.mode])}
        for name in self.given(RowOptions):
            if name not in own and name != "mode":
                having = [mode for mode, kind in MODES.items() if name in {f.name for f in fields_of(kind)}]
                raise UsageError(
                    f"{name} is no option of mode {self.mode}; expected one of {', '.join(sorted(own))}. Modes that have it: {', '.join(having)}."
                )

    def check_keys(self) -> None:
        """See `ModeOptions.check_keys`."""
        MODES[self.mode].check_keys(self)

    def build(self, tokenizer: TokenEngine) -> Mode:
        """Return the mode for a tokenizer."""
        return MODES[self.mode].build(self, tokenizer)

    def record_fields(self) -> tuple[str, ...]:
        """Return the fields of records that the mode reads; none: their texts."""
        return MODES[self.mode].record_fields(self)

    def notes(self) -> tuple[str, ...]:
        """Return what a person should know."""
        is_idle = self.shuffle_seed != 0 and not self.shuffle
        own = ("shuffle_seed has no effect: rows stand in the order of documents without shuffle",)
        return (*(own if is_idle else ()), *MODES[self.mode].notes(self))

    def sections(self) -> dict[str, dict[str, Any]]:
        """Return the values in force, by ModelZoo's sections."""
        shared = ("max_seq_length", "short_seq_prob", "seed", "shuffle", "shuffle_seed", "tail", "compat")
        specials = ("eos", "pad", "eos_id", "pad_id")
        target = ("tokenizer", "engine", "max_rows_per_file")
        own = {f.name: getattr(self, f.name) for f in fields_of(MODES[self.mode]) if f.name not in target}
        known = {**own, "use_ftfy": self.repairs}
        if not self.shuffle:
            del known["shuffle"], known["shuffle_seed"]
        if "min_sequence_len" in own:
            known["min_sequence_len"] = self.least
        if "packing" in own:
            known["packing"] = self.way
            if self.way != "modelzoo":
                del known["max_chunk_size"]
        known["special_tokens_in_text"] = self.in_text
        if (
            self.in_text == "text"
        ):  # what rows were made with before there was the option is compared with these
            del known["special_tokens_in_text"]
        if self.repairs:
            known["ftfy_version"] = self.cleaning.ftfy
        others = [name for name in known if name not in (*shared, *specials)]
        return {
            "processing": {name: known[name] for name in shared if name in known},
            "dataset": {name: known[name] for name in others},
        }


def check_mode(name: str) -> None:
    """Refuse (`UsageError`) a mode that there is not."""
    if name not in MODES:
        raise UsageError(f"mode {name!r} is unknown; {near_or_all(name, list(MODES))}", name=name)


def is_mode(word: str) -> bool:
    """Tell whether the word behind ``dolma-dask hdf5`` is a mode of create_hdf5_dataset, and no dataset.

    Raises `UsageError`: it is nearly one.
    """
    modes = {mode.lower(): mode for mode in MODES}
    near = get_close_matches(word.lower(), modes, n=1, cutoff=0.8)
    if near and word not in modes.values() and not files.local_path(word).exists():
        raise UsageError(
            f"{word!r} is neither a mode nor a dataset; did you mean {modes[near[0]]!r}?", name=word
        )
    return word in modes.values()


def _growth(tokens: TokenEngine, mode: Mode) -> tuple[str, ...]:
    """Say that a mode has added a token to the vocabulary."""
    if mode.engine.vocab_size == tokens.vocab_size:
        return ()
    return (
        f"the vocabulary has grown to {mode.engine.vocab_size:,} tokens by a separator, id {tokens.vocab_size}: a model needs an embedding for it",
    )


def make_job(
    documents: DocumentList,
    to: str,
    rows: RowOptions,
    policy: RecordPolicy,
    told: Mapping[str, Mapping[str, Any]] | None = None,
) -> Hdf5Job:
    """Return a call of `hdf5` that can be run; `told` is what ``data_params.json`` says besides."""
    tokens = rows.opened()
    mode, sections = rows.build(tokens), rows.sections()
    known = {"tokenizer": tokens.file_name, "tokenizer_fingerprint": tokens.fingerprint}
    known |= {"distrusts": tokens.distrusts} if tokens.distrusts else {}
    notes = (*documents.notes, *rows.notes(), *mode.notes, *_growth(tokens, mode), *tokens.notes)
    return Hdf5Job(
        replace(documents, notes=notes),
        files.normalize(to),
        mode,
        rows.max_rows_per_file,
        policy,
        rows.order_seed,
        {
            "setup": without_empty({"mode": rows.mode, **documents.shown}),
            "processing": {**known, **sections["processing"], "max_rows_per_file": rows.max_rows_per_file},
            "dataset": {**sections["dataset"], **mode.found},
        },
        told or {},
    )
