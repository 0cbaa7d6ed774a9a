"""Provides PLSC's `Entry`, which configures and starts training in Python.

    from plsc_tf import Entry

    ins = Entry()
    ins.set_train_epochs(1)
    ins.set_model_save_dir("./saved_model")
    ins.train()

Each setter sets options of the commands; docs/options.md documents them.
"""

import sys

import numpy as np
from absl import logging

from plsc_tf import dotted_paths
from plsc_tf.entry_setters import as_option, head_options, image_shape_of, setter
from plsc_tf.options import cli, effects, other_systems
from plsc_tf.options.settings import Settings, known_options
from plsc_tf.requirements import require, require_one_of


class Entry:
    """Trains, tests and exports models like PLSC's `plsc.entry.Entry`.

    Attributes:
        train_reader: training data instead of the files in dataset_dir: a function that
            returns an iterator of (image, label) or of lists of such pairs, a `Source`,
            or a reader from `plsc_tf.utils.base64_reader`. Images are encoded bytes or
            arrays with values 0 to 255, `[3, h, w]` or `[h, w, 3]`.
        test_reader: verification data instead of val_targets: a function that returns
            an iterator of (left image, right image, same).
        predict_reader: images for `predict`: a function that returns an iterator of
            images, or of tuples whose first element is an image.
    """

    def __init__(self, **options):
        """Sets the given options; the others keep their defaults.

        Args:
            **options: any option in `python -m plsc_tf.train --help`, such as
                num_replicas=2 or seed=1, even without a setter; values may be text, as
                in a flag file: image_shape="3,28,28".

        Raises:
            ValueError: an option is unknown, or a value is not allowed.
        """
        self._values = {}
        self._backbone = self._optimizer = None
        self._model_parallel = None
        self._set(**options)
        self.train_reader = self.test_reader = self.predict_reader = None

    @property
    def settings(self):
        """The current `Settings`; options that the script has set count as given.

        Raises:
            ValueError: values contradict each other.
        """
        values = dict(self._values)
        if self._model_parallel is not None:
            loss = values.get("loss_type", Settings().head.loss_type)
            loss = loss.removeprefix("dist_")
            values["loss_type"] = f"dist_{loss}" if self._model_parallel else loss
        if self._backbone is not None:
            values["model_name"] = _dotted(self._backbone)
        given = set(values)
        values.setdefault("dataset_name", "image_list")
        if "stop_at_step" in values and "num_epochs" not in values:
            # An epoch has at least one step, so stop_at_step ends the run first.
            values["num_epochs"] = values["stop_at_step"]
        return Settings.build(values, given)

    # Setters of PLSC 0.1 and 0.2, with PLSC's parameter names.
    set_calc_acc = setter(calc="calc_acc")
    set_checkpoint_dir = setter(directory="checkpoint_dir")
    set_class_num = setter(num="num_classes")
    set_dataset_dir = setter(directory="dataset_dir")
    set_emb_size = setter(size="emb_size")
    set_image_num = setter(num="num_sample_per_epoch")  # only in PLSC's manual
    set_train_image_num = setter(num="num_sample_per_epoch")
    set_image_shape = setter(shape="image_shape")
    set_log_period = setter(steps="log_loss_every_n_iters")
    set_lr = setter(rate="learning_rate")
    set_lr_decay_factor = setter(factor="learning_rate_decay_factor")
    set_lr_steps = setter(boundaries="lr_steps")  # only in PLSC 0.1's configuration
    set_step_boundaries = setter(boundaries="lr_steps")
    set_max_last_checkpoint_num = setter(num="keep_checkpoint_max")
    set_model_save_dir = setter(directory="model_save_dir")
    set_sample_ratio = setter(ratio="sample_rate")
    set_test_batch_size = setter(size="test_batch_size")
    set_test_period = setter(steps="eval_every_n_steps")
    set_train_batch_size = setter(size="batch_size")
    set_val_targets = setter(targets="val_targets")
    set_warmup_epochs = setter(num="warmup_epochs")
    set_with_test = setter("with_test")
    set_loss_type = setter("loss_type", m1="margin1", m2="margin", m3="margin3")
    set_hdfs_info = setter(
        *("fs_name", "fs_ugi", "fs_dir_for_save", "fs_checkpoint_dir"), required=2
    )
    set_mixed_precision = setter(
        *("use_fp16", "init_loss_scaling", "incr_every_n_steps"),
        *("decr_every_n_nan_or_inf", "incr_ratio", "decr_ratio"),
        *("use_dynamic_loss_scaling", "amp_lists"),
    )

    def set_model(self, model):
        """Sets your own network.

        Args:
            model: a `plsc_tf.models.base_model.BaseModel` or its class, a Keras model
                from images `[h, w, 3]` to embeddings, a function that creates one, the
                dotted path of any of these, or None to use model_name.

        Raises:
            ValueError: the value is none of these.
        """
        own = not isinstance(model, str) or all(dotted_paths.split(model))
        advice = f"For one of the library's, call set_model_name({model!r})"
        require(own, "set_model takes your own network or its path", advice)
        # Not an isinstance check: importing Keras takes seconds and may not be needed.
        known = isinstance(model, str) or hasattr(model, "build_network")
        fits = known or callable(model) or model is None
        rule = "set_model takes a BaseModel, Keras model, or a function that makes one"
        require(fits, rule, model=repr(model), type=type(model).__name__)
        self._backbone = model

    def set_model_name(self, name):
        """Sets one of the library's networks by name (PLSC 0.2)."""
        self._backbone = None
        self._set(model_name=name)

    def set_train_epochs(self, num):
        """Sets the number of epochs to train."""
        self._set_or_clear({"num_epochs": num, "stop_at_step": None}.items())

    def set_train_steps(self, num):
        """Sets the number of steps to train, instead of epochs (PLSC 0.2)."""
        self._set_or_clear({"stop_at_step": num, "num_epochs": None}.items())

    def set_distfc_attr(self, param_attr=None, bias_attr=None):
        """Sets the initialization and training of the head's weights and biases.

        See `plsc_tf.entry_setters.head_options`.
        """
        self._set_or_clear(head_options(param_attr, bias_attr))

    def set_input_info(self, inputs):
        """Sets the image shape from PLSC 0.2's list of dicts with "shape".

        Uses the first shape with three numbers, or four numbers including the batch.
        """
        self._set(image_shape=image_shape_of(inputs))

    def set_use_quant(self, quant):
        """Logs a warning; PLSC 0.2 stores this value but does not use it."""
        if quant:
            logging.warning("set_use_quant has no effect. plsc_tf.export quantizes.")

    def set_optimizer(self, optimizer):
        """Sets a Keras optimizer, with its learning rate or schedule, or its name.

        An optimizer replaces lr, lr_steps, warm-up and scaling with the batch size.

        Raises:
            ValueError: the value is not an optimizer.
        """
        named = isinstance(optimizer, str) or optimizer is None
        made = hasattr(optimizer, "apply_gradients") and not isinstance(optimizer, type)
        rule = "set_optimizer takes the name of a Keras optimizer or an instance"
        advice = "To set only the learning rate, call set_lr"
        require(named or made, rule, advice, optimizer=repr(optimizer))
        self._optimizer = optimizer

    def set_model_parallel(self, model_parallel):
        """Sets whether the classes are sharded over the replicas (PLSC 0.2)."""
        require_one_of((True, False), model_parallel=model_parallel)
        self._model_parallel = bool(model_parallel)

    def _set(self, **values):
        known = known_options()
        for name, value in values.items():
            if other_systems.ignored_name(name):
                self._values[name] = value
                continue
            if name not in known:
                hint = "python -m plsc_tf.train --help lists all options."
                raise ValueError(f"{other_systems.unknown_option(name, known)} {hint}")
            item, value = known[name], as_option(value)
            # Text is parsed as in a flag file: "3,28,28" is a shape.
            text = isinstance(value, str)
            self._values[item.name] = item.parse(value) if text else item.check(value)

    def _set_or_clear(self, pairs):
        """Sets options; resets an option to its default if the value is None."""
        for name, value in pairs:
            if value is None:
                self._values.pop(name, None)
            else:
                self._set(**{name: value})

    def train(self):
        """Trains a model, or resumes the training in model_save_dir.

        Returns:
            a dict of the results, see `plsc_tf.jobs.train.train`; None on workers other
            than the chief.
        """
        cli.set_up_logging()
        from plsc_tf.jobs import results, train as run

        settings = self.settings
        effects.log_unused(settings)
        settings, outcome = run.train(settings, parts=self._parts())
        # A restart begins in another folder.
        self._values["model_save_dir"] = settings.checkpoints.model_save_dir
        if outcome is not None:
            sys.stdout.write(f"\n{cli.shown(results.table(settings, outcome))}\n")
        return outcome

    def test(self):
        """Verifies the model in checkpoint_dir on the verification sets.

        Returns:
            a dict with the rows of the printed table; None on workers other than the
            chief.
        """
        cli.set_up_logging()
        from plsc_tf.jobs.evaluate.command import evaluate

        return _table(evaluate(self.settings, parts=self._parts()))

    def predict(self):
        """Embeds the images of `predict_reader` with the model in checkpoint_dir.

        In a cluster, all workers must call this method; each one embeds all images.

        Returns:
            float32 `[num_images, emb]`.

        Raises:
            ValueError: predict_reader is not set, or does not yield images.
        """
        cli.set_up_logging()
        from plsc_tf.jobs import trained, workers

        rule = "predict embeds the images of a reader"
        advice = "Set entry.predict_reader to a function that returns an iterator"
        require(self.predict_reader is not None, rule, advice)
        settings, parts = self.settings, self._parts()
        with workers.joined(settings) as joined:
            model = trained.load(settings, parts=parts, strategy=joined.local_strategy)
            return _embed(model, self.predict_reader)

    def convert_for_prediction(self):
        """Exports the model in checkpoint_dir to model_save_dir as a SavedModel.

        In a cluster, the chief exports, and the other workers wait for it.

        Returns:
            a dict with the rows of the printed table; None on workers other than the
            chief.
        """
        cli.set_up_logging()
        from plsc_tf.jobs import export, workers

        settings = self.settings
        if not settings.export.export_dir and settings.checkpoints.checkpoint_dir:
            settings = settings.replace(export_dir=settings.checkpoints.model_save_dir)
        parts, rows = self._parts(), None
        with workers.joined(settings) as joined:
            if joined.group.is_chief:
                rows = export.export_checkpoint(settings, parts, joined.local_strategy)
            joined.group.gather("the chief has finished", None)
        return _table(rows)

    def _parts(self):
        """Returns the objects given in Python instead of options, as `Parts`."""
        from plsc_tf.data.readers import python
        from plsc_tf.jobs.parts import Parts

        pairs = None
        if self.test_reader is not None:
            pairs = {"test_reader": python.pairs_from_reader(self.test_reader)}
        return Parts(self._backbone, self._optimizer, self.train_reader, pairs)


def _embed(found, reader):
    """Embeds a reader's images with `found`, the result of `trained.load`."""
    from plsc_tf.data.readers import python
    from plsc_tf.jobs.builders.data import load_batches

    def labeled():
        for item in python.samples(reader):
            yield item[0] if isinstance(item, tuple) else item, 0

    source = python.from_generator(labeled, name="predict_reader")
    size = found.settings.evaluation.test_batch_size
    batches = load_batches(found.settings, size, "test", source).epoch(0)
    return np.concatenate([found.model.embed(images, size) for images, _ in batches])


def _table(rows):
    """Prints rows as a table and returns them as a dict; returns None for None."""
    cli.print_table(rows)
    return None if rows is None else dict(rows)


def _dotted(model):
    """Returns the dotted name of a user's network for messages and checkpoints."""
    if isinstance(model, str):
        return model.replace(":", ".")
    kind = model if hasattr(model, "__qualname__") else type(model)
    return f"{kind.__module__}.{kind.__qualname__}".replace("<locals>.", "")
