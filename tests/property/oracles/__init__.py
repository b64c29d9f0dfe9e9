"""The published taggers again, in plain Python: slow, and as close to their definitions as can be; a file per family, with its table ``ORACLES``."""
