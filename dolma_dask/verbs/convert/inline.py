"""Options of `convert` for taggers that run while pages become documents, as in ``dolma warc``."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated

from dolma_dask.errors import UsageError
from dolma_dask.io.artifacts import files_of
from dolma_dask.io.files import FileInfo
from dolma_dask.options.base import Opt
from dolma_dask.options.taggers import ArtifactOptions, ModuleOptions
from dolma_dask.sources.naming import split_suffix
from dolma_dask.sources.pages import InlineTaggers
from dolma_dask.taggers.base import Tagger, ViewTagger
from dolma_dask.taggers.scoring import TaggerLike, taggers_of

READ = ("id", "text", "source", "added", "created", "metadata")
"""Columns that there are."""


@dataclass(frozen=True, kw_only=True)
class InlineOptions(ArtifactOptions, ModuleOptions):
    """Taggers of pages, and what becomes of those in which they find nothing."""

    pre_taggers: Annotated[
        Sequence[TaggerLike] | TaggerLike | None,
        Opt(
            "Taggers that look at each page of a WARC file before its text is found (metadata.html, metadata.url), such as cc_re. Their attributes are written into the document.",
            kind="list of str",
        ),
    ] = None
    pre_skip: Annotated[
        bool,
        Opt(
            "Leave out pages in which `pre_taggers` find nothing; their text is not extracted.", is_flag=True
        ),
    ] = False
    post_taggers: Annotated[
        Sequence[TaggerLike] | TaggerLike | None,
        Opt(
            "Taggers that look at the text of each record of a WARC or WET file, and at its page. Their attributes are written into the document.",
            kind="list of str",
        ),
    ] = None
    post_skip: Annotated[
        bool, Opt("Leave out documents in which `post_taggers` find nothing.", is_flag=True)
    ] = False

    def inline(self) -> InlineTaggers:
        """Return the taggers with all that they need.

        Raises `UsageError`: one of them cannot run here.
        """
        self.register_modules()
        pre, post = (tuple(taggers_of(given or ())) for given in (self.pre_taggers, self.post_taggers))
        for name, skips, taggers in (("pre", self.pre_skip, pre), ("post", self.post_skip, post)):
            if skips and not taggers:
                raise UsageError(
                    f"{name}_skip leaves out documents in which {name}_taggers find nothing, and none were given; expected {name}_taggers too."
                )
            _check(f"{name}_taggers", taggers)
        blind = [tagger.name for tagger in pre if "metadata" not in tagger.reads]
        if blind:
            raise UsageError(
                f"pre_taggers: {', '.join(blind)} looks at the text, which there is not before it is found; expected taggers of pages and addresses, such as cc_re. Name it in post_taggers."
            )
        every = [*pre, *post]
        artifacts = self.artifacts_of(every)
        artifacts.check_needs(every)
        return InlineTaggers(pre, post, self.pre_skip, self.post_skip, artifacts)


def _check(option: str, taggers: Sequence[Tagger]) -> None:
    """Refuse taggers that are there twice, or need what only `tag` has."""
    names = [tagger.name for tagger in taggers]
    if len(set(names)) < len(names):
        raise UsageError(f"{option}: a tagger was given twice in {names}; expected each once.")
    for tagger in taggers:
        if isinstance(tagger, ViewTagger) and tagger.option and not files_of(tagger):
            raise UsageError(
                f"{option}: {tagger.name} needs {tagger.option}, which is an option of tag; expected taggers without it. Run it afterwards: dolma-dask tag NEW_DATASET --taggers {tagger.name} {tagger.option} ..."
            )
        if others := sorted(set(tagger.reads) - set(READ)):
            raise UsageError(
                f"{option}: {tagger.name} reads {', '.join(others)}; expected columns of {', '.join(READ)}. Run it afterwards, with dolma-dask tag."
            )


def check_archives(raw_files: Iterable[FileInfo]) -> None:
    """Refuse raw files that are no archives of the web, at which no tagger would look."""
    others = [info.path for info in raw_files if split_suffix(info.path).kind != "warc"]
    if others:
        raise UsageError(
            f"pre_taggers and post_taggers look at records of WARC and WET files, and {others[0]} is none; expected such files alone. Convert the others by themselves, and tag them afterwards: dolma-dask tag NEW_DATASET --taggers ..."
        )
