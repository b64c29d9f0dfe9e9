"""Token files of a mix, beside its documents or instead of them: options in the words of the verbs `ragged` and `hdf5`.

Everything that can be wrong with them is checked before a document is read or written: a mix takes hours, a tokenizer a second.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from dolma_dask.engine import Job, MapJob, run_job
from dolma_dask.engine.documents import DocumentList
from dolma_dask.errors import UsageError
from dolma_dask.io import files
from dolma_dask.io.quarantine import RecordPolicy
from dolma_dask.options.groups import SeveralTokensLike, TokensLike, as_dataset, check_outside
from dolma_dask.options.records import RecordOptions
from dolma_dask.outputs.hdf5.options import RowOptions, make_job
from dolma_dask.outputs.kept import documents_of, make_files
from dolma_dask.outputs.ragged import ArrayOptions
from dolma_dask.outputs.tokenizing import S, by_definition_if_engines_differ
from dolma_dask.reading.catalog import DISTRUSTS
from dolma_dask.reading.kept.planning import make_mixture
from dolma_dask.reading.selection import select
from dolma_dask.results.summary import Summary
from dolma_dask.tokens.engine import TokenEngine


@dataclass(frozen=True, kw_only=True)
class ArraysOfMix(ArrayOptions):
    """Token arrays of a mix, and where they go."""

    to: str


@dataclass(frozen=True, kw_only=True)
class RowsOfMix(RowOptions):
    """HDF5 rows of a mix, and where they go."""

    to: str


class TokenOptions(Struct, frozen=True):
    """Token files that a mix makes."""

    ragged: tuple[ArraysOfMix, ...] = ()
    hdf5: RowsOfMix | None = None

    def check(self, roots: Sequence[str]) -> None:
        """Refuse token files that cannot be made, or would lie among documents or each other, before anything is written."""
        for one in self.ragged:
            check_outside(one.output(one.to).root, *roots)
        if self.hdf5 is not None:
            self.hdf5.build(self.hdf5.opened())
            check_outside(files.normalize(self.hdf5.to), *roots)
        if twice := [root for root, count in Counter(self.roots).items() if count > 1]:
            raise UsageError(
                f"two kinds of token files of a mix go to {twice[0]}; expected a folder for each. Change `to` of one of them."
            )

    def counted(self) -> tuple[TokenEngine, int]:
        """Return the tokenizer that counts the tokens of documents, that of `ragged` first, and how many are put around each."""
        if self.ragged:
            output = self.ragged[0].output(self.ragged[0].to)
            return output.engine, sum(one is not None for one in (output.framing.bos, output.framing.eos))
        assert self.hdf5 is not None
        return self.hdf5.opened(), 0

    def check_counted(self, column: str, counted: Mapping[str, Any]) -> None:
        """Refuse files of another tokenizer than the one with which the tokens in a column were counted, by its parameters."""
        for one in self._every:
            params = {name: value for name, value in one.opened().params().items() if name != DISTRUSTS}
            if params != counted:
                raise UsageError(
                    f"tokens were counted ({column}) with a tokenizer of fingerprint {counted.get('tokenizer')}, and those in {one.to} are made with "
                    f"{one.tokenizer}, {params['tokenizer']}, or treat special tokens in texts in another way; expected the same. Count with it: dolma-dask "
                    f"tag ... --taggers tokens --tokenizer {one.tokenizer}; or let the mix count, which encodes all texts twice: --unit tokens."
                )

    @property
    def notes(self) -> Iterator[str]:
        """What may make other tokens of a text than are counted."""
        for one in self.ragged:
            if one.compat is not None or one.segment_before_tokenization:
                yield f"budget: tokens are counted of whole texts as they are; those in {one.to} are made in another way, and may be a few more or less"

    def encoding(self, make: Callable[[], S]) -> S:
        """Run work that makes them; see `by_definition_if_engines_differ`."""
        return by_definition_if_engines_differ(self._every, make)

    @property
    def _every(self) -> tuple[ArraysOfMix | RowsOfMix, ...]:
        return self.ragged if self.hdf5 is None else (*self.ragged, self.hdf5)

    @property
    def roots(self) -> tuple[str, ...]:
        """Roots of the tokens, those of `ragged` first."""
        return tuple(files.normalize(one.to) for one in self._every)

    @property
    def root(self) -> str:
        """Root of the tokens; the first of `ragged` if there are several."""
        return self.roots[0]

    def jobs(self, documents: DocumentList, name: str, policy: RecordPolicy) -> dict[str, Job[Summary]]:
        """Return the job of each kind of token files; `name` begins those of `ragged` that were given none."""
        jobs: dict[str, Job[Summary]] = {}
        units: list[str] = []
        for number, one in enumerate(self.ragged, 1):
            plan = one.output(one.to).plan(documents, one.name or name, policy)
            units += plan.all_units or ()
            jobs["ragged" if number == 1 else f"ragged {number}"] = MapJob(plan)
        if len(set(units)) < len(units):
            raise UsageError(
                "two outputs in `ragged` of a mix have files of the same names, by which their records are told apart; expected another format or another "
                "`name` for each."
            )
        if self.hdf5 is not None:
            jobs["hdf5"] = make_job(documents, self.hdf5.to, self.hdf5, policy)
        return jobs

    def of_packed(
        self, target: str, source: str | None, name: str, options: RecordOptions
    ) -> list[tuple[str, Summary]]:
        """Make token files of documents that were packed or shuffled: in the new order, so from the new files."""
        opened = as_dataset(target, source)
        mixture = make_mixture(select(opened, None, ()))
        documents = documents_of(mixture, opened, mixture.params(), {"source": source})
        made: list[tuple[str, Summary]] = []
        for verb, job in self.jobs(documents, name, options.policy).items():
            if isinstance(job, MapJob):
                # the files that it is made from were all made anew, perhaps of another number
                made.append((verb, make_files(replace(job.plan, replaces_own=True), options)))
            else:
                made.append((verb, run_job(job, options)))
        return made


def token_options(ragged: SeveralTokensLike, hdf5: TokensLike) -> TokenOptions:
    """Check the options of token files."""
    form = '{"to": FOLDER, "tokenizer": FILE, ...}'
    arrays = (ArraysOfMix.from_json("ragged of a mix", one, form) for one in _several(ragged))
    return TokenOptions(
        tuple(arrays), None if hdf5 is None else RowsOfMix.from_json("hdf5 of a mix", hdf5, form)
    )


def _several(given: SeveralTokensLike) -> Sequence[str | Mapping[str, Any]]:
    """Return what was given for each output, also where a text of JSON has a list of them."""
    if given is None or isinstance(given, Mapping):
        return () if given is None else (given,)
    if not isinstance(given, str):
        return [one for item in given for one in _several(item)]
    if not given.lstrip().startswith("["):
        return (given,)
    try:
        return msgspec.json.decode(given, type=list[dict[str, Any]])
    except msgspec.DecodeError as error:
        raise UsageError(
            f"cannot read ragged of a mix {given!r}: {error}; expected a map of options in JSON, or a list of them."
        ) from None
