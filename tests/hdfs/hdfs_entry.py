"""PLSC's scripts that copy models to and from HDFS, run by the driver."""

import contextlib
import os
import pathlib
import sys

from tests.seeds import plsc_scripts
from tests.seeds.plsc_folder import make_train_data, modules, results


def run(name, uri, directory, folder):
    """Runs a script of PLSC's manual with the addresses of a real HDFS.

    Args:
        name: of the script in `plsc_scripts`.
        uri: address of the NameNode.
        directory: on HDFS, for "some_dir".
        folder: the working directory; gets train_data/ and saved_model/.

    Returns:
        results.json of the run.
    """
    os.makedirs(os.path.join(folder, "saved_model"))
    make_train_data(pathlib.Path(folder), [number % 5 for number in range(8)])
    script = getattr(plsc_scripts, name)
    script = script.replace("you_hdfs_addr", uri).replace("some_dir", directory)
    # As many replicas as the driver's other trainings: TensorFlow cannot change it.
    small = modules(num_replicas=2, batch_size=2)
    before = os.getcwd()
    os.chdir(folder)
    sys.modules.update(small)
    try:
        # Standard output is where the driver answers.
        with contextlib.redirect_stdout(sys.stderr):
            exec(compile(script, name, "exec"), {"__name__": "__main__"})  # noqa: S102
    finally:
        for module in small:
            del sys.modules[module]
        os.chdir(before)
    saved = "saved_model" if name == "UPLOAD" else "output"
    return results(os.path.join(folder, saved))
