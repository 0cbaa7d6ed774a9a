"""Runs commands: parses their arguments, prints help, and reports errors.

    if __name__ == "__main__":
        cli.main(train, groups=cli.ALL, doc=__doc__)

This module doesn't import TensorFlow: `--help` and errors in options appear instantly.
"""

import gc
import glob
import importlib
import logging
import os
import pkgutil
import re
import sys
from collections.abc import Callable, Sequence

from absl import flags, logging as absl_logging

from plsc_tf import versions
from plsc_tf.options import effects, other_systems
from plsc_tf.options.flagfiles import Assignment, read_flagfile, write_flags
from plsc_tf.options.help import help_text
from plsc_tf.options.other_systems import ignored_name
from plsc_tf.options.settings import ALL, Settings, known_options, select
from plsc_tf.requirements import similar_name
from plsc_tf.storage import oss

__all__ = ["ALL", "UsageError", "help_text", "main", "parse", "write_flags"]

# The options for loading a trained model, shared by all commands that use one.
TRAINED_MODEL = (
    *("preprocessing_name", "image_shape", "num_replicas", "seed", "ema_in_use"),
    *("model_save_dir", "checkpoint_dir", "ckpt_file_name", "fs_ugi", "max_megapixels"),
)
PIPELINE = ("num_parallel_batches", "prefetch_buffer_size", "num_preprocessing_threads")
_TRACEBACK_VARIABLE = "PLSC_TF_TRACEBACK"
# A forged list could have a name so long that `_TENSORFLOW_NOISE` takes seconds.
_LONGEST_MESSAGE = 1 << 14
_HELP = ("help", "helpfull", "helpshort", "h", "?")
# Control characters, except tab and newline; bytes that are not UTF-8; and marks that
# show a text in another order.
_CONTROLS = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\ud800-\udfff\u200e\u200f\u2028-\u202e\u2066-\u2069]"
)
# Text that TensorFlow adds to the message of an error in a graph: where the operation
# was created, "{{function_node ...}} ", " [[...]]" and " [Op:ReadFile]".
_TENSORFLOW_NOISE = re.compile(
    r"^Graph execution error:\n|^Detected at node .*\n|^  File \".*\n|"
    r"\{\{[^{}]*\}\}\s*|^\s*\[\[.*$|\s*\[Op:\w+\](\s*name:\s*\S*)?$|^\s*\n|"
    r"Error in user-defined .*? iterator: \S+: (\w+: )?|^Traceback \([^\x00]*",
    re.MULTILINE,
)


class UsageError(ValueError):
    """Raised for an invalid command line or flag file, before the command runs."""


def main(
    function: Callable[[Settings], None],
    groups: Sequence[str] = ALL,
    doc: str | None = None,
    argv: Sequence[str] | None = None,
) -> None:
    """Runs a command and ends the process with its exit status.

    Exit statuses are 0: success, 1: the command failed, 2: invalid options, 74: the
    training finished, but its last weights could not be saved (on_save_error=continue),
    76: another worker of the cluster failed, 130: interrupted. Errors that users can
    fix are printed without a traceback unless the environment has PLSC_TF_TRACEBACK=1.

    Args:
        function: the command, a function of the `Settings`.
        groups: names of the option groups and options that the command uses; see
            `plsc_tf.options.settings.select`.
        doc: description of the command for `--help`.
        argv: the arguments after the program's name, or None to use `sys.argv`.
    """
    argv = sys.argv[1:] if argv is None else argv
    status = 0
    try:
        set_up_logging()
        settings = parse(argv, groups, doc)
        versions.check()
        effects.log_unused(settings, groups=groups)
        effects.log_assumptions(settings)
        function(settings)
    except KeyboardInterrupt:
        sys.stderr.write("plsc_tf: interrupted\n")
        status = 130
    except UsageError as error:
        _report(error, "--help lists the options.")
        status = 2
    except Exception as error:
        if not is_fixable(error) or os.environ.get(_TRACEBACK_VARIABLE) == "1":
            raise
        _report(error, f"({_TRACEBACK_VARIABLE}=1 shows where it happened.)")
        if hasattr(error, "exit_status"):
            # In a normal exit, TensorFlow may wait for workers that no longer exist.
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(error.exit_status)
        status = 1
    if status:  # The error's iterators: their threads would wait for Python as it ends.
        gc.collect()
    sys.exit(status)


def parse(
    argv: Sequence[str], groups: Sequence[str] = ALL, usage: str | None = None
) -> Settings:
    """Returns the settings from the command line and its flag files.

    Flag files are read first, in the given order; options on the command line override
    them regardless of their position.

    Args:
        argv: the arguments after the program's name.
        groups: as for `main`. Other options are accepted in flag files, because a
            training's flag file works with every command, but not on the command line.
        usage: description of the command for `--help`.

    Raises:
        UsageError: an option is invalid; the message is one line that says where, and
            how to correct it.
        SystemExit: `--help` was printed; the status is 0.
    """
    if any(item.lstrip("-") in _HELP and item.startswith("-") for item in argv):
        sys.stdout.write(help_text(groups, usage))
        sys.exit(0)
    try:
        return _read_settings(argv, groups)
    except (ValueError, OSError) as error:
        raise UsageError(_message(error)) from error


def _read_settings(argv, groups):
    values, line, paths = {}, {}, []
    used = {item.name for item in select(groups)}
    for assignment in _read_arguments(argv):
        if assignment.name == "flagfile":
            values |= dict(map(_read, read_flagfile(assignment.value or "")))
            paths.append(assignment.value)
            continue
        name, value = _read(assignment)
        if name not in used and not ignored_name(name, value):
            raise ValueError(f"--{name} has no effect on this command. Leave it out.")
        line[name] = value
    if "batch_size" in line:
        # Otherwise, a flag file's global_batch_size would override the command line.
        values.pop("global_batch_size", None)
    if not line.keys() & {"model_save_dir", "checkpoint_dir"}:
        _warn_of_copies(paths, values.get("model_save_dir", ""))
    values |= line
    assumed = other_systems.fastnn_assumptions(values)
    given = set(values)
    if "checkpoint_dir" in line:  # it is meant, and not the run that a flag file names
        given.discard("model_save_dir")
    return Settings.build({**assumed, **values}, given)


def _warn_of_copies(paths, save_dir):
    """Warns of flag files in the folder of a run that name another folder."""
    for path in paths if "://" not in save_dir else ():
        here = os.path.dirname(os.path.realpath(path))
        is_run = glob.glob(f"{glob.escape(here)}/*/manifest.json")
        if is_run and save_dir and os.path.realpath(save_dir) != here:
            message = f"{path} is in the folder of a run, but names another one, "
            message += f"{save_dir}. To use the former, add --model_save_dir={here}"
            absl_logging.warning(message)


def _read_arguments(arguments):
    """Yields an `Assignment` per option.

    The forms are `--name=value`, `--name value`, `--name` and `--noname`.
    """
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
        if ignored_name(name, text):
            return ignored_name(name), text
        if text is None and name.startswith("no") and name not in known:
            if name[2:] in known and known[name[2:]].boolean:
                name, text = name[2:], "false"
        if name not in known:
            raise ValueError(other_systems.unknown_option(name, known))
        item = known[name]
        if text is None and not item.boolean:
            raise ValueError(f"'{name}' needs a value: {item.expected()}.")
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
    best = other_systems.nearest_option(name, known)
    if best and known[best].secret:
        word, value = f"{name}=...", "..."
    meant = f"--{best}={value if equals else '...'}" if best else ""
    if not equals and word.endswith((".cfg", ".flags")):
        meant = f"--flagfile={word}"
    elif not equals and before.lstrip("-") in known and known[flag].boolean:
        meant = f"{before}={word}"
    hint = f"did you mean {meant}?" if meant else "options are --key=value"
    return f"unexpected argument '{word}'; {hint}"


def check_dataset_dir(settings):
    """Checks that dataset_dir exists, before loading TensorFlow, which takes seconds.

    Remote folders, and folders of a user's own data set, are checked when they are
    read.

    Raises:
        FileNotFoundError: the folder does not exist; the message suggests the most
            similar name.
    """
    given = settings.dataset
    folder, package = given.dataset_dir, importlib.import_module("plsc_tf.datasets")
    known = {module.name for module in pkgutil.iter_modules(package.__path__)}
    if given.dataset_name.lower() not in known - {"mock"} or given.train_files:
        return
    if not folder or "://" in folder or os.path.exists(folder):
        return
    hint = similar_name(folder.rstrip("/"))
    hint = hint or " Set --dataset_dir to the folder of the data set."
    raise FileNotFoundError(f"dataset_dir {folder!r} does not exist.{hint}")


def print_table(rows: Sequence | None) -> None:
    """Prints the results of a command, a list of (name, text); prints None as nothing.

    Workers other than the chief have no results.
    """
    if rows is None:
        return
    # Imported here because this module imports numpy.
    from plsc_tf.evaluation.report import format_table

    sys.stdout.write(f"\n{shown(format_table(rows))}\n")


def set_up_logging():
    """Sends the library's logs to standard error and suppresses TensorFlow's logs."""
    # TensorFlow reads this variable when it is imported, which the command does next.
    # At level 2, it always prints three false errors about cuFFT, cuDNN and cuBLAS
    # at startup; real errors raise exceptions.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    # On an H200, the first step of an iresnet50 took 200 s with XLA's own kernels for
    # matrix products, most of it for one of them, and 40 s with cuBLAS's.
    os.environ.setdefault("XLA_FLAGS", "--xla_gpu_enable_triton_gemm=false")
    # Otherwise, absl warns about logging before its flags, unused here, are parsed.
    flags.FLAGS.mark_as_parsed()
    absl_logging.use_absl_handler()
    absl_logging.set_verbosity(absl_logging.INFO)
    handler = absl_logging.get_absl_handler()
    handler.setFormatter(_LogFormatter("%(asctime)s", datefmt="%H:%M:%S"))
    handler.addFilter(_is_no_chatter)
    # In this library, its warnings concern only how it copies tensors between logical
    # devices.
    logging.getLogger("tensorflow").setLevel(logging.ERROR)


def _is_no_chatter(record):
    """Returns whether to show a log record; hides TensorFlow's and Keras's chatter."""
    if record.levelno >= logging.WARNING:
        return True
    modules = [sys.modules.get(name) for name in ("tensorflow", "keras")]
    folders = [os.path.dirname(m.__file__) + os.sep for m in modules if m]
    return not record.pathname.startswith(tuple(folders))


class _LogFormatter(logging.Formatter):
    """Formats records as `07:47:20 message`; adds the level if it is above INFO."""

    def formatMessage(self, record):
        level = f"{record.levelname} " if record.levelno > logging.INFO else ""
        return shown(f"{record.asctime} {level}{record.message}")


def shown(text):
    """Masks keys, and escapes control characters, which would change a terminal."""
    return _CONTROLS.sub(lambda match: ascii(match[0])[1:-1], oss.masked(text))


def is_fixable(error: Exception) -> bool:
    """Returns whether an error is of a type that a user, not a developer, can fix."""
    known = (ValueError, OSError, RuntimeError, ImportError, FloatingPointError)
    return isinstance(error, known) or _is_of_tensorflow(error)


def _is_of_tensorflow(error):
    tensorflow = sys.modules.get("tensorflow")
    return tensorflow is not None and isinstance(error, tensorflow.errors.OpError)


def _message(error):
    """Returns an error's message without the text that OSError and TensorFlow add."""
    if isinstance(error, OSError) and error.strerror and error.filename:
        return shown(f"{error.strerror}: {error.filename}")
    text = str(error)[:_LONGEST_MESSAGE]
    if _is_of_tensorflow(error):
        text = _TENSORFLOW_NOISE.sub("", text)
    return shown(text.strip() or repr(error))


def _report(error, advice):
    sys.stderr.write(f"plsc_tf: error: {_message(error)}\n{advice}\n")
