"""Lets comparisons use the oracles of tests/property: `import redpajama_oracle`."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "property"))
