"""What a pipeline came to: a row per stage, and the failure that stopped it."""

import html
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from dolma_dask.display import counted, html_table, text_table

State = Literal[
    "done", "done before", "failed", "left out", "not reached", "would run", "waits", "nothing to do"
]

_HEADING = ("stage", "documents", "text MB", "tokens", "seconds", "state")
_DOCUMENTS = ("documents_out", "documents_in", "documents")
_TEXT = ("text_bytes_out", "text_bytes", "text_bytes_in")


@dataclass(frozen=True)
class StageOutcome:
    """What one stage came to.

    Attributes
    ----------
    name, verb : str
        Of the stage.
    state : State
        What happened.
    line : int
        Where it stands in the file.
    summary : object
        What the verb returned, if it came that far.
    message : str
        Why it failed, or what it waits for.
    """

    name: str
    verb: str
    state: State
    line: int = 0
    summary: Any = None
    message: str = ""

    def cells(self) -> tuple[str, ...]:
        """Return its row of the table."""
        counts: Mapping[str, float] = getattr(self.summary, "counts", {})
        documents, text = _first(counts, _DOCUMENTS), _first(counts, _TEXT)
        beside = (other.counts for _, other in getattr(self.summary, "others", ()))  # token files of a mix
        tokens = next((known["tokens"] for known in (counts, *beside) if "tokens" in known), None)
        seconds = "" if self.summary is None else f"{self.summary.seconds:,.1f}"
        return (
            self.name if self.name == self.verb else f"{self.name} ({self.verb})",
            "" if documents is None else f"{documents:,.0f}",
            "" if text is None else f"{text / 1e6:,.2f}",
            "" if tokens is None else f"{tokens:,.0f}",
            seconds,
            self._state(),
        )

    def _state(self) -> str:
        if self.state == "would run" and self.summary is not None:
            return f"would work on {counted(len(self.summary.planned), 'shard')}, {self.summary.skipped:,} done before"
        if self.state == "waits":
            return self.message
        lost = ", rows lost" if getattr(self.summary, "lost", False) else ""
        return self.state.upper() if self.state == "failed" else f"{self.state}{lost}"

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON-able values."""
        return {
            "name": self.name,
            "verb": self.verb,
            "line": self.line,
            "state": self.state,
            "message": self.message,
            "summary": None if self.summary is None else self.summary.to_json(),
        }


def _first(counts: Mapping[str, float], names: tuple[str, ...]) -> float | None:
    return next((counts[name] for name in names if name in counts), None)


@dataclass(frozen=True, repr=False)
class PipelineSummary:
    """The outcome of a pipeline; prints as a table.

    Attributes
    ----------
    file : str
        The pipeline.
    stages : tuple of StageOutcome
        All of them, in order.
    seconds : float
        Wall time.
    notes : tuple of str
        What a person should know.
    """

    file: str
    stages: tuple[StageOutcome, ...]
    seconds: float = 0.0
    notes: tuple[str, ...] = ()
    verb: str = "run"

    @property
    def exit_status(self) -> int:
        """0 if everything is done, 1 if a stage failed or rows were lost."""
        lost = any(getattr(stage.summary, "exit_status", 0) for stage in self.stages)
        return 1 if lost or any(stage.state == "failed" for stage in self.stages) else 0

    @property
    def failed(self) -> StageOutcome | None:
        """The stage that stopped it."""
        return next((stage for stage in self.stages if stage.state == "failed"), None)

    @property
    def fresh(self) -> bool:
        """Whether anything was left to do."""
        return any(stage.state in ("done", "failed", "would run", "waits") for stage in self.stages)

    def to_json(self) -> dict[str, Any]:
        """Return the summary as JSON-able values."""
        return {
            "verb": self.verb,
            "file": self.file,
            "stages": [stage.to_json() for stage in self.stages],
            "seconds": round(self.seconds, 3),
            "notes": list(self.notes),
            "exit_status": self.exit_status,
        }

    def _table(self) -> list[tuple[str, ...]]:
        return [_HEADING, *(stage.cells() for stage in self.stages)]

    def _remarks(self) -> list[str]:
        """Return what stands below the table: notes of the stages, each once, and of the whole."""
        found: dict[str, list[str]] = {}
        for stage in self.stages:
            for note in getattr(stage.summary, "notes", ()):
                found.setdefault(note, []).append(stage.name)
        return [*(f"{', '.join(names)}: {note}" for note, names in found.items()), *self.notes]

    def __str__(self) -> str:
        lines = [f"run {self.file}", *(f"  {line}" for line in text_table(self._table()))]
        lines += [f"  note: {note}" for note in self._remarks()]
        failed = self.failed
        if failed is not None:
            lines.append(f"  FAILED {failed.name} (line {failed.line}): {failed.message}")
            lines += [f"    {line}" for line in str(failed.summary or "").splitlines()]
        return "\n".join(lines)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        notes = "".join(f"<p>{html.escape(note)}</p>" for note in self._remarks())
        failed = self.failed
        wrong = f"<p>FAILED {html.escape(failed.name)}: {html.escape(failed.message)}</p>" if failed else ""
        return f"{html_table(f'run {self.file}', self._table())}{notes}{wrong}"
