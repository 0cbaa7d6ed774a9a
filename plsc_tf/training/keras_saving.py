"""Keras's and TensorFlow's own ways of saving, none of which sees a head's shards.

Shards are plain variables of their replicas, in no list that Keras or TensorFlow goes
through: a file written in these ways would lack them without a word.
"""

import keras

ADVICE = (
    "Use the callback plsc_tf.Checkpoint(directory) and its restore(model) for a "
    "training, plsc_tf.load_model(directory) for its weights; the methods of the same "
    "name of model.backbone for the embedding network alone; "
    "plsc_tf.export_saved_model(model, path) for serving."
)
# Callbacks that would come to the methods below, after an epoch or more of work.
# Not every version of Keras has all of them.
CALLBACKS = ("BackupAndRestore", "ModelCheckpoint", "OrbaxCheckpoint")


class NoKerasSaving:
    """Refuses what would leave out the head; a mixin, before `keras.Model`.

    Every method raises a ValueError that names what to use instead.
    """

    def save(self, *args, **kwargs):
        """Refused: the file would lack the head's classes."""
        raise refusal("model.save")

    def save_weights(self, *args, **kwargs):
        """Refused: the file would lack the head's classes."""
        raise refusal("model.save_weights")

    def load_weights(self, *args, **kwargs):
        """Refused: no file of Keras has the head's classes."""
        raise refusal("model.load_weights")

    def export(self, *args, **kwargs):
        """Refused: Keras would export what training needs."""
        raise refusal("model.export")

    def get_weights(self):
        """Refused: the list would lack the head's classes."""
        raise refusal("model.get_weights")

    def set_weights(self, weights):
        """Refused: the list lacks the head's classes."""
        raise refusal("model.set_weights")

    def get_state_tree(self, *args, **kwargs):
        """Refused: the tree would lack the head's classes."""
        raise refusal("model.get_state_tree")

    def set_state_tree(self, state_tree):
        """Refused: the tree lacks the head's classes."""
        raise refusal("model.set_state_tree")

    def get_config(self):
        """Refused: it is the beginning of `keras.saving.save_model` and of pickling."""
        raise refusal("Saving by Keras")

    def save_own_variables(self, store):
        """Refused: it is what all of Keras's files of weights begin with."""
        raise refusal("Saving by Keras")

    def load_own_variables(self, store):
        """Refused: it is what loading any of Keras's files of weights begins with."""
        raise refusal("Loading by Keras")

    def _trackable_children(self, save_type="checkpoint", **kwargs):
        """Refused: `tf.train.Checkpoint` and `tf.saved_model.save` go this way."""
        raise refusal("Saving by TensorFlow")


def check_callbacks(callbacks):
    """Refuses callbacks that would save or keep the model without its head.

    Args:
        callbacks: what a user hands to `fit`: a callback, a list of them, or None.

    Raises:
        ValueError: names the callback, and what to use instead.
    """
    kinds = [getattr(keras.callbacks, name, None) for name in CALLBACKS]
    kinds = tuple(kind for kind in kinds if kind is not None)
    found = getattr(callbacks, "callbacks", callbacks) or []
    for callback in found if isinstance(found, (list, tuple)) else [found]:
        if isinstance(callback, kinds):
            raise refusal(type(callback).__name__)
        if getattr(callback, "restore_best_weights", False):
            raise ValueError(
                f"{type(callback).__name__}(restore_best_weights=True) would take back "
                "the embedding network and leave the head as it is. Use "
                "plsc_tf.Checkpoint(directory, save_best=True), which keeps the best "
                "weights of both."
            )


def refusal(what):
    """The error that says why something is not done, and what to use."""
    return ValueError(f"{what} would leave out the class weights of the head. {ADVICE}")
