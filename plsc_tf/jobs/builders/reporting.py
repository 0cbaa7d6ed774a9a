"""What a run shows of itself: made from the settings, and finished at its end."""

import functools

import tensorflow as tf
from absl import logging

from plsc_tf.jobs import report_facts, run_report
from plsc_tf.jobs.builders import hooks
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
# The planner builds and traces the network again: seconds, which only runs of so many
# steps shall take.
PLANNED_FROM_STEPS = 500


def prepare(settings):
    """Does what must be done before TensorFlow's first operation.

    Args:
        settings: the `Settings`.
    """
    # TensorFlow tells the devices of operations only where it knows from the start.
    tf.debugging.set_log_device_placement(settings.logging.log_device_placement)


class RunReporter:
    """All that a run writes for people to look at.

    Make it before the model, whose memory it measures against what was held before.

    Args:
        settings: the `Settings` of the run.
        group: the `Group` of workers; the chief writes, the others write nothing but a
            trace, where they are asked for it.
        stage: the `plsc_tf.jobs.stage.Stage`, whose memory the report counts.

    Raises:
        ValueError: no worker has the number profile_at_task, or an option needs a
            local folder.
        ImportError: a hook's path leads nowhere.

    Attributes:
        recorder: the `Recorder` that figures go to.
        shows_progress: whether there are lines of progress.
    """

    def __init__(self, settings, group, stage):
        given = settings.logging
        if given.profile_at_task >= group.size:
            raise ValueError(
                "profile_at_task is the number of a worker, from 0 to "
                f"{group.size - 1} here. Received: "
                f"profile_at_task={given.profile_at_task}"
            )
        self.settings = settings
        self.group = group
        self.stage = stage
        self.metrics = MetricsFiles(
            settings.checkpoints.model_save_dir,
            written=given.metrics_files and group.is_chief,
        )
        self.recorder = Recorder()
        self.shows_progress = hooks.LOGGING in given.hooks
        self._hooks = hooks.own(given.hooks)
        self._guards = {}
        self._images = FirstImages()
        self._process = self._guarded("the memory of the process", process_memory, 0)
        self._first = 0
        if group.is_chief:
            self.recorder.sinks += self._sinks()

    @property
    def interruptions(self):
        """After how many steps something is written that takes time; 0: never."""
        given = self.settings.logging
        return (
            given.angles_every_n_iters,
            given.images_every_n_iters,
            given.profile_every_n_iters,
        )

    def callbacks(self):
        """The list of Keras callbacks that the settings ask for."""
        given, chief = self.settings.logging, self.group.is_chief
        found = []
        if chief and (given.check_shape or given.check_content):
            check = LayerCheck(given.check_shape, given.check_content)
            found.append(GuardedCallback(check, "the layers' shapes and contents"))
        if given.profile_every_n_iters and self.group.index == given.profile_at_task:
            traces = Traces(self._tensorboard(), given.profile_every_n_iters)
            found.append(GuardedCallback(traces, "traces"))
        if chief and given.images_every_n_iters:
            images = InputImages(self.recorder, given.images_every_n_iters)
            found.append(GuardedCallback(images, "input images"))
        if given.angles_every_n_iters:
            angles = AngleHistograms(self.recorder, given.angles_every_n_iters)
            # All workers measure together: one alone cannot leave it out.
            alone = self.group.size == 1
            found.append(GuardedCallback(angles, "angles") if alone else angles)
        if chief and given.run_report:
            found.append(GuardedCallback(self._images, "the report's images"))
        return [*found, *self._hooks]

    def begin(self, model, changes):
        """Logs what is about to train; all workers call it, the chief logs.

        Args:
            model: the `Classifier`.
            changes: the options that a resume changed, `{name: [old, new]}`.
        """
        given = self.settings.logging
        self._first = model.trainer.position.global_step
        told = []
        if given.print_model_statistics:
            told.append(("Model statistics", statistics.statistics))
        if given.log_device_placement:
            told.append(("Device placement", statistics.placement))
        for title, describe in told:
            call = functools.partial(describe, model)
            # All workers read the head together: one alone cannot leave it out.
            text = self._guarded(title, call) if self.group.size == 1 else call()
            if text and self.group.is_chief:
                logging.info("%s:\n%s", title, text)
        if not self.group.is_chief:
            return
        if given.run_report or given.metrics_files:
            self._guarded(report_facts.STARTS, lambda: self._add_start(model, changes))

    def _add_start(self, model, changes):
        folder = self.settings.checkpoints.model_save_dir
        told = report_facts.environment(model.strategy, self.group)
        report_facts.add_start(
            folder, model.trainer.position.global_step, told, changes
        )

    def finish(self, model, outcome, batches, pairs):
        """Writes what belongs to the end of a run; all workers call it.

        Args:
            model: the trained `Classifier`.
            outcome: what results.json holds; None of workers beside the chief.
            batches: the training data.
            pairs: the verification sets, `{name: Pairs}`.
        """
        given = self.settings.logging
        if given.projector:
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
        if not self.settings.logging.run_report:
            return
        self._plot()
        if model is not None:
            self._guarded(
                run_report.NAME, lambda: self._report(model, outcome or {}, batches)
            )

    def _reachable(self):
        """Whether the run's store answers, so that not each file waits for it."""
        folder = self.settings.checkpoints.model_save_dir
        return self._guarded(
            f"metrics, logs and report in {folder}",
            lambda: files.exists(folder) or True,
            False,
        )

    def _plot(self):
        self._guarded(PLOT, self._draw)

    def _draw(self):
        folder = self.settings.checkpoints.model_save_dir
        loss = curves.loss(self.metrics.rows, self._resumed())
        if loss:
            files.replace(files.join(folder, PLOT), loss.png())

    def _report(self, model, outcome, batches):
        settings = self.settings
        folder = settings.checkpoints.model_save_dir
        told = {
            "data": {
                "data set": settings.dataset.dataset_name,
                "images": batches.num_examples or "unknown",
                "classes": model.head.num_classes,
                "images per step": settings.training.global_batch_size,
                "steps per epoch": batches.steps_per_epoch or "unknown",
            },
            "memory": self._memory(model),
            "environment": self._guarded(
                "the report's environment",
                lambda: report_facts.environment(model.strategy, self.group),
                {},
            ),
            "checkpoints": self._guarded(
                "the report's checkpoints", lambda: report_facts.checkpoints(folder), []
            ),
            "network": self._guarded(
                "the report's FLOPs and parameters",
                lambda: report_facts.network(model),
                {},
            ),
            "images": self._guarded("the report's images", self._shown, []),
            "starts": self._starts(),
            "written": [
                name
                for name in run_report.LINKED
                if files.exists(files.join(folder, name))
            ],
            "charts": self._guarded("the report's curves", self._charts, []),
        }
        path = files.join(folder, run_report.NAME)
        text = run_report.to_html(settings, outcome, told)
        files.replace(path, text)
        logging.info("The report of the run: %s", path)

    def _charts(self):
        charts = curves.all_of(self.metrics.rows, self._resumed())
        return [(chart.caption, chart.svg()) for chart in charts]

    def _resumed(self):
        """The steps after which the run was resumed."""
        return [one["step"] for one in self._starts() if one["step"]]

    def _starts(self):
        folder = self.settings.checkpoints.model_save_dir
        return self._guarded(
            report_facts.STARTS, lambda: report_facts.starts(folder), []
        )

    def _shown(self):
        """[(label, image)] of what was fed; none where nothing was trained."""
        shown = self._images
        if shown.images is None:
            return []
        return list(zip(shown.labels.tolist(), shown.images, strict=True))

    def _memory(self, model):
        strategy = model.strategy
        found = self._guarded(
            "the report's memory", lambda: report_facts.peak_memory(strategy), {}
        )
        if model.trainer.position.global_step - self._first < PLANNED_FROM_STEPS:
            few = f"not for runs of less than {PLANNED_FROM_STEPS} steps"
            return found | {"planned": f"{few}; --dry_run tells"}
        if self.group.size > 1:
            return found
        return found | self._guarded(
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
                found = projector.of_pairs(model, first)
            else:
                name, found = "batch", projector.of_batch(model, batches)
        if self.group.is_chief:
            projector.write(self._tensorboard(), name, *found)

    def _sinks(self):
        given, folder = self.settings.logging, self.settings.checkpoints.model_save_dir
        if given.tensorboard:
            board = self._tensorboard()
            made = self._guarded(board, lambda: TensorBoard(board))
            if made:
                yield made
        if given.visualdl:
            yield VisualDL(files.join(folder, FOLDER))
        yield self.metrics

    def _tensorboard(self):
        return files.join(self.settings.checkpoints.model_save_dir, "tensorboard")

    def _guarded(self, what, write, default=None):
        return self._guards.setdefault(what, Guard(what))(write, default)
