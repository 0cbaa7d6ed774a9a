"""Python objects that a training run uses in place of options."""

import dataclasses
import hashlib
from collections.abc import Callable, Mapping, Sequence

import keras
import tensorflow as tf
from absl import logging

from plsc_tf.data.pairs import Pairs
from plsc_tf.data.readers import python
from plsc_tf.data.source import Source
from plsc_tf.requirements import prefix_errors, require

# This name in `val_targets` selects the accuracy on the trained classes.
TEST_SPLIT = "test"


@dataclasses.dataclass(frozen=True)
class Parts:
    """Python objects that replace those that the options would create.

        run.train(settings, parts=Parts(optimizer=keras.optimizers.Adam(1e-3)))

    A run's checkpoints list the parts it was given; pass them again to resume the run.

    Attributes:
        backbone: replaces model_name. Accepts the same values as
            `plsc_tf.backbones.from_user`: a Keras model from images `[h, w, 3]` to
            embeddings, a `BaseModel`, or a function that makes one. It cannot be
            combined with options of the library's networks.
        optimizer: replaces the groups optimizer and learning_rate, including
            weight_decay and max_gradient_norm. A Keras optimizer, with its own
            learning rate or schedule, clipping and weight decay, or its name.
        source: training data; replaces dataset_name. A `Source`, a `tf.data.Dataset`
            of single `(image, label)` examples, or a reader as in `Entry`: a function
            that returns an iterator of such examples.
        pairs: verification sets `{name: Pairs}`; replaces val_targets.
    """

    backbone: object = None
    optimizer: keras.optimizers.Optimizer | str | None = None
    source: Source | tf.data.Dataset | Callable | None = None
    pairs: Mapping[str, Pairs] | None = None

    def given(self):
        """Returns the sorted names of the parts that a checkpoint cannot store."""
        names = ("backbone", "optimizer", "source")
        return [name for name in names if getattr(self, name) is not None]

    def drop_replaced_targets(self, settings):
        """Returns the settings without the val_targets that `pairs` replaces."""
        if self.pairs is None:
            return settings
        targets = settings.evaluation.val_targets
        replaced = ",".join(name for name in targets if name != TEST_SPLIT)
        if replaced and "val_targets" in settings.given:
            message = "No effect here: val_targets=%s (pairs from Python replace them)."
            logging.info(message, replaced)
        kept = tuple(name for name in targets if name == TEST_SPLIT)
        return settings.replace(val_targets=kept)

    def remark(self):
        """Returns a sentence that lists the parts given in Python, or ""."""
        names = ", ".join(self.given())
        return f"Given in Python, whatever the options say: {names}." if names else ""

    def open_source(self, settings):
        """Returns the training data as a `Source`, or None if none was given.

        Args:
            settings: the `Settings`, which give the number of classes and examples.

        Raises:
            ValueError: `source` is not data, or an option applies only to files.
        """
        if self.source is None:
            return None
        dataset = settings.dataset
        rule = "labels_offset does not apply to data from Python"
        require(not dataset.labels_offset, rule, "Leave it out, and change your source")
        # The defaults describe PLSC's data set, not this one.
        counts = {"num_classes": settings.if_given("num_classes")}
        counts["num_examples"] = settings.if_given("num_sample_per_epoch")
        if isinstance(self.source, tf.data.Dataset):
            return python.from_dataset(self.source, **counts)
        return python.from_reader(self.source, **counts)

    def checksums(self):
        """Returns `{name: checksum}` of the parts that all workers must share."""
        if not isinstance(self.backbone, keras.Model) or not self.backbone.built:
            return {}
        digest = hashlib.sha256()
        for weight in self.backbone.weights:
            digest.update(keras.ops.convert_to_numpy(weight).tobytes())
        return {"weights of the backbone": digest.hexdigest()}


# With these parts, the options alone describe the training.
NONE = Parts()


def copy_to_strategy(backbone):
    """Returns a backbone whose variables belong to the current strategy.

    Call it inside `strategy.scope()`.

    Args:
        backbone: see `Parts`. A built Keras model is copied with its weights; anything
            else is returned as it is, to be built later.

    Raises:
        ValueError: the Keras model cannot be copied.
    """
    if not isinstance(backbone, keras.Model) or not backbone.built:
        return backbone
    rule = f"{type(backbone).__name__} cannot be copied to the replicas"
    advice = "Pass a function that creates it instead of the model"
    with prefix_errors(rule, TypeError, NotImplementedError, advice=advice):
        copy = keras.models.clone_model(backbone)
    copy.set_weights(backbone.get_weights())
    copy.trainable = backbone.trainable
    for layer, original in zip(copy.layers, backbone.layers, strict=True):
        layer.trainable = original.trainable
    return copy


def check_resumed(path: str, stored: dict, given: Sequence[str]) -> None:
    """Checks that a run is resumed with the same kinds of parts as before.

    Args:
        path: path of the checkpoint.
        stored: the checkpoint's state dict.
        given: `Parts.given()` of the current parts.

    Raises:
        ValueError: the parts differ.
    """
    before = stored.get("given", [])
    then, now = (" and ".join(parts) or "no parts" for parts in (before, given))
    advice = f"Pass the same, or start from checkpoint_dir={path} in a new folder"
    same, rule = sorted(before) == sorted(given), f"{path} was trained with {then}"
    require(same, f"{rule} from Python", advice, given=now)
