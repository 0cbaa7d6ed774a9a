"""The losses of 20 steps; as a program, prints those of one worker of several as JSON.

python -m tests.conformance.loss_curve 127.0.0.1:5001,… 0
"""

import json
import sys

import keras

import plsc_tf
from plsc_tf.parallel.cluster import Cluster
from plsc_tf.parallel.group import Group
from plsc_tf.parallel.strategy import cluster_strategy
from plsc_tf.training.ending import Votes
from tests.networks import convolved
from tests.training.checkpointed import Watch

CLASSES = 11  # divides by none of 2, 3 and 4
# Arguments of `losses`.
CASES = {
    "float32": {},
    "float64": {"dtype": "float64"},
    "synchronized": {"global_batch": 12, "synchronized": True},
    "partial_fc": {"sample_rate": 0.5},
    # The first steps overflow and are skipped.
    "loss_scale": {"loss_scale": 2.0**126},
}


def losses(  # noqa: PLR0913 - a case is what it is
    strategy,
    group,
    dtype="float32",
    global_batch=10,
    *,
    synchronized=False,
    sample_rate=1.0,
    loss_scale=None,
):
    """Trains a small network through the whole pipeline.

    Returns:
        (20 losses, the sums of the class weights, row by row).
    """
    keras.config.set_floatx(dtype)
    keras.config.set_dtype_policy(dtype)
    keras.utils.set_random_seed(1)
    norm = [keras.layers.BatchNormalization(synchronized=True)] if synchronized else []
    with strategy.scope():
        layers = [*norm, keras.layers.PReLU(shared_axes=[1, 2])]
        head = plsc_tf.ShardedHead(CLASSES, scale=16.0, seed=2, sample_rate=sample_rate)
        model = plsc_tf.Classifier(convolved((16, 16, 3), 16, *layers), head)
        model.trainer.group = group
        model.trainer.votes = Votes(group) if group.size > 1 else None
        scale = plsc_tf.LossScale(loss_scale) if loss_scale else None
        model.compile(plsc_tf.Momentum(0.001), loss_scale=scale)
    size = {"image_size": (16, 16), "num_classes": CLASSES, "num_examples": 77}
    data = plsc_tf.load("mock", batch_size=global_batch, seed=3, **size)
    values = []

    def keep(step):
        values.append(model.trainer.step_result.get("loss"))  # None: skipped

    model.fit(data, epochs=9, stop_at_step=20, callbacks=[Watch(keep)], verbose=0)
    return values, head.weights_as_numpy().sum(axis=1).tolist()


def main(addresses, index):
    """Runs every case as one worker of a cluster."""
    cluster = Cluster(tuple(addresses.split(",")), int(index), "the test")
    group = Group(cluster, timeout_s=120)
    strategy = cluster_strategy(cluster)
    curves = {name: losses(strategy, group, **case) for name, case in CASES.items()}
    sys.stdout.write(json.dumps(curves) + "\n")
    group.leave()


if __name__ == "__main__":
    main(*sys.argv[1:])
