"""Lets the laws of this folder share an oracle: `import json_oracle` finds the file beside them."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
