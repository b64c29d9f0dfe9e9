"""list: which taggers there are."""

from dolma_dask.taggers.registry import list_taggers


def show_taggers() -> str:
    """List the taggers, built in and from plug-ins: name, attributes, what it is.

    Example: dolma-dask list

    Returns
    -------
    str
        A table.
    """
    rows = [
        (item.name, str(item.version), ", ".join(item.reads), item.origin, item.description)
        for item in list_taggers()
    ]
    rows.insert(0, ("name", "version", "reads", "from", "what"))
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    return "\n".join(
        "  ".join([*(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=False)), row[4]])
        for row in rows
    )
