"""Pages of the documentation that are made from the code, and links from docs/ to other files of the repository: a hook of MkDocs.

The reference of commands comes from their help, that of Python from the public names, the guarantees from the table of laws in
ARCHITECTURE.md. Files at the top of the repository, configurations and notebooks become pages, so that a link to a file, which
works where the repository is browsed, leads to its page here.
"""

import inspect
import os
import re
from pathlib import Path, PurePosixPath
from typing import Any

import nbformat

import dolma_dask
from dolma_dask import cli
from dolma_dask.options.base import Options, fields_of
from dolma_dask.options.records import RecordOptions
from dolma_dask.pipelines.signatures import notes
from dolma_dask.questions.taggers import show_taggers
from dolma_dask.registry import COMMANDS, IN_PYTHON_ALONE, load

ROOT = Path(__file__).resolve().parents[1]

TOP_FILES = {
    "ARCHITECTURE.md": "architecture.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "benchmarks/LOG.md": "measurements.md",
    "README.md": "index.md",
}
"""Pages outside of docs/, by their place in the site."""

SHOWN = (
    "configs/*.yaml",
    "configs/*.sh",
    "configs/clusters/*.yaml",
    "configs/slurm/*.sbatch",
    "containers/*",
)
"""Files that are shown on one page, `files.md`, under their paths."""

LANGUAGES = {".yaml": "yaml", ".sh": "bash", ".sbatch": "bash"}

NOTEBOOKS = sorted(ROOT.glob("notebooks/*.ipynb"))

COMMAND_NAMES = (*COMMANDS, "completion")

PYTHON_GROUPS = {
    "Look": (
        "schema",
        "histogram",
        "rule_overlap",
        "lengths",
        "Figure",
        "what_if",
        "status",
        "show_cluster",
        "show_tokenizer",
        "estimate",
        "list_taggers",
        "get_tagger",
    ),
    "Modes of rows": (
        "LmOptions",
        "LmVslOptions",
        "FimOptions",
        "SummarizationOptions",
        "SummarizationVslOptions",
        "DpoOptions",
    ),
    "Rules": ("thresholds", "read_thresholds", "duplicates", "listed"),
    "Dask collections": (
        "read_dataframe",
        "read_bag",
        "read_table",
        *sorted({*IN_PYTHON_ALONE, "write_ragged", "write_hdf5"}),
    ),
    "Datasets and results": (
        "Dataset",
        "open_dataset",
        "open_ragged",
        "TokenDataset",
        "torch_dataset",
        "Summary",
    ),
    "Clusters": ("cluster", "cluster_script", "cluster_check"),
}
"""Public names by subject; commands that are verbs come first, and what stands nowhere last."""


def on_config(config: Any) -> Any:
    """List the notebooks below the gallery, and a page for each command below the list of commands."""
    for entry in config.nav:
        if "Gallery" in entry:
            entry["Gallery"] = [entry["Gallery"], *(f"notebooks/{path.stem}.md" for path in NOTEBOOKS)]
        for part in entry.get("Reference", ()):
            if "Commands" in part:
                part["Commands"] = [part["Commands"], *({name: page_of(name)} for name in COMMAND_NAMES)]
    return config


def on_files(files: Any, config: Any) -> Any:
    """Add the pages that are not kept in docs/."""
    from mkdocs.structure.files import File

    made = {"commands.md": commands_page(), "python.md": python_page(), "files.md": files_page()}
    made |= {page_of(name): command_page(name) for name in COMMAND_NAMES}
    made |= {page: (ROOT / path).read_text() for path, page in TOP_FILES.items()}
    for page in ("measurements.md", "changelog.md"):  # long and full of all words
        made[page] = f"---\nsearch: {{exclude: true}}\n---\n{made[page]}"
    for notebook in NOTEBOOKS:
        made |= notebook_page(notebook)
    for shown in ("reports/example.html", "reports/example.png"):
        made[shown] = (ROOT / shown).read_bytes()
    for page, content in made.items():
        files.append(File.generated(config, page, content=content))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Put the table of laws into its place, and turn links to files of the repository into links to their pages."""
    markdown = markdown.replace("<!-- the table of laws of ARCHITECTURE.md -->", laws())
    markdown = markdown.replace("<!-- the table of taggers -->", taggers())
    source = source_of(page.file.src_uri)
    return re.sub(
        r"\]\((?!https?:|mailto:|#|data:)([^)#\s]*)(#[^)\s]*)?\)",
        lambda link: f"]({link_to(link[1], link[2] or '', source, page.file.src_uri)})",
        markdown,
    )


def source_of(page: str) -> str:
    """Return the path in the repository of what a page of the site is made from."""
    named = {target: path for path, target in TOP_FILES.items()}
    return named.get(page, f"docs/{page}")


def link_to(target: str, anchor: str, source: str, page: str) -> str:
    """Return a link from a page of the site to the file that its source names."""
    if page.startswith("notebooks/") or page == "commands.md":
        return target + anchor
    path = os.path.normpath(PurePosixPath(source).parent / target)
    if path.startswith("docs/"):
        return os.path.relpath(path.removeprefix("docs/"), PurePosixPath(page).parent) + anchor
    if path in TOP_FILES:
        return TOP_FILES[path] + anchor
    if path.startswith("reports/"):
        return path + anchor
    if path.startswith("notebooks"):
        return (path.removesuffix(".ipynb") + ".md") if path.endswith(".ipynb") else "gallery.md"
    return f"files.md#{slug_of(path)}"


def slug_of(path: str) -> str:
    """Return the anchor of a file or folder of the repository on the page that shows files."""
    return re.sub(r"[^a-z0-9]+", "-", path.lower()).strip("-")


def escaped(text: str) -> str:
    """Return help text as Markdown: angle brackets, stars and underlines between spaces are themselves."""
    return re.sub(r"([<>|*])", r"\\\1", text)


def laws() -> str:
    """Return the table of laws, with the tests that guard them."""
    _, _, section = (ROOT / "ARCHITECTURE.md").read_text().partition("## Invariants")
    return "\n".join(line for line in section.partition("\n## ")[0].splitlines() if line.startswith("|"))


def taggers() -> str:
    """Return the table of all taggers, by family."""
    rows = show_taggers().taggers
    lines = [
        "| name | unit | attributes | needs | MB per CPU-s | what | other than in the toolkit; where to get what it needs |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in sorted(rows, key=lambda row: (row.family, row.name)):
        speed = "" if row.mb_per_cpu_second is None else f"{row.mb_per_cpu_second:g}"
        names = ", ".join(f"`{one.name}`" for one in row.attributes)
        differs = " ".join(filter(None, (row.differs, row.source)))
        cells = (
            f"`{row.name}`",
            ", ".join(row.units),
            names,
            ", ".join(row.needs),
            speed,
            row.description,
            differs,
        )
        lines.append(f"| {' | '.join(cell if cell.startswith('`') else escaped(cell) for cell in cells)} |")
    return "\n".join(lines)


def page_of(command: str) -> str:
    """Return the path of the page of a command."""
    return f"commands/{slug_of(command)}.md"


def commands_page() -> str:
    """Return the list of commands."""
    helps = {
        **{name: verb.help for name, verb in COMMANDS.items()},
        "completion": "Print what makes a shell complete commands and options.",
    }
    return "\n".join(
        [
            "# Commands\n\nEach has a page, which is made from the command itself: `dolma-dask COMMAND --help` says the same. Every command takes "
            "`--json`, which prints its summary as JSON. Exit status: 0 all done, 1 something failed or was lost, 2 wrong call, 130 stopped.\n",
            "| command | |\n|---|---|",
            *(f"| [`{name}`]({page_of(name)}) | {escaped(helps[name])} |" for name in COMMAND_NAMES),
            "",
        ]
    )


def command_page(name: str) -> str:
    """Return the page of one command."""
    if name not in COMMANDS:
        return as_page(name, cli.make_app()[name], "")
    app = cli.make_app(name)
    for word in name.split():
        app = app[word]
    return as_page(name, app, notes(COMMANDS[name].load()))


def as_page(name: str, app: Any, more: str) -> str:
    """Return the help of a command as Markdown, its example as code."""
    text = app.generate_docs(heading_level=1, usage_name=f"dolma-dask {name}")
    _, _, body = text.partition("\n")
    lines = [line if line.startswith(("```", "dolma-dask")) else marked(line) for line in body.splitlines()]
    body = re.sub(r"^Example: (.*)$", r"```bash\n\1\n```", "\n".join(lines), flags=re.MULTILINE)
    return f"# `{name}`\n{body}\n\n{escaped(more)}\n"


def marked(line: str) -> str:
    """Return a line of help with options as code, as they come, and all else escaped."""
    if line.startswith("Example:"):
        return line
    option, text = re.match(r"(\* `[^`]*`: |\*\*[^*]*\*\*:?)?(.*)", line, re.DOTALL).groups()  # type: ignore[union-attr]
    text, ends = re.match(
        r"(.*?)((?: \*\*\[required\]\*\*| \*\[(?:choices|default): .*?\]\*)*)$", text, re.DOTALL
    ).groups()  # type: ignore[union-attr]
    return f"{option or ''}{escaped(text)}{ends}"


def python_page() -> str:
    """Return a page with every public name, made from the docstrings."""
    placed = {name for names in PYTHON_GROUPS.values() for name in names}
    verbs = [name for name in (verb.replace("-", "_") for verb in COMMANDS) if name in dolma_dask.__all__]
    groups = {"Verbs": [name for name in verbs if name not in placed]} | {
        title: [name for name in names if name in dolma_dask.__all__]
        for title, names in PYTHON_GROUPS.items()
    }
    groups["More"] = [
        name for name in dolma_dask.__all__ if not any(name in names for names in groups.values())
    ]
    parts = [
        "# Python\n\n`import dolma_dask as dk`: every public name. This page is made from the docstrings.\n"
    ]
    for title, names in groups.items():
        if names:
            parts += [f"## {title}\n", *map(python_section, names)]
    return "\n".join([*parts, "## Common options\n", common_options()])


def common_options() -> str:
    """Return a table of the options that verbs share."""
    return "\n".join(["Verbs take these by name, as far as they fit.", "", options_table(RecordOptions)])


def options_table(kind: type[Options]) -> str:
    """Return a table of options with their help."""
    rows = [f"| `{field.name}` | {escaped(field.option.help)} |" for field in fields_of(kind)]
    return "\n".join(["| option | |", "|---|---|", *rows, ""])


def python_section(name: str) -> str:
    """Return the directive for one name; its heading is what a user types."""
    is_command = hasattr(load(dolma_dask._EXPORTS[name]), "command")  # the stub has its arguments
    path = f"dolma_dask.{name}" if is_command else dolma_dask._EXPORTS[name].replace(":", ".")
    options = [f'heading: "dk.{name}"', f'toc_label: "{name}"']
    value, more = load(dolma_dask._EXPORTS[name]), ""
    if inspect.isclass(value) and issubclass(value, Options):
        options.append("members: false")
        more = f"\n{options_table(value)}"  # fields of its bases too, which the directive does not show
    elif inspect.isclass(value):
        options.append('members: null\n      filters: ["!^_"]')
    return f"::: {path}\n    options:\n      " + "\n      ".join(options) + f"\n{more}"


def files_page() -> str:
    """Return a page with the configuration files of the repository as they are."""
    parts = [
        "# Configuration files\n\nThe files in `configs/` and `containers/`, as they are. Copy what fits, and change what differs.\n"
    ]
    folder = ""
    for path in sorted({path for pattern in SHOWN for path in ROOT.glob(pattern)}):
        name = path.relative_to(ROOT).as_posix()
        if (above := name.rpartition("/")[0]) != folder:
            folder = above
            parts.append(f"## {folder}/ {{ #{slug_of(folder)} }}\n")
        language = LANGUAGES.get(path.suffix, "text")
        parts.append(
            f"### {name} {{ #{slug_of(name)} }}\n\n````{language}\n{path.read_text().rstrip()}\n````\n"
        )
    return "\n".join(parts)


def notebook_page(path: Path) -> dict[str, str | bytes]:
    """Return a notebook as a page, with the outputs that are stored in it, and its pictures."""
    from nbconvert import MarkdownExporter

    text, found = MarkdownExporter().from_filename(str(path))
    text = re.sub(r"<style.*?</style>|<script.*?</script>", "", text, flags=re.DOTALL)
    pictures = {name: f"{path.stem}_{name}" for name in found.get("outputs", {})}
    cells = nbformat.read(path, as_version=4).cells
    for name, unique in pictures.items():
        cell, output = map(int, re.findall(r"\d+", name))
        shown = cells[cell].outputs[output].metadata.get("image/png", {})
        alt = re.sub(r"([\[\]\\])", r"\\\1", shown.get("alt", "picture"))
        text = text.replace(f"![png]({name})", f"![{alt}]({unique})")
    made = {f"notebooks/{unique}": found["outputs"][name] for name, unique in pictures.items()}
    return {f"notebooks/{path.stem}.md": text, **made}
