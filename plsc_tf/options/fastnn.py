"""FastNN's hyper-parameter files, which name neither a head nor a verification set.

plsc_tf starts from PLSC's defaults, a margin head and the verification set lfw, which
no file of FastNN means.
"""

from absl import logging

from plsc_tf.flags.head import Head
from plsc_tf.flags.option import options_of
from plsc_tf.options.settings import known_options

# Options that no other system's file has.
MARKS = {
    "enable_paisoar",
    "protocol",
    "rdma_driver_config",
    "communication_policy",
    "tensor_fusion_max_bytes",
    "num_loss_chunks",
}
# Options that say something about the head, but not which one it is.
OF_ANY_HEAD = {"calc_acc", "label_smoothing"}


def assumptions(names):
    """Returns what FastNN trains and its files do not say, `{option: value}`.

    FastNN has plain softmax, no verification, and TF-Slim's weight decay, which acts on
    kernels only. Its learning rate, where a file has one, is not scaled to the batch.

    Args:
        names: of all options that files and the command line set.

    Returns:
        {} unless one of the options is FastNN's alone.
    """
    names, assumed = set(names), {}
    if not MARKS & names:
        return assumed
    if not names & {item.name for item in options_of(Head)} - OF_ANY_HEAD:
        assumed["loss_type"] = "softmax"
        if "no_weight_decay_on" not in names:
            assumed["no_weight_decay_on"] = ("norms", "biases", "prelus")
        if "learning_rate" in names and "lr_base_batch_size" not in names:
            assumed["lr_base_batch_size"] = 0
    if not names & {"val_targets", "with_test"}:
        assumed["with_test"] = False
    return assumed


def log_assumptions(settings):
    """Writes one line to the log if `assumptions` are part of the settings."""
    known, values = known_options(), settings.as_dict()
    words = [
        f"{name}={known[name].format(value)}"
        for name, value in assumptions(settings.given | settings.ignored).items()
        if values[name] == value
    ]
    if words:
        logging.info(
            "The options are those of a FastNN file. Assumed, as nothing says "
            "otherwise: %s. Other defaults are PLSC's; hparams/fastnn_defaults.cfg has "
            "FastNN's.",
            ", ".join(words),
        )
