"""What the workers run: a module of this package, or a script."""

import os
import sys

# Options of the group `cluster` that only the workers' program acts on.
_OF_WORKERS = (
    "join_timeout",
    "worker_timeout",
    "step_timeout",
    "communication",
    "gradient_bucket_mb",
    "gradient_dtype",
)


def split(argv):
    """Returns (arguments of the launcher, words of the workers' program).

    They are separated by `--`; as in Paddle's launcher, a script needs none: everything
    from the first word that ends in .py is the program.

    Args:
        argv: the arguments after the launcher's name.
    """
    if "--" in argv:
        place = argv.index("--")
        return argv[:place], argv[place + 1 :]
    for place, word in enumerate(argv):
        if word.endswith(".py") and not word.startswith("-"):
            return argv[:place], argv[place:]
    return argv, []


def check_own(argv):
    """Refuses arguments of the launcher that belong to the workers' program.

    In a flag file they may stand, because one file serves launcher and training.

    Raises:
        ValueError: there is one.
    """
    for word in argv:
        name = word.lstrip("-").partition("=")[0]
        if word.startswith("-") and name in _OF_WORKERS:
            raise ValueError(
                f"{name} is an option of the training, not of the launcher: write it "
                "after the --."
            )


def command(module, words):
    """Returns the command line of a worker.

    Args:
        module: what is run when the first of the words is no script.
        words: the script and its arguments, or only arguments.

    Raises:
        FileNotFoundError: there is no such script.
    """
    if words and words[0].endswith(".py"):
        if not os.path.isfile(words[0]):
            raise FileNotFoundError(f"there is no script {words[0]!r} to launch")
        return [sys.executable, *words]
    return [sys.executable, "-m", module, *words]
