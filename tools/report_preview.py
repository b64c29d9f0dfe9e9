"""Make reports/example.html and its picture from the data of `make demo`: `make report-preview`."""

import shutil
import subprocess
import sys
from pathlib import Path

import dolma_dask as dk

REPORTS = Path(__file__).parents[1] / "reports"
SIZE = (1280, 1500)
"""Pixels of the picture: the first chapters."""


def main(demo: Path) -> None:
    """Write the page and the picture of the data in a folder."""
    page = REPORTS / "example.html"
    tokens = [str(demo / name) for name in ("tokens", "h5")]
    print(dk.report(str(demo / "v1"), to=str(page), tokens=tokens, title="dolma_dask demo", overwrite=True))
    browser = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if browser is None:
        sys.exit("no chromium found; expected one for the picture. Install it with: apt-get install chromium")
    options = (
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--hide-scrollbars",
        "--disable-background-networking",
    )
    picture = page.with_suffix(".png")
    size = f"--window-size={SIZE[0]},{SIZE[1]}"
    subprocess.run(
        [browser, *options, size, f"--screenshot={picture}", page.as_uri()], check=True, capture_output=True
    )
    print(f"{picture}: {picture.stat().st_size:,} bytes")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "demo").absolute())
