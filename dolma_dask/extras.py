"""Packages that only some need: they come with an extra, and where one is missing the error names it."""

from importlib.util import find_spec

from dolma_dask.errors import UsageError

EXTRAS = {
    "bokeh": "report",
    "dask_jobqueue": "slurm",
    "detect_secrets": "secrets",
    "fastokens": "fast",
    "fasttext": "models",
    "ftfy": "ftfy",
    "jq": "jq",
    "kenlm": "kenlm",
    "langdetect": "langdetect",
    "lingua": "lingua",
    "matplotlib": "report",
    "presidio_analyzer": "presidio",
    "py3langid": "language",
    "pycld2": "language",
    "resiliparse": "web",
    "s3fs": "s3",
    "sentencepiece": "kenlm",
    "sentencex": "models",
    "trafilatura": "trafilatura",
}
"""Extra of dolma-dask that brings a package."""


_DISTRIBUTIONS = {
    "fasttext": ("fasttext-numpy2",),
    "presidio_analyzer": ("presidio-analyzer", "phonenumbers", "tldextract"),
}
"""Distributions that decide what a package answers, if not the one of its name."""


def missing(package: str, what: str) -> str | None:
    """Say that `what` needs a package that is not installed, and the extra to install; None if it is there."""
    if find_spec(package) is not None:
        return None
    return (
        f"{what} needs the package {package}, which is not installed; expected it in this environment: "
        f"pip install 'dolma-dask[{EXTRAS[package]}]'."
    )


def version_of(package: str) -> str:
    """Return the version of an installed package, by the name that it is imported by; empty if nobody knows it."""
    from importlib import metadata  # with its parsers of mail 10 ms, and hardly any command asks

    try:
        return " ".join(map(metadata.version, _DISTRIBUTIONS.get(package, (package,))))
    except metadata.PackageNotFoundError:  # of another distribution: a look at all takes a second
        distributions = metadata.packages_distributions().get(package, ())
        return " ".join(sorted({metadata.version(name) for name in distributions}))


def require(package: str, what: str) -> None:
    """Refuse `what` if a package is not installed.

    Raises `UsageError`: with the extra to install.
    """
    if (message := missing(package, what)) is not None:
        raise UsageError(message)
