"""The launcher with little patience: `python -m tests.launch.driver ARGUMENTS`."""

import os
import sys

from plsc_tf import launch
from plsc_tf.parallel.launch.supervise import Patience

if __name__ == "__main__":
    patience = Patience(notice_s=1.0, grace_s=1.0)
    launch.run(sys.argv[1:], dict(os.environ), patience)
