"""A trained model again, from its checkpoint: to evaluate it, to export it."""

from plsc_tf.checkpoints import folder
from plsc_tf.evaluation.verification import verify_pairs
from plsc_tf.parallel.strategy import strategy as make_strategy
from plsc_tf.training import recipe, results, state

# What a checkpoint decides about the network, whatever the flags say.
OF_THE_NETWORK = (
    "model_name",
    "model_options",
    "emb_size",
    "image_shape",
    "dropout",
    "num_classes",
    "loss_type",
)


def load(settings, with_head=False):
    """Builds the model of a checkpoint and loads its weights.

    Args:
        settings: `checkpoint_dir`, or else `model_save_dir`, names the checkpoint or
            the run.
        with_head: also load the class weights.

    Returns:
        (model, path of the checkpoint, settings with the checkpoint's network).

    Raises:
        FileNotFoundError: there is no checkpoint.
    """
    storage = settings.storage
    path = folder.resolve(storage.checkpoint_dir or storage.model_save_dir)
    flags = folder.read_manifest(path)["state"].get("flags", {})
    settings = settings.replace(
        **{name: flags[name] for name in OF_THE_NETWORK if name in flags}
    )
    strategy = make_strategy(settings.performance.num_replicas)
    # Embedding needs no class, however many there are: the smallest head will do.
    classes = strategy.num_replicas_in_sync
    if with_head:
        classes = settings.dataset.num_classes
    model = recipe.build_model(settings.replace(num_classes=classes), strategy)
    state.restore_weights(path, model, with_head=with_head)
    return model, path, settings


def evaluate(settings):
    """Verifies a trained model; returns the rows of a table."""
    settings = settings.replace(with_test=True)
    with_head = recipe.TEST_SPLIT in settings.evaluation.val_targets
    model, path, settings = load(settings, with_head)
    rows = [("checkpoint", path)]
    test = recipe.load_test(settings)
    if test is not None:
        rows += [
            (f"test: {name}", value)
            for name, value in results.test_figures(model, test).items()
        ]
    for name, pairs in recipe.load_pairs(settings).items():
        result = verify_pairs(
            model.embed,
            pairs,
            batch_size=settings.evaluation.test_batch_size,
            image_size=model.image_size,
        )
        rows += [
            (f"{name}: accuracy", f"{result.accuracy:.5f} ± {result.std:.5f}"),
            (f"{name}: threshold", result.threshold),
            (
                f"{name}: val@FAR={result.far_target:g}",
                f"{result.val_at_far:.5f} ± {result.val_std:.5f}",
            ),
            (f"{name}: XNorm", result.xnorm),
            (f"{name}: pairs", result.num_pairs),
        ]
    return rows


def export(settings):
    """Exports a trained model; returns the rows of a table."""
    model, path, settings = load(settings)
    figures = results.read(settings.storage.model_save_dir).get("verification", {})
    exported = results.export(settings, model, path, figures)
    return [
        ("checkpoint", path),
        ("SavedModel", exported),
        ("serve it with", "tensorflow_model_server --model_base_path=<its parent>"),
    ]
