"""pyarrow does without pandas until pandas is imported; then it knows series again."""

import subprocess
import sys

import pytest

SERIES = """
import sys
import dolma_dask.formats
import pyarrow as pa
assert pa.array([1, None]).null_count == 1
assert "pandas" not in sys.modules
import numpy as np
import pandas as pd
assert pa.array(pd.Series([1.0, np.nan])).null_count == 1, "a missing value of a series is a null"
assert pa.Table.from_pandas(pd.DataFrame({"a": [1, 2]})).to_pandas()["a"].sum() == 3
assert not any(type(hook).__name__ == "_Watch" for hook in sys.meta_path)
"""
FRAME = "import dolma_dask.formats, pyarrow as pa; assert len(pa.table({'a': [1]}).to_pandas()) == 1"


@pytest.mark.parametrize("code", [SERIES, FRAME], ids=["series", "frame"])
def test_pandas_is_known_once_it_is_needed(code):
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_series_is_no_sequence_where_pyarrow_was_told_that_there_is_no_pandas():
    """As another thread sees it that comes while pyarrow imports pandas."""
    code = """if True:
        import sys
        import pyarrow as pa

        class Hidden:
            def find_spec(self, name, path=None, target=None):
                if name == "pandas":
                    raise ImportError(name)

        sys.meta_path.insert(0, Hidden())
        pa.array([0])
        del sys.meta_path[0]
        import pandas as pd
        from dolma_dask.frames.partitions import table_of

        print(table_of(pd.DataFrame({"n": [1.5, None]}, index=[5, 6]), "here").to_pydict())
    """
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "{'n': [1.5, None]}\n"
