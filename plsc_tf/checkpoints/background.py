"""Saving while training continues: one save at a time, and no error is lost."""

import threading


class BackgroundSaver:
    """Runs one function at a time on a thread of its own.

    The thread is not a daemon: a process that ends waits for a save in flight.
    """

    def __init__(self):
        self._thread = None
        self._error = None

    def submit(self, function):
        """Starts a function, after the one before it has ended.

        Raises:
            Exception: what the function before has raised.
        """
        self.wait()
        self._thread = threading.Thread(
            target=self._run, args=(function,), name="plsc_tf-save"
        )
        self._thread.start()

    def check(self):
        """Raises what a function has raised that ended meanwhile, once."""
        if self._thread is not None and not self._thread.is_alive():
            self.wait()

    def wait(self):
        """Waits for the function that runs; raises what it has raised, once."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        error, self._error = self._error, None
        if error is not None:
            raise error

    @property
    def busy(self):
        """Whether a function is running."""
        return self._thread is not None and self._thread.is_alive()

    def _run(self, function):
        try:
            function()
        except BaseException as error:  # noqa: BLE001 - raised in the training thread
            self._error = error
