"""What a training may do beside the ordinary, or instead of it."""


class Stage:
    """A stage of training; this one is the ordinary, and adds nothing.

    Those of `plsc_tf.boost` are handed to `plsc_tf.jobs.train.train` by the commands.
    """

    def begin(self, model, settings):
        """Prepares the model, before it is compiled, on all workers.

        It may set `model.trainer.updater_class`, which `compile` calls like `Updater`.

        Args:
            model: the `Classifier`.
            settings: the `Settings` as they will be used.

        Raises:
            ValueError: the stage cannot be run like that.
        """

    def callbacks(self, model, settings):
        """Keras callbacks of the stage, after the model was compiled.

        It may set `model.trainer.custom_step`, a function of the replicas' batches that
        returns what `plsc_tf.training.trainer.train_step` does.

        Args:
            model: the compiled `Classifier`.
            settings: the `Settings` as they will be used.
        """
        del model, settings
        return []

    def trimmed(self, backbone, head, settings):
        """What the planner shall count of a model: less what the stage does without.

        Args:
            backbone: the `plsc_tf.jobs.memory_plan.planner.Backbone`.
            head: the `plsc_tf.heads.memory.HeadLoad`.
            settings: the `Settings`.

        Returns:
            (backbone, head).
        """
        del settings
        return backbone, head

    def memory(self, backbone, head, settings):
        """Bytes of each device that the stage needs beside an ordinary step.

        Args:
            backbone: as of `trimmed`.
            head: as of `trimmed`.
            settings: the `Settings`.

        Returns:
            `{what: bytes}`.
        """
        del backbone, head, settings
        return {}


ORDINARY = Stage()
