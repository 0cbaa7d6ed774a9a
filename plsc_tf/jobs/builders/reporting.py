"""Metrics, logs and the report of a run, as the settings ask for them."""

import functools

import keras
import tensorflow as tf
from absl import logging

from plsc_tf.jobs import report_facts, run_report
from plsc_tf.jobs.builders import hooks
from plsc_tf.options.settings import Settings
from plsc_tf.parallel.memory import process_memory
from plsc_tf.reporting import curves, projector, statistics
from plsc_tf.reporting.angles import AngleHistograms
from plsc_tf.reporting.guard import Guard, GuardedCallback
from plsc_tf.reporting.input_images import FirstImages, InputImages
from plsc_tf.reporting.layers import LayerCheck
from plsc_tf.reporting.metrics_files import MetricsFiles
from plsc_tf.reporting.recorder import Recorder
from plsc_tf.reporting.tensorboard import TensorBoard
from plsc_tf.reporting.traces import Traces
from plsc_tf.reporting.visualdl import FOLDER, VisualDL
from plsc_tf.storage import files

PLOT = "loss.png"
# The planner builds and traces the network again, which takes seconds: only runs of
# at least this many steps do it.
PLANNED_FROM_STEPS = 500


def prepare(settings):
    """Does what must be done before TensorFlow's first operation.

    Args:
        settings: the `Settings`.
    """
    # TensorFlow logs devices only if this is set before its first operation.
    tf.debugging.set_log_device_placement(settings.logging.log_device_placement)


class RunReporter:
    """Writes metrics, logs and the report of a run.

    Make it before the model: it measures the memory of the process without it.

    Args:
        settings: the `Settings` of the run.
        group: the `Group` of workers; only the chief writes, except traces.
        stage: the `plsc_tf.jobs.stage.Stage`, whose memory the report counts.

    Raises:
        ValueError: no worker has the number profile_at_task, or an option needs a
            local folder.
        ImportError: a hook's path leads nowhere.

    Attributes:
        recorder: the `Recorder` of figures.
        shows_progress: whether lines of progress are shown.
    """

    def __init__(self, settings: Settings, group, stage):
        options = settings.logging
        if options.profile_at_task >= group.size:
            raise ValueError(
                "profile_at_task is the number of a worker, from 0 to "
                f"{group.size - 1} here. Received: "
                f"profile_at_task={options.profile_at_task}"
            )
        self.settings, self.options = settings, options
        self.folder = settings.checkpoints.model_save_dir
        self.group, self.stage = group, stage
        written = options.metrics_files and group.is_chief
        self.metrics = MetricsFiles(self.folder, written=written)
        self.recorder = Recorder()
        self.shows_progress = hooks.LOGGING in options.hooks
        self._hooks = hooks.own(options.hooks)
        self._guards = {}
        self._images = FirstImages()
        self._process = self._guarded("the memory of the process", process_memory, 0)
        self._first = 0
        if group.is_chief:
            self.recorder.sinks += self._sinks()

    @property
    def interruptions(self) -> tuple[int, ...]:
        """Steps between writes that take time; 0: never."""
        return (
            self.options.angles_every_n_iters,
            self.options.images_every_n_iters,
            self.options.profile_every_n_iters,
        )

    def callbacks(self) -> list[keras.callbacks.Callback]:
        """The callbacks that the settings ask for."""
        options, made = self.options, {}
        if (
            options.profile_every_n_iters
            and self.group.index == options.profile_at_task
        ):
            made["traces"] = Traces(self._tensorboard(), options.profile_every_n_iters)
        if self.group.is_chief and (options.check_shape or options.check_content):
            check = LayerCheck(options.check_shape, options.check_content)
            made["the layers' shapes and contents"] = check
        if self.group.is_chief and options.images_every_n_iters:
            images = InputImages(self.recorder, options.images_every_n_iters)
            made["input images"] = images
        if self.group.is_chief and options.run_report:
            made["the report's images"] = self._images
        callbacks = [GuardedCallback(one, name) for name, one in made.items()]
        if options.angles_every_n_iters:
            angles = AngleHistograms(self.recorder, options.angles_every_n_iters)
            # All workers measure together: none of them may skip it after a failure.
            alone = self.group.size == 1
            callbacks.append(GuardedCallback(angles, "angles") if alone else angles)
        return [*callbacks, *self._hooks]

    def begin(self, model, changes: dict) -> None:
        """Logs the model before the training; all workers call it, the chief logs.

        Args:
            model: the `Classifier`.
            changes: the options that a resume changed, `{name: [old, new]}`.
        """
        self._first = model.trainer.position.global_step
        texts = {}
        if self.options.print_model_statistics:
            texts["Model statistics"] = statistics.statistics
        if self.options.log_device_placement:
            texts["Device placement"] = statistics.placement
        for title, describe in texts.items():
            call = functools.partial(describe, model)
            # All workers read the head together: none of them may skip it.
            text = self._guarded(title, call) if self.group.size == 1 else call()
            if text and self.group.is_chief:
                logging.info("%s:\n%s", title, text)
        if self.group.is_chief and (
            self.options.run_report or self.options.metrics_files
        ):
            self._guarded(report_facts.STARTS, lambda: self._add_start(model, changes))

    def _add_start(self, model, changes):
        environment = report_facts.environment(model.strategy, self.group)
        step = model.trainer.position.global_step
        report_facts.add_start(self.folder, step, environment, changes)

    def finish(self, model, outcome, batches, pairs):
        """Writes what belongs to the end of a run; all workers call it.

        Args:
            model: the trained `Classifier`.
            outcome: what results.json holds; None on other workers than the chief.
            batches: the training data.
            pairs: the verification sets, `{name: Pairs}`.
        """
        if self.options.projector:
            self._guarded(
                "the projector's files", lambda: self._project(model, batches, pairs)
            )
        self.abandon(model, outcome, batches)

    def abandon(self, model=None, outcome=None, batches=None):
        """Closes the logs of a run that has failed, and draws what there is.

        Args:
            model: the `Classifier`, where its training has ended: then there is a
                report too, of what is known.
            outcome: as of `finish`, as far as it goes.
            batches: the training data.
        """
        if not self.group.is_chief or not self._reachable():
            return
        self.recorder.close()
        if not self.options.run_report:
            return
        self._guarded(PLOT, self._plot)
        if model is not None:
            self._guarded(
                run_report.NAME, lambda: self._report(model, outcome or {}, batches)
            )

    def _reachable(self):
        """Whether the run's store answers, so that not each file waits for it."""
        return self._guarded(
            f"metrics, logs and report in {self.folder}",
            lambda: files.exists(self.folder) or True,
            False,
        )

    def _plot(self):
        loss = curves.loss(self.metrics.rows, self._resumed())
        if loss:
            files.replace(files.join(self.folder, PLOT), loss.png())

    def _report(self, model, outcome, batches):
        facts = {
            "data": lambda: self._data(model, batches),
            "memory": lambda: self._memory(model),
            "environment": lambda: report_facts.environment(model.strategy, self.group),
            "network": lambda: report_facts.network(model),
            "checkpoints": lambda: report_facts.checkpoints(self.folder),
            "images": self._images.jpegs,
            "charts": self._charts,
        }
        facts = {
            name: self._guarded(f"the report's {name}", read, {})
            for name, read in facts.items()
        }
        facts["starts"] = self._starts()
        facts["written"] = [
            name
            for name in run_report.LINKED
            if files.exists(files.join(self.folder, name))
        ]
        path = files.join(self.folder, run_report.NAME)
        files.replace(path, run_report.to_html(self.settings, outcome, facts))
        logging.info("The report of the run: %s", path)

    def _data(self, model, batches):
        return {
            "data set": self.settings.dataset.dataset_name,
            "images": batches.num_examples or "unknown",
            "classes": model.head.num_classes,
            "images per step": self.settings.training.global_batch_size,
            "steps per epoch": batches.steps_per_epoch or "unknown",
        }

    def _charts(self):
        charts = curves.all_of(self.metrics.rows, self._resumed())
        return [(chart.caption, chart.svg()) for chart in charts]

    def _resumed(self):
        """The steps after which the run was resumed."""
        return [start["step"] for start in self._starts() if start["step"]]

    def _starts(self):
        return self._guarded(
            report_facts.STARTS, lambda: report_facts.starts(self.folder), []
        )

    def _memory(self, model):
        facts = report_facts.peak_memory(model.strategy)
        if model.trainer.position.global_step - self._first < PLANNED_FROM_STEPS:
            few = f"not for runs of less than {PLANNED_FROM_STEPS} steps"
            return facts | {"planned": f"{few}; --dry_run shows it"}
        if self.group.size > 1:
            return facts
        return facts | self._guarded(
            "the report's planned memory",
            lambda: report_facts.planned_memory(
                self.settings, model, self._process, self.stage
            ),
            {},
        )

    def _project(self, model, batches, pairs):
        with model.trainer.averaged():  # as it is verified and exported
            if pairs:
                name, first = next(iter(pairs.items()))
                points = projector.of_pairs(model, first)
            else:
                name, points = "batch", projector.of_batch(model, batches)
        if self.group.is_chief:
            projector.write(self._tensorboard(), name, *points)

    def _sinks(self):
        if self.options.tensorboard:
            board = self._tensorboard()
            made = self._guarded(board, lambda: TensorBoard(board))
            if made:
                yield made
        if self.options.visualdl:
            yield VisualDL(files.join(self.folder, FOLDER))
        yield self.metrics

    def _tensorboard(self):
        return files.join(self.folder, "tensorboard")

    def _guarded(self, what, write, default=None):
        return self._guards.setdefault(what, Guard(what))(write, default)
