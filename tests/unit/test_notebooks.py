"""Stored notebooks: their outputs are those of the cells and versions of today, and hold nothing of the machine that made them."""

import socket

import nbformat
import pytest
from nbformat import v4

import notebooks

PATHS = notebooks.named(())
PNG = "iVBORw0KGgo="
HOST = socket.gethostname()


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_outputs_are_of_these_cells_and_versions(path):
    assert notebooks.changes(path) == [], f"{path.name} is old; run: make notebooks"


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_outputs_can_be_shown_anywhere(path):
    book = nbformat.read(path, as_version=4)
    assert notebooks.complaints(book) == []
    assert all(output.output_type != "error" for cell in book.cells for output in cell.get("outputs", ()))


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_it_tells_a_story_on_public_names(path):
    code = [cell.source for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"]
    assert 'dk.cluster("' in code[0]
    assert "assert " in code[-1]
    assert not [source for source in code if "dolma_dask." in source]


def test_the_gallery_is_that_of_the_notebooks():
    assert notebooks.GALLERY.read_text() == notebooks.gallery()


def book_of(*outputs):
    return v4.new_notebook(cells=[v4.new_markdown_cell("# T"), v4.new_code_cell("x", outputs=list(outputs))])


def shown(**data):
    return v4.new_output("display_data", {kind.replace("_", "/", 1): value for kind, value in data.items()})


@pytest.mark.parametrize(
    ("output", "kept"),
    [
        (shown(image_png=PNG, text_html="<b>b</b>", text_plain="t"), {"image/png": PNG, "text/plain": "t"}),
        (shown(text_html="<script>x</script>", text_plain="t"), {"text/plain": "t"}),
        (shown(text_html="<script>x</script>"), None),
        (shown(text_html="<div class='dolma-progress'>tag: 1 shard</div>", text_plain="1 MB/s"), None),
        (
            shown(
                text_html="<table><tr><th>a</th><td>1</td></tr><tr><th>wall time</th><td>2 s</td></tr></table>"
            ),
            {"text/html": "<table><tr><th>a</th><td>1</td></tr></table>"},
        ),
        (shown(text_plain="a  1\nwall time  2 s\nwhere  /some/tmp/x_1/v0"), {"text/plain": "a  1\nwhere  demo/v0"}),
        (shown(text_plain=f"on {HOST}, not in di{HOST}od"), {"text/plain": f"on host, not in di{HOST}od"}),
        (v4.new_output("stream", name="stderr", text="a warning"), None),
    ],
)  # fmt: skip
def test_what_belongs_to_a_run_or_a_machine_is_left_out(output, kept):
    book = book_of(output)
    book.cells[1].metadata["alt"] = "a dot"
    notebooks.clean(book, "/some/tmp")
    assert [output.data for output in book.cells[1].outputs] == ([kept] if kept else [])
    assert notebooks.complaints(book) == []


def test_pictures_keep_their_description_and_width():
    own, cells = shown(image_png=PNG), shown(image_png=PNG)
    own.metadata["image/png"] = {"alt": "bars of words", "width": 720}
    book = book_of(own, cells)
    notebooks.clean(book, "/some/tmp")
    assert [notebooks.alt_of(output) for output in book.cells[1].outputs] == ["bars of words", ""]
    assert book.cells[1].outputs[0].metadata["image/png"]["width"] == 720
    assert "no description" in notebooks.complaints(book)[0]
    book.cells[1].metadata["alt"] = "a line"
    notebooks.clean(book, "/some/tmp")
    assert notebooks.alt_of(book.cells[1].outputs[0]) == "bars of words"
    assert notebooks.complaints(book_of(own)) == []


@pytest.mark.parametrize(
    "text",
    [
        "<script>1</script>",
        "<img onerror='x'>",
        "see /home/me/x",
        "tcp://10.0.0.1:80",
        "at 10:11:12",
        "x" * 500_000,
    ],
)
def test_what_is_left_of_them_is_complained_about(text):
    assert notebooks.complaints(book_of(v4.new_output("stream", text=text)))


def test_digests_see_every_cell_and_tag():
    first, second = book_of(), book_of()
    second.cells[0].metadata["tags"] = ["gallery"]
    assert notebooks.digests(first)["cells"] != notebooks.digests(second)["cells"]
    assert notebooks.digests(first)["versions"] == notebooks.digests(second)["versions"]
