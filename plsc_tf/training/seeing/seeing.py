"""What a run shows of itself: made from the settings, and finished at its end."""

from plsc_tf.storage import files
from plsc_tf.training.seeing.metrics_files import MetricsFiles
from plsc_tf.training.seeing.recorder import Recorder
from plsc_tf.training.seeing.tensorboard import TensorBoard
from plsc_tf.training.seeing.visualdl import FOLDER, VisualDL


class Seeing:
    """All that a run writes for people to look at.

    Args:
        settings: the `Settings` of the run.
        group: the `Group` of workers; the chief writes, the others write nothing.

    Attributes:
        recorder: the `Recorder` that figures go to.
    """

    def __init__(self, settings, group):
        self.settings = settings
        self.group = group
        self.metrics = None
        self.recorder = Recorder()
        if group.is_chief:
            self.recorder.sinks += self._sinks()

    def _sinks(self):
        given, folder = self.settings.logging, self.settings.storage.model_save_dir
        if given.tensorboard:
            yield TensorBoard(files.join(folder, "tensorboard"))
        if given.visualdl:
            yield VisualDL(files.join(folder, FOLDER))
        if given.metrics_files or given.run_report:
            self.metrics = MetricsFiles(folder, written=given.metrics_files)
            yield self.metrics
