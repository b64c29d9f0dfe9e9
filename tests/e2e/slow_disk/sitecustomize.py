"""For processes that have this folder in PYTHONPATH: every fsync takes longer, so that there are moments worth killing at."""

import os
import time

_fsync = os.fsync


def _slow_fsync(descriptor):
    time.sleep(float(os.environ["SLOW_DISK_S"]))
    _fsync(descriptor)


os.fsync = _slow_fsync
