"""A step of dimension-reduction training beside an ordinary one, by turns.

The projection is random, so all `line_search_trials` are run unless the first one is
accepted by chance. The last line printed is one JSON object.

    python -m benchmarks.reduced_step
    python -m benchmarks.reduced_step --model_name=resnet10 --image_size=48
"""

import dataclasses
import functools
import json
import os
import statistics
import tempfile
import time

from benchmarks import machine, options
from plsc_tf.flags.option import OptionGroup, option


class StepCase(OptionGroup):
    """The network, the batch and the space."""

    model_name: str = option("resnet10", "name of the backbone")
    image_size: int = option(64, "height and width of the images", lower=8)
    emb_size: int = option(128, "length of the embeddings", lower=1)
    num_classes: int = option(1000, "classes of the head", lower=2)
    global_batch: int = option(64, "images of a step", lower=1)
    num_replicas: int = option(1, "replicas", lower=1)
    n_component: int = option(32, "dimensions, k", lower=1)
    trials: int = option(2, "trials of a line search", lower=1)
    scope: str = option("backbone", "weights to reduce", choices="backbone all")
    steps: int = option(6, "timed steps of each kind", lower=1)


def main(case):
    """Measures one case and prints it."""
    import numpy as np

    from plsc_tf.parallel.strategy import strategy

    rng = np.random.default_rng(0)
    shape = (case.global_batch, case.image_size, case.image_size, 3)
    images = rng.integers(0, 256, shape).astype(np.uint8)
    labels = rng.integers(0, case.num_classes, case.global_batch)
    with tempfile.TemporaryDirectory() as folder:
        under = strategy(case.num_replicas)
        plain, (reduced, stepper) = _plain(case, under), _reduced(case, under, folder)
        seconds, cpu, trials = {}, {}, []
        with machine.watch_others() as others:
            for turn in range(case.steps + 2):
                for name, model in (("plain", plain), ("reduced", reduced)):
                    begun, used = time.perf_counter(), time.process_time()
                    model.train_on_batch(images, labels)
                    if turn >= 2:  # graphs are made in the first one
                        wall = time.perf_counter() - begun
                        seconds.setdefault(name, []).append(wall)
                        used = time.process_time() - used
                        cpu.setdefault(name, []).append(used)
                if turn >= 2:
                    trials.append(len(stepper.last["trials"]))
    ratio = [r / p for r, p in zip(seconds["reduced"], seconds["plain"], strict=True)]
    cpu_ratio = [r / p for r, p in zip(cpu["reduced"], cpu["plain"], strict=True)]
    figures = {
        "step_ratio": round(statistics.median(ratio), 2),
        "processor_ratio": round(statistics.median(cpu_ratio), 2),
        "seconds": {
            name: [round(s, 3) for s in all_] for name, all_ in seconds.items()
        },
        "trials": trials,
        "weights": reduced.trainer.updater.space.size,
        **dataclasses.asdict(case),
        **others,
        "machine": machine.describe(),
    }
    print(json.dumps(figures))


def _model(case, under):
    import keras

    import plsc_tf

    keras.utils.set_random_seed(0)
    with under.scope():
        backbone = plsc_tf.backbones.build(
            case.model_name,
            embedding_size=case.emb_size,
            image_shape=(case.image_size, case.image_size, 3),
        )
        return plsc_tf.Classifier(backbone, plsc_tf.ShardedHead(case.num_classes))


def _plain(case, under):
    import plsc_tf

    model = _model(case, under)
    with under.scope():
        model.compile(plsc_tf.Momentum(1e-6))
    return model


def _reduced(case, under, folder):
    """(model, its `ReducedStepper`) in a random space."""
    import numpy as np

    import plsc_tf
    from plsc_tf.boost import projection, trajectory
    from plsc_tf.boost.reduced_step import (
        ReducedStepper,
        ReducedUpdater,
        ReductionPlan,
    )
    from plsc_tf.flags.boost import Boost

    model = _model(case, under)
    whole = trajectory.layout_of(model, case.scope)
    rng = np.random.default_rng(1)
    matrix = rng.standard_normal((case.n_component, whole.size), np.float32)
    matrix /= np.linalg.norm(matrix, axis=1, keepdims=True)
    path = os.path.join(folder, "pca_mat.npy")
    np.save(path, matrix)
    plan = ReductionPlan(
        projection=projection.Projection(path),
        layout=whole,
        options=Boost(dim_reduce_alpha=1e-6, line_search_trials=case.trials),
    )
    model.trainer.updater_class = functools.partial(ReducedUpdater, plan=plan)
    with under.scope():
        model.compile(plsc_tf.Momentum(1e-6))
    steps = ReducedStepper(model, plan)
    model.trainer.custom_step = steps.step
    return model, steps


if __name__ == "__main__":
    options.run(main, StepCase, __doc__)
