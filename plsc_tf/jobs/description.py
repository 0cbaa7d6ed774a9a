"""A training and its head in words, for the log and the summary."""

from absl import logging

from plsc_tf.options.settings import select


def log_run(plan, model, batches, parts):
    """A few lines in the log: what is about to run.

    Args:
        plan: the `plsc_tf.jobs.run_plan.Plan`.
        model: the compiled `Classifier`.
        batches: the `Batches` it trains on.
        parts: the `Parts` that were given in Python.
    """
    settings = plan.settings
    logging.info(
        "%s: %s parameters, %s, %d-dimensional embeddings",
        settings.model.model_name,
        f"{model.backbone.count_params():,}",
        settings.precision.dtype,
        model.embedding_size,
    )
    logging.info("%s", _describe_head(model.head, settings.head))
    if parts.given():
        logging.info("%s", parts.remark())
    logging.info(
        "%s: %s images; %d replicas, %d images per step, %d steps per epoch, %d steps "
        "in all; learning rate %.4g",
        settings.dataset.dataset_name,
        f"{batches.num_examples:,}" if batches.num_examples else "?",
        model.strategy.num_replicas_in_sync,
        settings.training.global_batch_size,
        plan.steps_per_epoch,
        plan.total_steps,
        plan.rate,
    )
    options = [
        f"{item.name}={item.format(getattr(getattr(settings, group), item.name))}"
        for group in ("preprocessing", "learning_rate", "optimizer")
        for item in select([group])
        if item.name in settings.given
    ]
    if options:
        logging.info("Image and update options of this run: %s", ", ".join(options))


def _describe_head(head, given):
    """The head in words: loss, classes, and how they are held and worked on."""
    parts = [f"{given.loss_type} over {head.num_classes:,} classes: {head.loss}"]
    if head.sub_centers > 1:
        parts.append(
            f"{head.sub_centers} centers per class, of which the nearest counts"
        )
    if given.label_smoothing:
        parts.append(f"label smoothing {given.label_smoothing:g}")
    if given.head_learning_rate_factor != 1:
        parts.append(f"learning rate × {given.head_learning_rate_factor:g}")
    if not head.sharded:
        return "; ".join([*parts, "whole on each replica"])
    weight = head.arrays()["weight"]
    split = weight.split
    rows = ", ".join(f"{split.size(shard):,}" for shard in range(split.num_shards))
    parts.append(f"classes per replica: {rows}")
    if given.sample_rate < 1:
        parts.append(f"{given.sample_rate:.3g} of them sampled for each step")
    parts.append(f"in tiles of {head.rows_per_tile:,}")
    if given.head_dtype != "float32":
        parts.append(f"products in {given.head_dtype}")
    return "; ".join(parts)
