"""Sets up a run's metrics, logs and report from the settings."""

import functools
from collections.abc import Sequence

import keras
from absl import logging

from plsc_tf.jobs import run_report
from plsc_tf.jobs.builders import hooks
from plsc_tf.options.settings import Settings
from plsc_tf.reporting import curves, layers, projector, recorder
from plsc_tf.reporting.angles import AngleHistograms
from plsc_tf.reporting.metrics_files import MetricsFiles
from plsc_tf.reporting.recorder import Guard
from plsc_tf.reporting.tensorboard import TensorBoard
from plsc_tf.reporting.trackers import Tracker
from plsc_tf.reporting.visualdl import FOLDER, VisualDL
from plsc_tf.requirements import require
from plsc_tf.storage import files

PLOT, TENSORBOARD = "loss.png", "tensorboard"


class RunReporter:
    """Writes metrics, logs and the report of a run.

    Args:
        settings: the `Settings` of the run.
        group: the `Group` of workers; only the chief writes, except traces.
        starts: the starts and resumes of the run, see `resume_changes.of_run`.

    Raises:
        ValueError: profile_at_task is not the index of a worker, a name in hooks is
            invalid, or an option needs a local folder.
        ImportError: the path of a hook cannot be imported.

    Attributes:
        recorder: the `Recorder` of the run's figures.
    """

    def __init__(self, settings: Settings, group, starts: Sequence[dict] = ()):
        options = settings.logging
        profiled = options.profile_at_task
        rule = f"profile_at_task must be a worker's index, at most {group.size - 1}"
        require(profiled < group.size, rule, profile_at_task=profiled)
        self.settings, self.options, self.group = settings, options, group
        self.folder = settings.checkpoints.model_save_dir
        self._board = files.join(self.folder, TENSORBOARD)
        self.metrics = MetricsFiles(self.folder)
        self.recorder = recorder.Recorder()
        self._hooks = hooks.load_callbacks(options.hooks)
        self._starts = starts
        if not group.is_chief:
            return
        if options.tensorboard or TENSORBOARD in options.tracker:
            board = Guard(self._board)(lambda: TensorBoard(self._board))
            self.recorder.sinks += [board] if board else []
        if options.visualdl:
            self.recorder.sinks.append(VisualDL(files.join(self.folder, FOLDER)))
        for name in sorted({*options.tracker} - {TENSORBOARD}):
            params = run_report.shown_options(settings)
            self.recorder.sinks.append(Tracker(name, self.folder, params))
        self.recorder.sinks.append(self.metrics)

    def callbacks(self) -> list[keras.callbacks.Callback]:
        """Returns the callbacks that the settings select."""
        options, callbacks = self.options, {}
        traces = options.profile_every_n_iters
        if traces and self.group.index == options.profile_at_task:
            callbacks["traces"] = recorder.Traces(self._board, traces)
        if self.group.is_chief and (options.check_shape or options.check_content):
            check = layers.LayerCheck(options.check_content)
            callbacks["the layers' shapes and contents"] = check
        if self.group.is_chief and (images := options.images_every_n_iters):
            callbacks["input images"] = recorder.InputImages(self.recorder, images)
        if angles := options.angles_every_n_iters:
            callbacks["angles"] = AngleHistograms(self.recorder, angles)
        for name, one in callbacks.items():
            # Measuring angles needs all workers, so no worker may skip it after an
            # error.
            if name != "angles" or self.group.size == 1:
                callbacks[name] = recorder.GuardedCallback(one, name)
        return [*callbacks.values(), *self._hooks]

    def begin(self, model) -> None:
        """Logs the `Classifier` before the training, only on the chief."""
        title = "Model statistics"
        if self.group.is_chief and self.options.print_model_statistics:
            if text := Guard(title)(lambda: layers.statistics(model)):
                logging.info("%s:\n%s", title, text)

    def finish(self, model, outcome, batches, pairs):
        """Writes the projector's files and the report; call it on all workers.

        Args:
            model: the trained `Classifier`.
            outcome: the content of results.json; used only by the chief.
            batches: the training data.
            pairs: the verification sets, `{name: Pairs}`.
        """
        if self.options.projector and pairs:
            project = functools.partial(self._project, model, pairs)
            Guard("the projector's files")(project)
        self.close(model, outcome, batches)

    def close(self, model=None, outcome=None, batches=None):
        """Closes the logs of a run, even a failed one, and plots the recorded losses.

        Args:
            model: the `Classifier` if its training is complete, which also writes the
                report; None otherwise.
            outcome: as in `finish`; entries may be missing.
            batches: the training data.
        """
        if not self.group.is_chief:
            return
        # If the store does not answer, writing each file would wait for its timeout.
        stored = f"metrics, logs and report in {self.folder}"
        if Guard(stored)(lambda: [files.exists(self.folder)]) is None:
            return
        self.recorder.flush()
        if self.options.run_report:
            Guard(PLOT)(self._plot)
        if self.options.run_report and model is not None:
            report = functools.partial(self._report, model, outcome or {}, batches)
            Guard(run_report.NAME)(report)
        if model is not None:
            export = (outcome or {}).get("export_dir") or self.folder
            names = (run_report.NAME, PLOT, "results.json")
            paths = [files.join(self.folder, name) for name in names]
            paths.append(files.join(export, "assets.extra", "model_card.json"))
            self.recorder.finish(paths)
        self.recorder.close()

    def _plot(self):
        if loss := curves.chart("Loss", self.metrics.rows, self._resumed()):
            files.replace(files.join(self.folder, PLOT), loss.png())

    def _report(self, model, outcome, batches):
        folder, rows = self.folder, self.metrics.rows
        # If this fails, an older page must not pass for the new one.
        if files.exists(path := files.join(folder, run_report.NAME)):
            files.remove(path)
        facts = {
            "data": lambda: {
                "data set": self.settings.dataset.dataset_name,
                "images": batches.num_examples or "unknown",
                "classes": model.head.num_classes,
                "images per step": self.settings.training.global_batch_size,
                "steps per epoch": batches.steps_per_epoch or "unknown",
            },
            "memory": lambda: run_report.peak_memory(model.strategy),
            "environment": lambda: run_report.environment(model),
            "network": lambda: run_report.network(model),
            "charts": lambda: [
                (one.caption, one.svg()) for one in curves.all_of(rows, self._resumed())
            ],
        }
        known = {n: Guard(f"the report's {n}")(read, {}) for n, read in facts.items()}
        names = run_report.LINKED
        known["written"] = [n for n in names if files.exists(files.join(folder, n))]
        known["starts"] = self._starts
        files.replace(path, run_report.to_html(self.settings, outcome, known))
        logging.info("Run report: %s", path)

    def _resumed(self):
        """Returns the global steps after which the run was resumed."""
        return [start["step"] for start in self._starts if start["step"]]

    def _project(self, model, pairs):
        name, first = next(iter(pairs.items()))
        with model.trainer.averaged():  # verification and export use averages too
            points = projector.of_pairs(model, first)
        if self.group.is_chief:
            projector.write(self._board, name, *points)
