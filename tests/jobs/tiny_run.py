"""Settings of a run that takes seconds: small synthetic images, two replicas.

By default the run neither verifies nor exports, which would double its time; pass
`**FULL` to do both.
"""

from plsc_tf.options.settings import Settings

NETWORK = {
    "image_shape": (3, 16, 16),
    "model_name": "lenet",
    "dropout": 0.0,
    "preprocessing_name": "face",
    "emb_size": 8,
    "num_replicas": 2,
    "batch_size": 5,
}
TINY = {
    **NETWORK,
    "dataset_name": "mock",
    "num_classes": 7,
    "num_sample_per_epoch": 42,
    "num_epochs": 2,
    "learning_rate": 0.05,
    "lr_base_batch_size": 0,
    "val_targets": ("mock",),
    "with_test": False,
    "export_at_end": False,
    "tensorboard": False,
    "run_report": False,
}
FULL = {"with_test": True, "export_at_end": True}


def settings(folder, **changes):
    return Settings.from_values(**{**TINY, "model_save_dir": str(folder), **changes})


def on_one_replica(folder, **changes):
    """Settings of a run whose step takes half as long to trace as on two replicas."""
    return settings(folder, **{"num_replicas": 1, "batch_size": 10, **changes})


def as_flags(values):
    """Returns the flags of a command line for options by name."""
    texts = {
        name: ",".join(map(str, value)) if isinstance(value, tuple) else value
        for name, value in values.items()
    }
    return [f"--{name}={text}" for name, text in texts.items()]
