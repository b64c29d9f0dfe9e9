"""pipeline: a YAML file in the user's hands; shows its stages, what is done and what is left, and runs.

Cost of a display: a dry run of each stage, which lists what it reads and asks the journals; nothing is done. A stage that downloads asks for sizes.
"""

import posixpath
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from dolma_dask.display import counted
from dolma_dask.errors import DolmaDaskError
from dolma_dask.pipelines.estimate.answer import Estimate
from dolma_dask.pipelines.estimate.question import estimate
from dolma_dask.pipelines.pipeline import PipelineSummary, run
from dolma_dask.pipelines.pipeline_file import read_pipeline, variables_of
from dolma_dask.pipelines.stages import StagePlan
from dolma_dask.results.answer import Answer
from dolma_dask.results.parts import Heading, Listing, Notes, Part
from dolma_dask.results.table import Column, Table

_COLUMNS = [Column(name, "words") for name in ("stage", "reads", "verb", "writes", "state")]


class Pipeline(Answer, frozen=True):
    """A pipeline: its file, with values for its variables.

    Attributes
    ----------
    file : str
        The YAML file.
    variables : Mapping
        Values that replace those of its ``variables:``.
    stages : tuple of StagePlan
        In the order in which they run: name, verb, arguments.
    """

    file: str
    variables: Mapping[str, str]
    stages: tuple[StagePlan, ...]

    def run(self, **options: Any) -> PipelineSummary:
        """Run the stages, or what is left of them; options are those of `dolma_dask.run`, such as ``only`` and ``prune``."""
        return run(self.file, variables=self.variables, **options)

    def estimate(self, **options: Any) -> Estimate:
        """Tell what the pipeline will cost; options are those of `dolma_dask.estimate`."""
        return estimate(self.file, variables=self.variables, **options)

    def table(self) -> Table:
        """Return each stage with what it reads and writes, and what it would do now."""
        return self._look()[0]

    @property
    def folder(self) -> str:
        """Folder that all that is read and written has in common; paths of the table are relative to it."""
        places = [url.split("/")[:-1] for stage in self.stages for url in (*stage.reads, *stage.writes)]
        return "/".join(posixpath.commonprefix(places))

    def _look(self) -> tuple[Table, str]:
        """Return the table, and why some of it is not known."""
        states, problem = self._states()
        above = self.folder
        lines = [
            (stage.name, _shown(stage.reads, above), stage.verb, _written(stage, above), state)
            for stage, state in zip(self.stages, states, strict=True)
        ]
        return Table("", _COLUMNS, lines), problem

    def _states(self) -> tuple[list[str], str]:
        """Return the state of each stage, as a dry run tells it, and what was in its way."""
        unknown = [""] * len(self.stages)
        try:
            return [stage.shown_state() for stage in self.run(dry_run=True, progress=False).stages], ""
        except DolmaDaskError as error:
            known = error.details.get("summary")
            found = known.stages if isinstance(known, PipelineSummary) else ()
            return [stage.shown_state() for stage in found] or unknown, f"{type(error).__name__}: {error}"
        except Exception as error:  # noqa: BLE001 - a display never raises
            return unknown, f"{type(error).__name__}: {error}"

    def _head(self) -> str:
        below = f", below {self.folder}" if self.folder else ""
        return f"pipeline {self.file}: {counted(len(self.stages), 'stage')}{below}"

    def parts(self) -> Iterator[Part]:
        table, problem = self._look()
        yield Heading(self._head())
        yield table
        yield Listing("", problem.splitlines())
        yield Notes([f"{name} = {value}" for name, value in self.variables.items()])


def _shown(urls: Sequence[str], above: str) -> str:
    """Return paths without the folder that all have in common."""
    return ", ".join(url.removeprefix(f"{above}/") if above else url for url in dict.fromkeys(urls))


def _written(stage: StagePlan, above: str) -> str:
    """Return what a stage writes; ``in v1`` where it writes beside the documents of a dataset."""
    beside = [f"in {_shown([url], above)}" for url in stage.changes]
    others = [_shown([url], above) for url in stage.writes if url not in stage.changes]
    return ", ".join([*beside, *others])


def pipeline(path: str, /, **variables: object) -> Pipeline:
    """Open a pipeline: an object that shows the stages of a YAML file, what is done and what is left, and runs them.

    Parameters
    ----------
    path : str
        The file; see `run`.
    **variables
        Values for ``${NAME}`` in the file. They replace those of its ``variables:``.

    Returns
    -------
    Pipeline
        `Pipeline.run` runs it, `Pipeline.estimate` tells what it will cost.

    Raises
    ------
    UsageError
        The file is wrong: every mistake with line and column.

    Examples
    --------
    >>> wiki = pipeline("configs/wiki.yaml", raw="dumps/wiki")  # doctest: +SKIP
    >>> wiki.run(workers=4)  # doctest: +SKIP
    """
    values = variables_of(variables)
    return Pipeline(str(path), values, read_pipeline(str(path), values))
