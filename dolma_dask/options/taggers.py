"""Options of the commands that run taggers, or list them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from dolma_dask.io.artifacts import Artifacts
from dolma_dask.options.base import Opt, Options
from dolma_dask.taggers.base import Tagger
from dolma_dask.taggers.registry import register_toolkit


@dataclass(frozen=True, kw_only=True)
class ArtifactOptions(Options):
    """Files that taggers use."""

    artifacts: Annotated[
        str | None,
        Opt(
            "Folder with files that taggers use: lists of words, domains and addresses, models. dolma-dask list NAME shows which files a tagger uses, and their names."
        ),
    ] = None

    def artifacts_of(self, taggers: Sequence[Tagger]) -> Artifacts:
        """Return the files that some taggers use.

        Raises `UsageError`: a folder was given, and there are none in it, or no tagger uses any.
        """
        return Artifacts() if self.artifacts is None else Artifacts.of(self.artifacts, taggers)


@dataclass(frozen=True, kw_only=True)
class ModuleOptions(Options):
    """Taggers of the Dolma toolkit."""

    tagger_modules: Annotated[
        Sequence[str] | str | None,
        Opt(
            "Python files, or modules, with taggers written for the Dolma toolkit (@add_tagger classes), which are then known by their names.",
            kind="list of str",
        ),
    ] = None

    def register_modules(self) -> None:
        """Make the taggers known.

        Raises `UsageError`: a file or module cannot be imported, or has none.
        """
        register_toolkit(self.tagger_modules)
