"""Token files of a mix, beside its documents or instead of them: options in the words of the verbs `ragged` and `hdf5`.

Everything that can be wrong with them is checked before a document is read or written: a mix takes hours, a tokenizer a second.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from msgspec import Struct
from msgspec.structs import replace

from dolma_dask.engine import Job, MapJob, run_job
from dolma_dask.engine.documents import DocumentList
from dolma_dask.io import files
from dolma_dask.io.quarantine import RecordPolicy
from dolma_dask.options.groups import TokensLike, as_dataset, check_outside
from dolma_dask.options.records import RecordOptions
from dolma_dask.outputs.hdf5.options import RowOptions, make_job
from dolma_dask.outputs.kept import documents_of, make_files
from dolma_dask.outputs.ragged import ArrayOptions
from dolma_dask.outputs.tokenizing import S, by_definition_if_engines_differ
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

    ragged: ArraysOfMix | None = None
    hdf5: RowsOfMix | None = None

    def check(self, roots: Sequence[str]) -> None:
        """Refuse token files that cannot be made, or would lie among documents, before anything is written."""
        if self.ragged is not None:
            check_outside(self.ragged.output(self.ragged.to).root, *roots)
        if self.hdf5 is not None:
            self.hdf5.build(self.hdf5.opened())
            check_outside(files.normalize(self.hdf5.to), *roots)

    def counted(self) -> tuple[TokenEngine, int]:
        """Return the tokenizer that counts the tokens of documents, that of `ragged` first, and how many are put around each."""
        if self.ragged is not None:
            output = self.ragged.output(self.ragged.to)
            return output.engine, sum(one is not None for one in (output.framing.bos, output.framing.eos))
        assert self.hdf5 is not None
        return self.hdf5.opened(), 0

    def encoding(self, make: Callable[[], S]) -> S:
        """Run work that makes them; see `by_definition_if_engines_differ`."""
        outputs = [one for one in (self.ragged, self.hdf5) if one is not None]
        return by_definition_if_engines_differ(outputs, make)

    @property
    def roots(self) -> tuple[str, ...]:
        """Roots of the tokens, that of `ragged` first."""
        return tuple(files.normalize(one.to) for one in (self.ragged, self.hdf5) if one is not None)

    @property
    def root(self) -> str:
        """Root of the tokens; that of `ragged` if there are both kinds."""
        return self.roots[0]

    def jobs(self, documents: DocumentList, name: str, policy: RecordPolicy) -> dict[str, Job[Summary]]:
        """Return the job of each kind of token files; `name` begins those of `ragged` that were given none."""
        jobs: dict[str, Job[Summary]] = {}
        if self.ragged is not None:
            output = self.ragged.output(self.ragged.to)
            jobs["ragged"] = MapJob(output.plan(documents, self.ragged.name or name, policy))
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


def token_options(ragged: TokensLike, hdf5: TokensLike) -> TokenOptions:
    """Check the options of token files."""
    form = '{"to": FOLDER, "tokenizer": FILE, ...}'
    return TokenOptions(
        None if ragged is None else ArraysOfMix.from_json("ragged of a mix", ragged, form),
        None if hdf5 is None else RowsOfMix.from_json("hdf5 of a mix", hdf5, form),
    )
