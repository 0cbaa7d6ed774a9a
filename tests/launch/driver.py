"""The launcher with little patience: `python -m tests.launch.driver ARGUMENTS`."""

import os
import sys

from plsc_tf import launch

if __name__ == "__main__":
    launch.run(sys.argv[1:], dict(os.environ), notice_s=1.0, grace_s=1.0)
