"""Every exception that dolma_dask raises on purpose, in one tree.

::

    DolmaDaskError
        UsageError                 the call is wrong: exit status 2
            ExpressionError        a `where` expression cannot be parsed or names unknown columns
        DataError                  the data is wrong: exit status 1
            BadRecordError         one line of a file is not a valid record
            BadRecordBudgetError   more bad records than `max_bad_fraction` allows
            CorruptFileError       a file is truncated, damaged, or not what its name says
            SourceChangedError     a file changed while it was read
            EngineDiffersError     a faster engine gave other results than the definition
            SchemaError            a column or key has another type than was announced
            AlignmentError         an attribute file does not line up with its document file
                MissingAttributesError
                StaleAttributesError
        StoreError                 a store of files behind a URL did not do what it was asked: exit status 1
            StoreAccessError       it refuses the credentials, there is no such bucket, or a folder may not be written
            StoreUnreachableError  it does not answer
            DiskFullError          it has no space left
        ClusterError               workers cannot be had, or were lost for good: exit status 1
        TrialError                 a stage failed on the sample of an estimate: exit status 1
        StageError                 a verb ended with failed shards: exit status 1
        InterruptedStageError      Ctrl-C: what is finished is kept, the same command goes on: exit status 130

Each takes one message and keyword-only details, so that it can be pickled back from a worker.
"""

from collections.abc import Sequence
from dataclasses import dataclass


class DolmaDaskError(Exception):
    """Base of all errors; ``details`` holds what a program may want to look at."""

    exit_status = 1

    def __init__(self, message: str, **details: object) -> None:
        super().__init__(message)
        self.details = details

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild, (type(self), str(self), self.details)


def message_of(error: Exception) -> str:
    """Return what people are told of an error: of the system's in one line what was refused, where, and what to do."""
    if not isinstance(error, OSError):
        return str(error)
    paths = " -> ".join(str(path) for path in (error.filename, error.filename2) if path is not None)
    what = error.strerror or " ".join(str(error).split()) or "the system gave no reason"
    look_at = (
        "the path, its permissions and the space that is left" if paths else "the disk and the connection"
    )
    return f"{f'{paths}: ' if paths else ''}{what}. Look at {look_at}, then run the same command again: it does only what is left."


def _rebuild(cls: type[DolmaDaskError], message: str, details: dict[str, object]) -> DolmaDaskError:
    return cls(message, **details)


class UsageError(DolmaDaskError):
    """The call or its options are wrong; nothing was read or written."""

    exit_status = 2


class ExpressionError(UsageError):
    """A ``where`` expression cannot be parsed, or names a column that no row has."""


class DataError(DolmaDaskError):
    """The data is not what it should be."""


class BadRecordError(DataError):
    """One line is not a valid record; the message names URL, row, byte offset and what was expected."""


class BadRecordBudgetError(DataError):
    """Quarantine was asked for, but more records are bad than ``max_bad_fraction`` allows."""


class CorruptFileError(DataError):
    """A file is truncated, damaged, or its content does not match its suffix."""


class SourceChangedError(DataError):
    """An input file has another size or time stamp after reading than before."""


class EngineDiffersError(DataError):
    """A faster engine gave other results than the one that defines them."""


class SchemaError(DataError):
    """A column or attribute key has another type than announced."""


class AlignmentError(DataError):
    """An attribute file does not line up row by row with its document file."""


class MissingAttributesError(AlignmentError):
    """A document file has no attribute file."""


class StaleAttributesError(AlignmentError):
    """The attributes were made from other text than the documents hold now, or the file is not the one that was written."""


class StoreError(DolmaDaskError):
    """A store of files behind a URL did not do what it was asked, again and again; another attempt may succeed."""


class StoreAccessError(StoreError):
    """A store refuses the credentials, or has no such bucket; or a folder may not be written."""


class StoreUnreachableError(StoreError):
    """A store does not answer; it was given time to come back."""


class DiskFullError(StoreError):
    """No space is left where a file is written, or no more is allowed."""


class ClusterError(DolmaDaskError):
    """Workers of a cluster do not come, or do not stay; what is finished is kept."""


@dataclass(frozen=True)
class Failure:
    """One shard that a stage could not finish.

    Attributes
    ----------
    shard : str
        Path of the shard relative to its dataset.
    error : str
        Name of the exception's class.
    message : str
        Its text.
    """

    shard: str
    error: str
    message: str


class StageError(DolmaDaskError):
    """A stage ended with failed shards; ``failures`` lists them all."""

    def __init__(self, message: str, *, failures: Sequence[Failure] = (), **details: object) -> None:
        super().__init__(message, failures=tuple(failures), **details)
        self.failures = tuple(failures)


class TrialError(DolmaDaskError):
    """A stage failed on the sample of an estimate; nothing real was written."""


class InterruptedStageError(DolmaDaskError):
    """The user stopped a stage; finished shards are kept."""

    exit_status = 130
