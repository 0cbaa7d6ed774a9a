"""What a run shows of itself: made from the settings, and finished at its end."""

import tensorflow as tf
from absl import logging

from plsc_tf.parallel.memory import process_memory
from plsc_tf.storage import files
from plsc_tf.training.seeing import (
    curves,
    facts,
    hooks,
    projector,
    run_report,
    statistics,
)
from plsc_tf.training.seeing.angles import AngleHistograms
from plsc_tf.training.seeing.layers import LayerCheck
from plsc_tf.training.seeing.metrics_files import MetricsFiles
from plsc_tf.training.seeing.pictures import InputImages
from plsc_tf.training.seeing.recorder import Recorder
from plsc_tf.training.seeing.tensorboard import TensorBoard
from plsc_tf.training.seeing.traces import Traces
from plsc_tf.training.seeing.visualdl import FOLDER, VisualDL

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


class Seeing:
    """All that a run writes for people to look at.

    Make it before the model, whose memory it measures against what was held before.

    Args:
        settings: the `Settings` of the run.
        group: the `Group` of workers; the chief writes, the others write nothing but a
            trace, where they are asked for it.
        stage: the `plsc_tf.training.stage.Stage`, whose memory the report counts.

    Raises:
        ValueError: no worker has the number profile_at_task, or an option needs a
            local folder.
        ImportError: a hook's path leads nowhere.

    Attributes:
        recorder: the `Recorder` that figures go to.
        tells: whether there are lines of progress.
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
            settings.storage.model_save_dir,
            written=given.metrics_files and group.is_chief,
        )
        self.recorder = Recorder()
        self.tells = hooks.LOGGING in given.hooks
        self._hooks = hooks.own(given.hooks)
        self._process = process_memory()
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
            found.append(LayerCheck(given.check_shape, given.check_content))
        if given.profile_every_n_iters and self.group.index == given.profile_at_task:
            found.append(Traces(self._tensorboard(), given.profile_every_n_iters))
        if chief and given.images_every_n_iters:
            found.append(InputImages(self.recorder, given.images_every_n_iters))
        if given.angles_every_n_iters:
            found.append(AngleHistograms(self.recorder, given.angles_every_n_iters))
        return [*found, *self._hooks]

    def begin(self, model):
        """Tells what is about to train; all workers call it, the chief tells."""
        given = self.settings.logging
        self._first = model.position.global_step
        told = []
        if given.print_model_statistics:
            told.append(("Model statistics", statistics.statistics(model)))
        if given.log_device_placement:
            told.append(("Device placement", statistics.placement(model)))
        if not self.group.is_chief:
            return
        for title, text in told:
            logging.info("%s:\n%s", title, text)
        if given.run_report or given.metrics_files:
            folder = self.settings.storage.model_save_dir
            told = facts.environment(model.strategy, self.group)
            self._guarded(
                lambda: facts.add_start(folder, model.position.global_step, told)
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
            with model.averaged():  # as it is verified and exported
                self._project(model, batches, pairs)
        self.recorder.close()
        if given.run_report and self.group.is_chief:
            self._guarded(lambda: self._report(model, outcome, batches))

    def abandon(self, model=None, outcome=None, batches=None):
        """Closes the logs of a run that has failed, and draws what there is.

        Args:
            model: the `Classifier`, where its training has ended: then there is a
                report too, of what is known.
            outcome: as of `finish`, as far as it goes.
            batches: the training data.
        """
        self.recorder.close()
        if not (self.settings.logging.run_report and self.group.is_chief):
            return
        if model is None:
            self._guarded(self._plot)
        else:
            self._guarded(lambda: self._report(model, outcome or {}, batches))

    def _plot(self):
        folder = self.settings.storage.model_save_dir
        loss = curves.loss(self.metrics.rows)
        if loss:
            files.replace(files.join(folder, PLOT), loss.as_png())

    def _report(self, model, outcome, batches):
        settings = self.settings
        folder = settings.storage.model_save_dir
        self._plot()
        memory = facts.peak_memory(model.strategy)
        if model.position.global_step - self._first < PLANNED_FROM_STEPS:
            few = f"not for runs of less than {PLANNED_FROM_STEPS} steps"
            memory["planned"] = f"{few}; --dry_run tells"
        elif self.group.size == 1:
            memory |= facts.planned_memory(settings, model, self._process, self.stage)
        told = {
            "data": {
                "data set": settings.dataset.dataset_name,
                "images": batches.num_examples or "unknown",
                "classes": model.head.num_classes,
                "images per step": settings.model.global_batch_size,
                "steps per epoch": batches.steps_per_epoch or "unknown",
            },
            "memory": memory,
            "environment": facts.environment(model.strategy, self.group),
            "checkpoints": facts.checkpoints(folder),
            "starts": facts.starts(folder),
        }
        path = files.join(folder, run_report.NAME)
        text = run_report.to_html(settings, outcome, self.metrics.rows, told)
        files.replace(path, text)
        logging.info("The report of the run: %s", path)

    def _project(self, model, batches, pairs):
        if pairs:
            name, first = next(iter(pairs.items()))
            found = projector.of_pairs(model, first)
        else:
            name, found = "batch", projector.of_batch(model, batches)
        if self.group.is_chief:
            self._guarded(lambda: projector.write(self._tensorboard(), name, *found))

    def _sinks(self):
        given, folder = self.settings.logging, self.settings.storage.model_save_dir
        if given.tensorboard:
            yield TensorBoard(self._tensorboard())
        if given.visualdl:
            yield VisualDL(files.join(folder, FOLDER))
        yield self.metrics

    def _tensorboard(self):
        return files.join(self.settings.storage.model_save_dir, "tensorboard")

    def _guarded(self, write):
        """A store that fails costs the report, and not the training."""
        try:
            write()
        except OSError as error:
            logging.warning("Not written, for people to look at: %s", error)
