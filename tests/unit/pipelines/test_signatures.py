"""Docstrings as a terminal shows them."""

from dolma_dask.pipelines.signatures import help_text, notes

DOC = """Do something with
    documents.

    Example: dolma-dask verb x

    Parameters
    ----------
    dataset : str
        A folder
        or URL.
    include, exclude : list of str, optional
        Filters. A colon : here is text.

    Returns
    -------
    Summary

    Notes
    -----
    A note on
    two lines.

    one     a column
    two     another
    """


def test_each_argument_alone_and_in_one_line():
    assert help_text(DOC, {}).splitlines() == [
        "Do something with documents.",
        "",
        "Example: dolma-dask verb x",
        "",
        "Parameters",
        "----------",
        "dataset : str",
        "    A folder or URL.",
        "include : list of str, optional",
        "    Filters. A colon : here is text.",
        "exclude : list of str, optional",
        "    Filters. A colon : here is text.",
    ]


def test_notes_flow_and_columns_stay():
    assert notes(DOC, {}) == "A note on two lines.\n\none     a column\ntwo     another"
    assert notes("Nothing more.", {}) == ""
    assert help_text("Nothing\n    more.", {}) == "Nothing more."


def test_help_spells_arguments_as_the_command_line_does():
    names = {"on_bad": "--on-bad", "dataset": "DATASET"}
    doc = 'Do `dataset` with on_bad="skip". In Python also None. Keep `other`, x="y" and `@.k && 1`.'
    assert help_text(doc, names) == 'Do DATASET with --on-bad skip. Keep `other`, x="y" and `@.k && 1`.'
