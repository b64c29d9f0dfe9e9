"""Lists and listings, from wherever they lie."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from dolma_dask.errors import UsageError
from dolma_dask.io import files
from dolma_dask.io.decompress import compression_of
from dolma_dask.io.objects import Source, shown
from dolma_dask.io.partial import partial
from dolma_dask.io.stream import StoredFile, read_lines
from dolma_dask.verbs.download.fetching import fetch

MAX_LINE_BYTES = 1 << 16
"""Of a list; a URL has fewer."""

_BYTE_ORDER_MARK = "\ufeff"


def lines_of(source: Source, url: str) -> Iterator[str]:
    """Yield the lines of a text file behind a path or URL; it is fetched first. A byte order mark is no part of them.

    Raises `UsageError`: there is no such file, or it is no text of lines.
    """
    with tempfile.TemporaryDirectory(prefix="dolma-dask-") as folder:
        local = url
        if not files.is_local(url):
            local = str(Path(folder) / "list")
            with partial(local) as part:
                try:
                    fetch(source, url, part)
                except FileNotFoundError:
                    raise _missing(url) from None
                part.publish()
        elif files.stat(url) is None:
            raise _missing(url)
        stored = StoredFile(local)
        try:
            for block in read_lines(stored, compression_of(shown(url)), max_record_bytes=MAX_LINE_BYTES):
                if max(block.oversize_bytes or 0, np.diff(block.starts).max(initial=0)) > MAX_LINE_BYTES:
                    raise UsageError(
                        f"{shown(url)}: a line of more than {MAX_LINE_BYTES:,} bytes; expected a list of URLs."
                    )
                for row, line in enumerate(block, block.first_row):
                    yield line.decode() if row else line.decode().removeprefix(_BYTE_ORDER_MARK)
        except UnicodeDecodeError as error:
            raise UsageError(f"{shown(url)}: not UTF-8 ({error.reason}); expected a list of URLs.") from None
        finally:
            stored.close()


def _missing(url: str) -> UsageError:
    return UsageError(
        f"{shown(url)}: there is no such list; expected a list of URLs, or a listing of the tree. Look at the address, and at the spelling of "
        "snapshots and languages.",
        url=shown(url),
    )
