"""A verb with an output format of its own in one page: the texts of each shard as a plain file, with a line between two of them.

The example of a kind of output. The rule that keeps documents, resume, keys, records, the quarantine and Dask are of the package.
"""

from dataclasses import dataclass
from typing import Annotated, ClassVar

from dolma_dask.engine import Unit
from dolma_dask.engine.documents import file_plan
from dolma_dask.formats import layout
from dolma_dask.io import files
from dolma_dask.options.base import Opt
from dolma_dask.options.command import command
from dolma_dask.options.groups import Documents
from dolma_dask.outputs.kept import FileOptions, make_files
from dolma_dask.results.summary import Summary
from dolma_dask.sinks.base import FileWriter
from dolma_dask.sinks.sink import DocumentRows, FileSink

VERSION = 1  # raised whenever other bytes are written for the same documents and options


@dataclass(frozen=True, kw_only=True)
class TextOptions(FileOptions):
    """Options of `texts`."""

    between: Annotated[str, Opt("The line between two texts.")] = "---"


class TextFile(FileWriter):
    """Writes one file."""

    def __init__(self, root: str, path: str, between: str) -> None:
        super().__init__(root, path)
        self.end = f"\n{between}\n"

    def write(self, texts: list[str]) -> None:
        self._out.write("".join(text + self.end for text in texts).encode())
        self._rows += len(texts)


class TextSink(FileSink[TextFile]):
    """Writes the texts of one shard."""

    def write(self, rows: DocumentRows) -> None:
        self.writer.write(rows.batch.column("text").to_pylist())


@dataclass(frozen=True)
class TextOutput:
    """A text file for each shard."""

    root: str
    between: str
    verb: ClassVar[str] = "texts"
    columns: ClassVar[tuple[str, ...]] = ("text",)

    def open(self, unit: Unit, shard: str) -> TextSink:
        return TextSink(TextFile(self.root, unit.name, self.between))


@command
def texts(
    dataset: Documents, to: Annotated[str, Opt("Output folder.")], /, *, options: TextOptions
) -> Summary:
    """Write the texts of documents as plain files.

    Example: dolma-dask texts corpus/wiki/v0 out/texts --where "word_count > 50"
    """
    documents = options.documents(options.open(dataset), to)
    output = TextOutput(files.normalize(to), options.between)
    paths = {shard: layout.stem_of(shard) + ".txt" for shard in documents.shards}
    plan = file_plan(output, documents, paths, options.policy, {"between": options.between}, version=VERSION)
    return make_files(plan, options)
