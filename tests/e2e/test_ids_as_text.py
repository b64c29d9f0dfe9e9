"""The law of --ids-as-text: what any verb makes of documents and attributes whose ids are numbers, it makes of those whose ids are the same as text."""

import contextlib
import gzip
import io
import json
import re
import shutil
from pathlib import Path

import pyarrow as pa
import pytest
from small_world import TAGGERS, Verbs, run_here, store
from thorough import THOROUGH

from dolma_dask import cli
from dolma_dask.testing.verb_laws import tree

OWN_IDS = ("convert", "combined", "download", "sign", "signals", "attach", "published", "tables")
"""Cases of raw files, or of ids that say more than a number."""

OTHERS = [name for name in Verbs.cases if name not in OWN_IDS]

ALWAYS = ("tag", "quantiles", "dedupe", "fuzzy", "block", "validate", "mix", "ragged", "hdf5")
"""Cases that ordinary runs have too: each way of reading once."""

_ID = re.compile(rb'("id": ?)"([^"]*)"')


def read(path: Path) -> bytes:
    """Return the lines of a file of documents or attributes."""
    data = path.read_bytes()
    if path.suffix == ".zst":
        with pa.input_stream(pa.BufferReader(data), compression="zstd") as stream:
            return bytes(stream.read())
    return gzip.decompress(data) if path.suffix == ".gz" else data


class TextIds(Verbs):
    """The small world with decimal numbers as ids, in strings."""

    form = b'"%d"'
    options = ()

    @classmethod
    def tag(cls, world):
        """Number the documents, tag them, and leave attributes that another tool could have made."""
        numbers: dict[bytes, int] = {}
        for documents in sorted(world.rglob("documents")):
            if documents.relative_to(world).parts[0] not in ("served", "published"):
                cls.number(documents, numbers)
        listed = (world / "list.txt").read_bytes().splitlines()
        (world / "list.txt").write_bytes(b"".join(b"%d\n" % numbers.get(one, -1) for one in listed))
        for root, taggers in (("v0", TAGGERS), ("chosen", ("char_length_v1",))):
            assert run_here(["tag", f"{world}/{root}", "--taggers", *taggers, *cls.options]) == 0
        shutil.rmtree(world / "v0/_journal")
        cls.number(world / "v0/attributes", {b"%d" % number: number for number in numbers.values()})

    @classmethod
    def number(cls, folder: Path, numbers: dict[bytes, int]):
        """Write numbers in place of ids, one for each id, in no order."""
        for path in sorted(path for path in folder.rglob("*") if path.is_file()):
            lines = read(path).splitlines(keepends=True)
            store(path, [_ID.sub(lambda found: cls.numbered(found, numbers), line, 1) for line in lines], 2)

    @classmethod
    def numbered(cls, found: "re.Match[bytes]", numbers: dict[bytes, int]) -> bytes:
        """Return the member of an id in this world's form."""
        number = numbers.setdefault(found[2], (len(numbers) * 7919 - 10**6) % 10**12)
        return found[1] + cls.form % number


class NumberIds(TextIds):
    """The same with numbers."""

    form = b"%d"
    options = ("--ids-as-text",)


@pytest.fixture(scope="module")
def both(tmp_path_factory) -> tuple[Path, Path]:
    """The world with ids as text, and with ids as numbers; both folders have one name, which some outputs hold."""
    worlds = []
    for kind in (TextIds, NumberIds):
        world = tmp_path_factory.mktemp(kind.__name__) / "world"
        world.mkdir()
        kind.make_world(world)
        worlds.append(world)
    return worlds[0], worlds[1]


def is_left(words: list[str]) -> bool:
    """Tell whether a command that was finished without an option has something to do with it, or refuses to replace what is there."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        status = cli.main([*words, "--dry-run", "--json", "--no-progress"])
    return status == 2 or bool(json.loads(out.getvalue())["planned"])


@pytest.mark.e2e
@pytest.mark.parametrize("name", OTHERS if THOROUGH else [name for name in OTHERS if name in ALWAYS])
def test_numbers_as_ids_are_their_text(name, both, tmp_path):
    case = Verbs.cases[name]
    text, numbers = (case.copy_world(world, tmp_path / world.parent.name / "world") for world in both)
    assert run_here(case.command(text)) == 0
    made = tree(text, case.writes)
    assert is_left(case.command(text, "--ids-as-text"))  # it is in the key
    refused = case.command(numbers)
    assert run_here(refused) == 1  # nothing is read as text unless it is asked for
    assert run_here([*refused, "--ids-as-text"]) == 0
    for params in numbers.rglob("data_params.json"):  # tells what was given
        params.write_text(re.sub(r',\s*"ids_as_text": true', "", params.read_text(), count=1))
    assert tree(numbers, case.writes) == made
