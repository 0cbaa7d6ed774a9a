"""Disks that are soon full: small ones in memory."""

import contextlib
import os
import shutil
import subprocess

import pytest


@contextlib.contextmanager
def mounted(folder, size):
    """Mounts a tmpfs of a size such as 400k; skips the test where it may not."""
    if os.geteuid() != 0 or not shutil.which("mount"):
        pytest.skip("only root can mount a small tmpfs")
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)]
    if (done := subprocess.run(mount, capture_output=True, text=True)).returncode:
        pytest.skip(f"no tmpfs can be mounted here: {done.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)
