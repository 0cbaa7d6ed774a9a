"""The commands' side of the options: settings from arguments, help and errors.

    if __name__ == "__main__":
        cli.main(train, groups=cli.ALL, doc=__doc__)

Nothing here imports TensorFlow, so that `--help` and errors about options are instant.
"""

import importlib
import logging
import os
import pkgutil
import re
import sys
from collections.abc import Callable, Sequence

from absl import flags

from plsc_tf.hints import did_you_mean
from plsc_tf.options import effects
from plsc_tf.options.flagfiles import Assignment, read_flagfile, write_flags
from plsc_tf.options.help import help_text
from plsc_tf.options.other_systems import (
    fastnn_assumptions,
    ignored_name,
    nearest_option,
    unknown_option,
)
from plsc_tf.options.settings import ALL, Settings, known_options, select
from plsc_tf.storage import oss

__all__ = ["ALL", "UsageError", "help_text", "main", "parse", "write_flags"]

# The options that open a trained model, of all commands that use one.
TRAINED_MODEL = (
    *("preprocessing_name", "image_shape", "num_replicas", "seed", "ema_in_use"),
    *("model_save_dir", "checkpoint_dir", "ckpt_file_name", "fs_ugi"),
)
PIPELINE = ("num_parallel_batches", "prefetch_buffer_size", "num_preprocessing_threads")
TRACEBACK_VARIABLE = "PLSC_TF_TRACEBACK"
_HELP = ("help", "helpfull", "helpshort", "h", "?")
# What TensorFlow wraps around the message of an error in a graph: where the operation
# was built, "{{function_node ...}} ", " [[...]]" and " [Op:ReadFile]".
_TENSORFLOW_NOISE = re.compile(
    r"^Graph execution error:\n|^Detected at node .*\n|^  File \".*\n|"
    r"\{\{[^{}]*\}\}\s*|^\s*\[\[.*$|\s*\[Op:\w+\](\s*name:\s*\S*)?$|^\s*\n",
    re.MULTILINE,
)


class UsageError(ValueError):
    """The command line or a flag file is wrong; nothing was started."""


def main(
    function: Callable[[Settings], None],
    groups: Sequence[str] = ALL,
    doc: str | None = None,
    argv: Sequence[str] | None = None,
) -> None:
    """Runs a command and ends the process with its exit status.

    0: done, 1: the command failed, 2: wrong options, 74: the training is done, but its
    last weights could not be saved (on_save_error=continue), 76: another worker of the
    cluster failed, 130: interrupted. Errors that a user can act on are printed without
    a traceback; PLSC_TF_TRACEBACK=1 in the environment shows it.

    Args:
        function: called with the `Settings`, nothing else.
        groups: names of the option groups and options that the command uses, see
            `plsc_tf.options.settings.select`.
        doc: description of the command, for `--help`.
        argv: arguments after the program's name; None: those of the process.
    """
    argv = sys.argv[1:] if argv is None else argv
    try:
        settings = parse(argv, groups, doc)
    except UsageError as error:
        _report(error, "--help lists the options.")
        sys.exit(2)
    set_up_logging()
    effects.tell(settings, groups=groups)
    effects.log_assumptions(settings)
    try:
        function(settings)
    except KeyboardInterrupt:
        sys.stderr.write("plsc_tf: interrupted\n")
        sys.exit(130)
    except UsageError as error:
        _report(error, "--help lists the options.")
        sys.exit(2)
    except Exception as error:
        if not is_for_users(error) or os.environ.get(TRACEBACK_VARIABLE) == "1":
            raise
        _report(error, f"({TRACEBACK_VARIABLE}=1 shows where it happened.)")
        if hasattr(error, "exit_status"):
            # TensorFlow, ending orderly, may wait for the workers that are gone.
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(error.exit_status)
        sys.exit(1)
    sys.exit(0)


def parse(
    argv: Sequence[str], groups: Sequence[str] = ALL, usage: str | None = None
) -> Settings:
    """Returns the settings of flag files and a command line.

    Flag files are read first, in the order given; options on the command line win,
    wherever they stand.

    Args:
        argv: the arguments after the program's name.
        groups: as of `main`. Other options are accepted in flag files, where a
            training's file serves every command, but not on the command line.
        usage: description of the command, for `--help`.

    Raises:
        UsageError: with one line that says what is wrong where, and what to write.
        SystemExit: status 0, after `--help` was printed.
    """
    if any(item.lstrip("-") in _HELP and item.startswith("-") for item in argv):
        sys.stdout.write(help_text(groups, usage))
        sys.exit(0)
    try:
        return _read_settings(argv, groups)
    except (ValueError, OSError) as error:
        raise UsageError(_message(error)) from error


def _read_settings(argv, groups):
    values, line = {}, {}
    used = {item.name for item in select(groups)}
    for assignment in _read_arguments(argv):
        if assignment.name == "flagfile":
            if not assignment.value:
                raise ValueError("expected --flagfile=<path>, received no path")
            values |= dict(map(_read, read_flagfile(assignment.value)))
            continue
        name, value = _read(assignment)
        if name not in used and not ignored_name(name):
            raise ValueError(f"--{name} has no effect on this command; leave it out")
        line[name] = value
    if "batch_size" in line:
        # The files' global_batch_size would decide, and the command line wins.
        values.pop("global_batch_size", None)
    values |= line
    return Settings.build({**fastnn_assumptions(values), **values}, values)


def _read_arguments(arguments):
    """Yields the assignments: `--name=value`, `--name value`, `--name`, `--noname`."""
    known, items, before = known_options(), iter(arguments), ""
    for item in items:
        name, equals, value = item.lstrip("-").partition("=")
        if not item.startswith("-") or not name:
            raise ValueError(_stray(item, before))
        before = item
        if not equals:
            switch = name in known and known[name].boolean
            takes = name in known or name == "flagfile" or ignored_name(name)
            value = next(items, None) if takes and not switch else None
        yield Assignment(name, value, "")


def _read(assignment):
    """Returns (option name, checked value) of an assignment."""
    known = known_options()
    name, text = assignment.name, assignment.value
    try:
        if ignored_name(name):
            return ignored_name(name), text
        if text is None and name.startswith("no") and name not in known:
            if name[2:] in known and known[name[2:]].boolean:
                name, text = name[2:], "false"
        if name not in known:
            raise ValueError(unknown_option(name, known))
        item = known[name]
        if text is None and not item.boolean:
            raise ValueError(f"'{name}' needs a value: --{name}={item.expected()}")
        return item.name, item.parse("true" if text is None else text)
    except ValueError as error:
        origin = f"{assignment.origin}: " if assignment.origin else ""
        raise ValueError(f"{origin}{error}") from None


def _stray(word, before):
    """Returns the sentence about an argument that belongs to no option."""
    known = known_options()
    name, equals, value = word.partition("=")
    flag = before.lstrip("-").partition("=")[0]
    if flag in known and known[flag].secret:
        return f"unexpected argument after --{flag}=... (not shown); quote its value"
    if before.lstrip("-") in known and known[flag].boolean:
        return f"unexpected argument '{word}'; did you mean {before}={word}?"
    if not equals and word.endswith((".cfg", ".flags")):
        return f"unexpected argument '{word}'; did you mean --flagfile={word}?"
    best = nearest_option(name, known)
    if best:
        value = value if equals else "..."
        return f"unexpected argument '{word}'; did you mean --{best}={value}?"
    if equals:
        return f"unexpected argument '{word}': {unknown_option(name, known)}"
    return f"unexpected argument '{word}'; options are --key=value"


def check_dataset_dir(settings):
    """Checks that dataset_dir exists, before TensorFlow is loaded, which takes seconds.

    Remote folders, and those of a user's own data set, are checked when they are read.

    Raises:
        FileNotFoundError: it does not exist; the nearest name is told.
    """
    given = settings.dataset
    folder, known = given.dataset_dir, _data_sets_of_files()
    if given.dataset_name.lower() not in known or given.train_files:
        return
    if not folder or "://" in folder or os.path.exists(folder):
        return
    parent, name = os.path.split(folder.rstrip("/"))
    others = os.listdir(parent or ".") if os.path.isdir(parent or ".") else []
    others = {other: os.path.join(parent, other) for other in others}
    hint = did_you_mean(name, others) or (
        " Give the folder that holds the data set, with --dataset_dir."
    )
    raise FileNotFoundError(f"dataset_dir {folder!r} does not exist.{hint}")


def _data_sets_of_files():
    package = importlib.import_module("plsc_tf.datasets")
    return {module.name for module in pkgutil.iter_modules(package.__path__)} - {"mock"}


def print_table(rows: Sequence) -> None:
    """Prints the result of a command, [(name, text)]."""
    # It imports numpy.
    from plsc_tf.evaluation.report import format_table

    sys.stdout.write(f"\n{format_table(rows)}\n")


def set_up_logging():
    """Sends the library's logs to standard error, short, and quietens TensorFlow's."""
    from absl import logging as absl_logging

    # Read when TensorFlow is imported, which the command does next. At level 2 every
    # start of TF 2.17 prints three false errors about cuFFT, cuDNN and cuBLAS; true
    # ones come as exceptions.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    # absl warns once about logs before its own flags are parsed; we have none of them.
    flags.FLAGS.mark_as_parsed()
    absl_logging.use_absl_handler()
    absl_logging.set_verbosity(absl_logging.INFO)
    handler = absl_logging.get_absl_handler()
    handler.setFormatter(_LogFormatter(datefmt="%H:%M:%S"))
    handler.addFilter(_is_no_chatter)
    # Its warnings here are about how it copies tensors between logical devices.
    logging.getLogger("tensorflow").setLevel(logging.ERROR)


def _is_no_chatter(record):
    """Whether to show a log record: TensorFlow and Keras report through absl too."""
    if record.levelno >= logging.WARNING:
        return True
    modules = [sys.modules.get(name) for name in ("tensorflow", "keras")]
    folders = [os.path.dirname(m.__file__) + os.sep for m in modules if m]
    return not record.pathname.startswith(tuple(folders))


class _LogFormatter(logging.Formatter):
    """`07:47:20 message`, with the level where it is more than information."""

    def formatMessage(self, record):
        level = f"{record.levelname} " if record.levelno > logging.INFO else ""
        return oss.masked(f"{record.asctime} {level}{record.message}")

    def usesTime(self):
        return True


def is_for_users(error):
    """Whether an error tells a user what to do, rather than a developer."""
    known = (ValueError, OSError, RuntimeError, ImportError, FloatingPointError)
    return isinstance(error, known) or _is_of_tensorflow(error)


def _is_of_tensorflow(error):
    tensorflow = sys.modules.get("tensorflow")
    return tensorflow is not None and isinstance(error, tensorflow.errors.OpError)


def _message(error):
    """Returns the text of an error, without the wrapping of OSError and TensorFlow."""
    if isinstance(error, OSError) and error.strerror and error.filename:
        return oss.masked(f"{error.strerror}: {error.filename}")
    text = str(error)
    if _is_of_tensorflow(error):
        text = _TENSORFLOW_NOISE.sub("", text)
    return oss.masked(text.strip() or repr(error))


def _report(error, advice):
    sys.stderr.write(f"plsc_tf: error: {_message(error)}\n{advice}\n")
