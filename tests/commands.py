"""Runs commands of plsc_tf in this process: a start of TensorFlow takes six seconds."""

import contextlib
import importlib
import io
import logging
import signal

from absl import logging as absl_logging

from plsc_tf.options import cli
from tests.programs import Result


def run(name, *words, folder="."):
    """Runs `python -m plsc_tf.<name> <words>` in a folder, and returns its `Result`.

    Commands of several workers, and those that a signal ends, need a process.
    """
    module = importlib.import_module(f"plsc_tf.{name}")
    out, err, status = io.StringIO(), io.StringIO(), 0
    with (
        contextlib.chdir(folder),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
        kept_state(err),
    ):
        try:
            cli.main(module.main, module.GROUPS, module.__doc__, list(words))
        except SystemExit as end:
            status = end.code or 0
    return Result(status, out.getvalue(), err.getvalue())


@contextlib.contextmanager
def kept_state(stream=None):
    """Sends absl's log to a stream, and restores what `cli.main` sets up."""
    with _logging_to(stream), _signal_handlers():
        yield


@contextlib.contextmanager
def _logging_to(stream):
    handler = absl_logging.get_absl_handler()
    loggers = [logging.getLogger(name) for name in (None, "absl", "tensorflow")]
    before = [(one, one.level, list(one.handlers)) for one in loggers]
    formatter, filters = handler.formatter, list(handler.filters)
    former = handler.python_handler.stream
    handler.python_handler.stream = stream or former
    try:
        yield
    finally:
        handler.python_handler.stream = former
        handler.setFormatter(formatter)
        handler.filters = filters
        for one, level, handlers in before:
            one.setLevel(level)
            one.handlers = handlers


@contextlib.contextmanager
def _signal_handlers():
    before = {one: signal.getsignal(one) for one in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)
