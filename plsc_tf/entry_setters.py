"""The setters of PLSC's `Entry`, of 0.1 and 0.2, each for the option it sets."""

import os

from absl import logging

from plsc_tf import dotted_paths
from plsc_tf import param_attr as param_attr_options
from plsc_tf.flags.option import Secret
from plsc_tf.options.option_names import unknown_option
from plsc_tf.options.settings import known_options

# PLSC 0.2's kinds of combined margin: what m1, m2 and m3 are called here.
_MARGINS = {"m1": "margin1", "m2": "margin", "m3": "margin3"}
_NEUTRAL = {"m1": 1.0, "m2": 0.0, "m3": 0.0}
_OWN_MARGINS = {
    "arcface": ("m1", "m2", "m3"),
    "cosface": ("m3",),
    "sphereface": ("m1",),
}


class Setters:
    """Collects values of options, each checked when it is set.

    Args:
        **options: first values.

    Raises:
        ValueError: an unknown option, or a value that is not allowed.
    """

    def __init__(self, **options):
        self._values = {}
        self._backbone = self._optimizer = None
        self._model_parallel = None
        self._set(**options)

    def set_val_targets(self, targets):
        """Verification sets, as "lfw,cfp_fp" or a list."""
        if isinstance(targets, str):
            targets = [part.strip() for part in targets.split(",") if part.strip()]
        self._set(val_targets=targets)

    def set_train_batch_size(self, size):
        """Images per replica and step."""
        self._set(batch_size=size)

    def set_test_batch_size(self, size):
        """Images per step of a verification."""
        self._set(test_batch_size=size)

    def set_mixed_precision(
        self,
        use_fp16,
        init_loss_scaling=1.0,
        incr_every_n_steps=2000,
        decr_every_n_nan_or_inf=2,
        incr_ratio=2.0,
        decr_ratio=0.5,
        use_dynamic_loss_scaling=True,
        amp_lists=None,
    ):
        """Half precision and the rule of its loss scale.

        Args:
            use_fp16: whether to train the backbone in float16.
            init_loss_scaling: first loss scale.
            incr_every_n_steps: finite steps in a row before it grows.
            decr_every_n_nan_or_inf: steps in a row that are not finite before it
                shrinks.
            incr_ratio: factor of growth.
            decr_ratio: factor of shrinking.
            use_dynamic_loss_scaling: False keeps the first one.
            amp_lists: layers by name or class, "white:Dense;black:PReLU", or an object
                with the attributes white_list and black_list, as Paddle's.
        """
        self._set(use_fp16=use_fp16)
        self._set_unless_default(
            init_loss_scaling=init_loss_scaling,
            incr_every_n_steps=incr_every_n_steps,
            decr_every_n_nan_or_inf=decr_every_n_nan_or_inf,
            incr_ratio=incr_ratio,
            decr_ratio=decr_ratio,
            use_dynamic_loss_scaling=use_dynamic_loss_scaling,
            amp_lists=_amp_lists(amp_lists),
        )

    def set_hdfs_info(
        self, fs_name, fs_ugi, fs_dir_for_save=None, fs_checkpoint_dir=None
    ):
        """A file system to copy checkpoints from before and to after the training.

        Args:
            fs_name: its address, as "hdfs://namenode:9000".
            fs_ugi: "user,password"; shown and saved nowhere.
            fs_dir_for_save: folder that model_save_dir is copied into.
            fs_checkpoint_dir: folder that is copied into checkpoint_dir.
        """
        self._set(fs_name=fs_name, fs_ugi=fs_ugi)
        self._set_unless_default(
            fs_dir_for_save=fs_dir_for_save or "",
            fs_checkpoint_dir=fs_checkpoint_dir or "",
        )

    def set_model_save_dir(self, directory):
        """Folder of the run; of `convert_for_prediction`: of the export."""
        self._set(model_save_dir=_path(directory))

    def set_checkpoint_dir(self, directory):
        """Folder of the checkpoint to start from, verify, export or predict with."""
        self._set(checkpoint_dir=_path(directory))

    def set_dataset_dir(self, directory):
        """Root folder of the data set, with label.txt."""
        self._set(dataset_dir=_path(directory))

    def set_train_image_num(self, num):
        """Images of an epoch, where they cannot be counted."""
        self._set(num_sample_per_epoch=num)

    # The manual calls it so in a remark.
    set_image_num = set_train_image_num

    def set_calc_acc(self, calc):
        """Whether to compute top-1 and top-5 accuracy while training."""
        self._set(calc_acc=calc)

    def set_class_num(self, num):
        """Number of classes."""
        self._set(num_classes=num)

    def set_emb_size(self, size):
        """Length of an embedding."""
        self._set(emb_size=size)

    def set_model(self, model):
        """A network of your own.

        Args:
            model: a `plsc_tf.models.base_model.BaseModel` or its class, a Keras model
                from images [h, w, 3] to embeddings, a function that makes one, or the
                dotted path of any of these; None: the one that model_name names.

        Raises:
            ValueError: it is none of these.
        """
        if isinstance(model, str) and not all(dotted_paths.split(model)):
            raise ValueError(
                "set_model takes a network of your own or its dotted path, as in "
                f"'package.module.Name'. Received: {model!r}; a network of the library "
                f"is named by set_model_name({model!r})."
            )
        # Not by class: Keras takes seconds to import, and may not be needed yet.
        known = isinstance(model, str) or hasattr(model, "build_network")
        if not (known or callable(model) or model is None):
            raise ValueError(
                "set_model takes a BaseModel, a Keras model, or a function that makes "
                f"one. Received: {model!r} of type {type(model).__name__}."
            )
        self._backbone = model

    def set_model_name(self, name):
        """A network of the library, by name (PLSC 0.2)."""
        self._backbone = None
        self._set(model_name=name)

    def set_train_epochs(self, num):
        """Epochs to train."""
        self._values.pop("stop_at_step", None)
        self._set(num_epochs=num)

    def set_train_steps(self, num):
        """Steps to train, instead of epochs (PLSC 0.2)."""
        self._values.pop("num_epochs", None)
        self._set(stop_at_step=num)

    def set_warmup_epochs(self, num):
        """Epochs in which the learning rate grows."""
        self._set(warmup_epochs=num)

    def set_loss_type(self, loss_type, m1=None, m2=None, m3=None):
        """The loss, whole on each replica or sharded (dist_).

        Args:
            loss_type: "arcface", "softmax", "dist_softmax", "dist_arcface" (PLSC 0.1);
                0.2's "cosface" and "sphereface", and all that --loss_type takes.
            m1: factor of the angle (PLSC 0.2).
            m2: angle added.
            m3: subtracted from the cosine.
        """
        loss = str(loss_type).lower().removeprefix("dist_")
        own = _OWN_MARGINS.get(loss, ("m2",))
        margins = {}
        for name, value in {"m1": m1, "m2": m2, "m3": m3}.items():
            if name in own or value not in (None, _NEUTRAL[name]):
                margins[_MARGINS[name]] = value
            else:
                margins[_MARGINS[name]] = None
        self._set(loss_type=loss_type)
        self._set_unless_default(**margins)

    def set_image_shape(self, shape):
        """(channels, height, width) of the images."""
        self._set(image_shape=shape)

    def set_optimizer(self, optimizer):
        """Any Keras optimizer, with its own learning rate or schedule, or its name.

        It stands instead of lr, lr_steps, warm-up and the scaling to the batch.

        Raises:
            ValueError: it is no optimizer.
        """
        if isinstance(optimizer, type):
            raise ValueError(
                "set_optimizer takes an optimizer, not its class. Received: "
                f"{optimizer.__name__}; write {optimizer.__name__}(learning_rate=...)."
            )
        named = isinstance(optimizer, str) or optimizer is None
        if not (named or hasattr(optimizer, "apply_gradients")):
            raise ValueError(
                "set_optimizer takes a Keras optimizer, as in keras.optimizers.SGD("
                f"learning_rate=0.1). Received: {optimizer!r} of type "
                f"{type(optimizer).__name__}; set_lr sets the learning rate alone."
            )
        self._optimizer = optimizer

    def set_with_test(self, with_test):
        """Whether to verify after each epoch."""
        self._set(with_test=with_test)

    def set_distfc_attr(self, param_attr=None, bias_attr=None):
        """How the head's weights begin and train, and how its biases begin.

        Args:
            param_attr: None for PLSC's own; a standard deviation; a Keras initializer
                or its name; or a dict or object with the fields of Paddle's ParamAttr:
                initializer, learning_rate (a factor), regularizer (a weight decay or
                `keras.regularizers.L2`), trainable.
            bias_attr: a value, or a constant Keras initializer; None: 0.

        Raises:
            ValueError: they are none of these.
        """
        self._set_unless_default(
            **param_attr_options.of_weights(param_attr),
            head_initial_bias=param_attr_options.of_biases(bias_attr),
        )

    def set_lr(self, rate):
        """Learning rate at a total batch of 1024."""
        self._set(learning_rate=rate)

    def set_lr_decay_factor(self, factor):
        """Factor of the learning rate at each boundary (PLSC 0.2)."""
        self._set(learning_rate_decay_factor=factor)

    def set_step_boundaries(self, boundaries):
        """Steps at which the learning rate decays (PLSC 0.2)."""
        self._set(lr_steps=boundaries)

    # PLSC 0.1 has them in its configuration only.
    set_lr_steps = set_step_boundaries

    def set_model_parallel(self, model_parallel):
        """Whether the classes are split over the replicas (PLSC 0.2)."""
        if model_parallel not in (True, False):
            raise ValueError(
                f"model_parallel must be True or False. Received: {model_parallel!r}."
            )
        self._model_parallel = bool(model_parallel)

    def set_sample_ratio(self, ratio):
        """Partial FC: share of the classes that take part in a step (PLSC 0.2)."""
        self._set(sample_rate=ratio)

    def set_max_last_checkpoint_num(self, num):
        """Newest checkpoints that are kept (PLSC 0.2)."""
        self._set(keep_checkpoint_max=num)

    def set_log_period(self, steps):
        """Steps between two lines of progress (PLSC 0.2)."""
        self._set(log_loss_every_n_iters=steps)

    def set_test_period(self, steps):
        """Steps between two verifications; 0: after each epoch (PLSC 0.2)."""
        self._set(eval_every_n_steps=steps)

    def set_use_quant(self, quant):
        """Accepted; PLSC 0.2 stores it and uses it nowhere."""
        if quant:
            logging.warning(
                "set_use_quant has no effect, as in PLSC. python -m plsc_tf.export "
                "writes quantised models."
            )

    def set_input_info(self, inputs):
        """The image's shape, from PLSC 0.2's description of the inputs.

        Args:
            inputs: list of dicts with "name" and "shape", of which the one with three
                numbers or four, the first of them the batch, is the image.

        Raises:
            ValueError: none of them is an image.
        """
        for one in inputs if isinstance(inputs, list | tuple) else ():
            shape = one.get("shape") if isinstance(one, dict) else None
            if len(shape or ()) >= 3:
                return self.set_image_shape(tuple(shape)[-3:])
        raise ValueError(
            "set_input_info needs a list of dicts, one of them with the shape "
            "(channels, height, width). "
            f"Received: {inputs!r}."
        )

    def _set(self, **values):
        known = known_options()
        for name, value in values.items():
            if name not in known:
                raise ValueError(
                    f"{unknown_option(name, known)} python -m plsc_tf.train --help "
                    "lists all options."
                )
            item = known[name]
            # As in a flag file: "3,28,28" is a shape.
            text = isinstance(value, str) and not isinstance(value, Secret)
            value = item.parse(value) if text else item.check(value)
            self._values[item.name] = value

    def _set_unless_default(self, **values):
        """Sets what differs from the default; the rest counts as not given."""
        self._set(**values)
        for name in values:
            item = known_options()[name]
            if self._values[item.name] == item.default:
                del self._values[item.name]


def _path(directory):
    """Text of a `pathlib.Path`; anything else as it is, for the option to check."""
    return os.fspath(directory) if isinstance(directory, os.PathLike) else directory


def _amp_lists(lists):
    if lists is None or isinstance(lists, str):
        return lists or ""
    if not (hasattr(lists, "white_list") or hasattr(lists, "black_list")):
        raise ValueError(
            'amp_lists must be text as "white:Dense;black:PReLU", or an object with '
            f"white_list and black_list. Received: {lists!r}."
        )
    parts = []
    for kind in ("white", "black"):
        names = sorted(getattr(lists, f"{kind}_list", None) or ())
        parts += [f"{kind}:{','.join(names)}"] if names else []
    return ";".join(parts)
