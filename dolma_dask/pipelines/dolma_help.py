"""Help on the commands of the Dolma toolkit: their options, and what each does here."""

import textwrap

from dolma_dask.options.base import OWN as OWN_OPTIONS
from dolma_dask.pipelines.dolma_calls import BY_US, OWN
from dolma_dask.pipelines.dolma_options import CONFIGS
from dolma_dask.pipelines.dolma_rows import leaves
from dolma_dask.pipelines.signatures import command_of, help_in_words, spellings
from dolma_dask.registry import load

_FILES = {"mix": "mixer.yaml"}
"""Names of files in examples, as the toolkit has them."""


def help_of(name: str) -> str:
    """Return the options of a command of the toolkit, with what each does here."""
    head = f"Usage: dolma-dask [-c FILE] {name} [OPTIONS]\n\nExample: dolma-dask -c {_FILES.get(name, f'{name}.yaml')} {name}\n\nOptions of the Dolma toolkit's {name}, also in a file in YAML or JSON, and what they do here:\n"
    lines = [
        f"--{leaf.name}  {leaf.kind}, {leaf.shown_default}\n{_filled(leaf.row.here)}"
        for leaf in leaves(CONFIGS[name])
    ]
    verb = load(OWN[name])
    names = spellings(verb)
    own = [
        f"{names[field.name]}\n{_filled(help_in_words(field, names))}"
        for field in command_of(verb).fields
        if name == "mix" and field.option.group == OWN_OPTIONS and names[field.name].startswith("--")
    ]
    more = f"\nOptions of ours count too, such as --scheduler and --on-bad-record: dolma-dask {BY_US[name]} --help"
    return "\n".join([head, *lines, *own]) + more * (name != "list")


def _filled(text: str) -> str:
    return textwrap.fill(text, 96, initial_indent="    ", subsequent_indent="    ", break_on_hyphens=False)
