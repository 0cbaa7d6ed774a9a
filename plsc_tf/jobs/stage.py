"""Hooks through which a training run can add to or replace its ordinary steps."""


class Stage:
    """A stage of training; this base class adds nothing to an ordinary training.

    The commands pass a stage to `plsc_tf.jobs.train.train`;
    `plsc_tf.jobs.dimension_reduction` implements the stages of `plsc_tf.boost`.
    """

    def begin(self, model, settings):
        """Prepares the model before it is compiled; runs on all workers.

        The method may set `model.trainer.updater_class`, which `compile` calls in
        place of `Updater`.

        Args:
            model: the `Classifier`.
            settings: the `Settings` as they will be used.

        Raises:
            ValueError: the stage cannot run with this model or these settings.
        """

    def callbacks(self, model, settings):
        """Returns the stage's Keras callbacks; called after the model is compiled.

        The method may set `model.trainer.custom_step`, a function of the replicas'
        batches that returns the same as `plsc_tf.training.replica_step.train_step`.

        Args:
            model: the compiled `Classifier`.
            settings: the `Settings` as they will be used.
        """
        return []

    def trimmed(self, backbone, head, settings):
        """Removes memory that the stage does not need from the planner's counts.

        Args:
            backbone: the `plsc_tf.jobs.memory_plan.planner.Backbone`.
            head: the `plsc_tf.heads.memory.HeadLoad`.
            settings: the `Settings`.

        Returns:
            (backbone, head).
        """
        return backbone, head

    def memory(self, backbone, head, settings):
        """Returns the bytes that the stage needs per device beyond an ordinary step.

        Args:
            backbone: as in `trimmed`.
            head: as in `trimmed`.
            settings: the `Settings`.

        Returns:
            `{item: bytes}`.
        """
        return {}


ORDINARY = Stage()
