"""Whether networks that are trained on aligned faces of LFW are better, seed by seed.

`plsc_tf.align` aligns the images of `lfw112`; an image in which it finds no face stays
as it is. Then `lfw112.cfg` is trained and verified on the images as they are and on the
aligned ones. The last line printed is one JSON object.

    python -m benchmarks.aligned --data_root=data --work_dir=aligned
"""

import os
import pathlib
import shutil
import subprocess
import sys

from benchmarks import children, options, paired
from plsc_tf.flags.option import option


class AlignedCase(paired.PairedCase):
    """Which trainings are compared."""

    recipes: tuple[str, ...] = option(("lfw112",), "recipe", choices="lfw112")


def main(case):
    """Aligns the images, runs all trainings and prints the table and the figures."""

    def variants(recipe, folder):
        data, _ = paired.RECIPES[recipe]
        aligned = pathlib.Path(folder, "faces").absolute()
        align(pathlib.Path(case.data_root, data).absolute(), aligned)
        return {"as they are": [], "aligned": [f"--dataset_dir={aligned}"]}

    paired.run(case, "aligned", variants)


def align(source, aligned):
    """Aligns a data set; copies the images without a face, and the lists."""
    for part in ("train", "val"):
        command = [sys.executable, "-m", "plsc_tf.align"]
        command += [f"--images={source / part}", f"--output_dir={aligned / part}"]
        subprocess.run(command, cwd=children.ROOT, check=True, stdout=sys.stderr)
    for path in source.rglob("*"):
        copy = aligned / path.relative_to(source)
        if path.is_file() and not copy.exists():
            os.makedirs(copy.parent, exist_ok=True)
            shutil.copy(path, copy)


if __name__ == "__main__":
    options.run(main, AlignedCase, __doc__)
