"""FIM: rows of LMData in which parts of documents change places, so that a model learns to fill in the middle; see `dolma_dask.tokens.fim`."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from msgspec.structs import asdict
from numpy.typing import NDArray

from dolma_dask.errors import UsageError
from dolma_dask.options.base import Opt
from dolma_dask.options.command import described
from dolma_dask.outputs.hdf5.modes.lm import LmOptions
from dolma_dask.tokens.engine import TokenEngine
from dolma_dask.tokens.fim import Fim, fim_rows, like_modelzoo, seeded
from dolma_dask.tokens.modes import Filler, Mode, RowFiller
from dolma_dask.tokens.packing import Int64s, Rows
from dolma_dask.tokens.segments import Placed, moved


class FimMode(Mode, frozen=True, kw_only=True):
    """The mode, with its chances and special tokens."""

    fim: Fim

    @property
    def cost(self) -> str:
        """See `Mode.cost`: what is cut is decoded and encoded again."""
        return self.engine.cost

    def params(self) -> Mapping[str, Any]:
        """See `Mode.params`."""
        known = super().params()
        return {**known, "rows": {**known["rows"], "fim": asdict(self.fim)}}

    def filler(self, first_row: int) -> Filler:
        """See `Mode.filler`."""
        return FimFiller(self, first_row)


class FimFiller(RowFiller):
    """Makes rows of LMData and permutes their pieces."""

    mode: FimMode

    def __init__(self, mode: FimMode, first_row: int) -> None:
        super().__init__(mode, first_row)
        fim, seed = mode.fim, mode.seed
        self._draw = like_modelzoo(fim, seed + first_row) if mode.like_modelzoo else seeded(fim, seed)

    def make(
        self, words: NDArray[np.int32], rows: Rows, placed: Placed
    ) -> tuple[NDArray[np.int32], Int64s, Placed]:
        """See `RowFiller.make`."""
        mode, fim = self.mode, self.mode.fim
        plain, counts, placed = super().make(words, rows, placed)
        filled = mode.length - counts[:, 0]
        made = fim_rows(plain[:, 0], filled, self.row, mode.engine, fim, self._draw)
        losses = made.rows[:, 1].sum(axis=1)
        is_filled = np.arange(mode.length) < (mode.length - made.pads)[:, None]
        ends = ((made.rows[:, 0] == fim.eos) & is_filled).sum(axis=1)
        if mode.inverted_mask:
            made.rows[:, 1] ^= 1
        counts = np.stack([made.pads, losses, ends, made.removed], axis=1)
        return made.rows, counts, moved(placed, made.pieces, filled)


@described
@dataclass(frozen=True, kw_only=True)
class FimOptions(LmOptions):
    """Options of mode FIM of `hdf5`, which takes them as ``**options``."""

    group = "FIM"
    name = "FIM"
    summary = "LMData with parts of documents in another order, so that a model learns to fill in the middle."

    fim_rate: Annotated[
        float, Opt("Share of the documents, or their pieces in a row, that are permuted.", min=0, max=1)
    ] = 0.9
    spm_rate: Annotated[
        float,
        Opt(
            "Share of these in the order suffix, prefix, middle; the others: prefix, suffix, middle.",
            min=0,
            max=1,
        ),
    ] = 0.5
    fim_prefix_tok: Annotated[str | None, Opt("Token before the prefix; needed, as the next two.")] = None
    fim_middle_tok: Annotated[str | None, Opt("Token before the middle.")] = None
    fim_suffix_tok: Annotated[str | None, Opt("Token before the suffix.")] = None

    def notes(self) -> tuple[str, ...]:
        """See `ModeOptions.notes`."""
        own = (
            "under compat draws begin anew with each file, in the order of its rows, so that max_rows_per_file and shuffle change the rows",
        )
        return (*(own if self.is_like_modelzoo else ()), *super().notes())

    def build(self, tokenizer: TokenEngine) -> Mode:
        """See `ModeOptions.build`."""
        options = self.mode_options(tokenizer)
        specials = options["recipe"].specials
        if specials.eos_id is None:
            raise UsageError(
                "FIM with eos='none'; expected a token that ends documents, at which rows are cut."
            )
        fim = Fim(
            rate=self.fim_rate,
            spm_rate=self.spm_rate,
            **self._parts(tokenizer, specials.eos_id),
            eos=specials.eos_id,
            pad=specials.pad_id,
            bos=next(iter(specials.head), None),
        )
        return FimMode("FIM", **options, fim=fim)

    def _parts(self, tokenizer: TokenEngine, eos: int) -> dict[str, int]:
        """Return the tokens before the three parts; no two are the same, and none ends documents."""
        parts = ("prefix", "middle", "suffix")
        names = {part: getattr(self, f"fim_{part}_tok") for part in parts}
        ids = {part: _token(tokenizer, f"fim_{part}_tok", names[part]) for part in parts}
        if len({*ids.values(), eos}) <= len(parts):
            shown = ", ".join(f"fim_{part}_tok={names[part]!r}" for part in parts)
            raise UsageError(
                f"{shown}, and documents end with {tokenizer.token(eos)!r}; expected four different tokens, or a model cannot tell the parts."
            )
        return ids


def _token(tokenizer: TokenEngine, option: str, name: str | None) -> int:
    """Return the id of a special token, which must be in the vocabulary."""
    number = None if name is None else tokenizer.token_id(name)
    if number is None:
        near = ", ".join(map(repr, tokenizer.near_tokens(name or "<fim_prefix>")))
        raise UsageError(
            f"{option}={name!r} is no token of {tokenizer.file_name or 'the tokenizer'}; expected one that a model of code was trained with, such as "
            f"<fim_prefix> (near ones there: {near})."
        )
    return number
