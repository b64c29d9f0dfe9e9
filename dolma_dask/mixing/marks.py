"""Rules over the marks that verbs leave: ``dk.mix(..., where=~dk.duplicates())`` keeps survivors."""

from dolma_dask.formats.layout import check_name
from dolma_dask.mixing.rules import Missing, Rule
from dolma_dask.mixing.values import Name


def duplicates(name: str = "exact") -> Rule:
    """Return the rule that holds for documents which `dedupe` has marked.

    Parameters
    ----------
    name : str
        Attribute set that dedupe wrote.

    Returns
    -------
    Rule
        The same as ``"exact is not None"``; ``~`` turns it round.

    Raises
    ------
    UsageError
        No attribute set can have such a name.
    """
    return _marked(name)


def listed(name: str) -> Rule:
    """Return the rule that holds for documents which stand in the list that `block` was given.

    Parameters
    ----------
    name : str
        Attribute set that block wrote.

    Returns
    -------
    Rule
        The same as ``"takedown is not None"``: drop listed documents with ``~``, or keep them alone.

    Raises
    ------
    UsageError
        No attribute set can have such a name.
    """
    return _marked(name)


def _marked(name: str) -> Rule:
    return Missing(Name(check_name(name, "attribute set")), negated=True)
