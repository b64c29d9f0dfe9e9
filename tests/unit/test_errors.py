"""The tree of exceptions: what a program can catch, and what comes back from a worker."""

import inspect
import pickle

import pytest

from dolma_dask import errors
from dolma_dask.errors import (
    AlignmentError,
    BadRecordBudgetError,
    BadRecordError,
    CorruptFileError,
    DataError,
    DolmaDaskError,
    ExpressionError,
    Failure,
    InterruptedStageError,
    MissingAttributesError,
    SchemaError,
    SourceChangedError,
    StageError,
    StaleAttributesError,
    StoreAccessError,
    StoreError,
    StoreUnreachableError,
    UsageError,
)

ALL = [item for _, item in inspect.getmembers(errors, inspect.isclass) if issubclass(item, Exception)]


@pytest.mark.parametrize("cls", ALL)
def test_every_error_comes_back_from_a_worker(cls: type[DolmaDaskError]) -> None:
    error = cls("what, where, expected, next", url="s3://b/a", row=7)
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is cls
    assert str(again) == "what, where, expected, next"
    assert again.details == error.details
    assert again.details["url"] == "s3://b/a"
    assert again.details["row"] == 7
    assert isinstance(again, DolmaDaskError)


def test_failures_come_back_too() -> None:
    failure = Failure("a.jsonl", "DataError", "why")
    again = pickle.loads(pickle.dumps(StageError("1 of 2 failed", failures=[failure], summary="s")))
    assert again.failures == (failure,)
    assert again.details == {"failures": (failure,), "summary": "s"}
    assert StageError("none").failures == ()


def test_details_are_keywords_only() -> None:
    with pytest.raises(TypeError):
        DataError("message", "a.jsonl")  # type: ignore[call-arg]


@pytest.mark.parametrize(
    "cls, parent, status",
    [
        (UsageError, DolmaDaskError, 2),
        (ExpressionError, UsageError, 2),
        (DataError, DolmaDaskError, 1),
        (BadRecordError, DataError, 1),
        (BadRecordBudgetError, DataError, 1),
        (CorruptFileError, DataError, 1),
        (SourceChangedError, DataError, 1),
        (SchemaError, DataError, 1),
        (AlignmentError, DataError, 1),
        (MissingAttributesError, AlignmentError, 1),
        (StaleAttributesError, AlignmentError, 1),
        (StoreError, DolmaDaskError, 1),
        (StoreAccessError, StoreError, 1),
        (StoreUnreachableError, StoreError, 1),
        (StageError, DolmaDaskError, 1),
        (InterruptedStageError, DolmaDaskError, 130),
    ],
)
def test_the_tree_and_the_exit_status(cls: type[DolmaDaskError], parent: type, status: int) -> None:
    assert cls.__bases__ == (parent,)
    assert cls.exit_status == status


def test_the_tree_in_the_docstring_is_complete() -> None:
    assert errors.__doc__ is not None
    assert [cls.__name__ for cls in ALL if cls.__name__ not in errors.__doc__] == []
