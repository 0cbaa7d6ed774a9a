"""What a small network gains from a teacher, seed by seed.

For each recipe, the network of the recipe is trained once and is the teacher. Then a
student of an eighth of its width trains alone and with each loss: initial weights,
order of the images and augmentation are those of the seed. The last line printed is one
JSON object.

    python -m benchmarks.distillation --data_root=data --work_dir=distillation
    python -m benchmarks.distillation --data_root=data --recipes=omniglot --seeds=1
"""

import os

from benchmarks import options, paired
from plsc_tf.flags.option import option

LOSSES = "embedding", "relational", "logits"
STUDENT = "--model_options=width=8", "--emb_size=64", "--dropout=0"


class DistillationCase(paired.PairedCase):
    """Which trainings are compared."""

    recipes: tuple[str, ...] = option(
        ("omniglot", "lfw112"), "recipes", choices="omniglot lfw112"
    )
    student_epochs: int = option(4, "epochs of each student", lower=1)
    losses: tuple[str, ...] = option(
        LOSSES, "compared with no teacher", choices=" ".join(LOSSES)
    )


def main(case):
    """Runs all trainings and prints the table and the figures."""

    def variants(recipe, folder):
        paired.train(case, recipe, "teacher", [], case.first_seed, folder)
        name = f"{recipe}-teacher-{case.first_seed}"
        teacher = f"--teacher={os.path.abspath(os.path.join(folder, name))}"
        student = [*STUDENT, f"--num_epochs={case.student_epochs}"]
        taught = {
            loss: [*student, teacher, f"--distill={loss}"] for loss in case.losses
        }
        return {"alone": student} | taught

    paired.run(case, "distillation", variants)


if __name__ == "__main__":
    options.run(main, DistillationCase, __doc__)
