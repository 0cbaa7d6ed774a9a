"""From settings to the things of a run: data, model, verification sets."""

import keras
from absl import logging

from plsc_tf import backbones
from plsc_tf.data import load as data_load
from plsc_tf.data.images import Augmentation
from plsc_tf.data.pipeline import Batches, PipelineOptions
from plsc_tf.data.request import DataRequest
from plsc_tf.evaluation.verification import FOLDS
from plsc_tf.heads.dense import DenseHead
from plsc_tf.heads.margins import SOFTMAX, Margins
from plsc_tf.heads.sharded import ShardedHead
from plsc_tf.settings import Settings
from plsc_tf.training.classifier import Classifier

# This name in `val_targets` means accuracy on the classes that were trained.
TEST_SPLIT = "test"


def data_request(settings, split="train"):
    """What the settings ask of a data set."""
    dataset = settings.dataset
    return DataRequest(
        dataset_dir=dataset.dataset_dir,
        split=split,
        train_files=dataset.train_files,
        num_classes=_asked_classes(settings),
        num_examples=dataset.num_sample_per_epoch,
        image_size=settings.preprocessing.image_size,
        labels_offset=dataset.labels_offset,
        min_images_per_class=dataset.min_images_per_class,
        seed=settings.performance.seed,
    )


def augmentation(preprocessing):
    """The augmentation that the preprocessing flags describe."""
    crop = preprocessing.random_resized_crop
    return Augmentation(
        flip=0.5 if preprocessing.random_flip else 0.0,
        rotate=preprocessing.random_rotate,
        shift=preprocessing.random_shift,
        crop_scale=(crop, 1.0) if crop < 1 else None,
        zoom=preprocessing.random_zoom,
        shear=preprocessing.random_shear,
        color_jitter=preprocessing.color_jitter,
        grey=preprocessing.random_grey,
        cutout=preprocessing.cutout,
    )


def load_batches(settings, global_batch_size, split="train"):
    """Opens the training data as global batches.

    Raises:
        ValueError: num_classes does not fit the data.
    """
    given = settings.preprocessing
    training = split == "train"
    options = PipelineOptions(
        image_size=given.image_size,
        augmentation=augmentation(given) if training else None,
        seed=settings.performance.seed,
        shuffle=training,
        shuffle_buffer_size=given.shuffle_buffer_size,
        num_parallel_batches=given.num_parallel_batches,
        prefetch_buffer_size=given.prefetch_buffer_size,
        num_preprocessing_threads=given.num_preprocessing_threads,
        use_caching=given.datasets_use_caching and training,
    )
    module = data_load.find(settings.dataset.dataset_name)
    source = module.examples(data_request(settings, split))
    batches = Batches(source, global_batch_size, options=options)
    _check_classes(settings, batches)
    return batches


def _asked_classes(settings):
    """The number of classes to hand to the data set; None lets the data say.

    The default of num_classes is PLSC's data set's, not the user's word on this one.
    """
    dataset = settings.dataset
    left_alone = dataset.num_classes == Settings().dataset.num_classes
    countable = dataset.dataset_name != "mock" and not dataset.train_files
    return None if left_alone and countable else dataset.num_classes


def _check_classes(settings, batches):
    known, asked = batches.num_classes, settings.dataset.num_classes
    if known is None or known == asked:
        return
    name = settings.dataset.dataset_name
    default = Settings().dataset.num_classes
    if known > asked or asked == default:
        raise ValueError(
            f"num_classes={asked}, but the data set '{name}' has {known} classes "
            f"(labels 0…{known - 1}). Pass --num_classes={known}."
        )
    logging.warning(
        "num_classes=%d, but the data set '%s' has %d classes: the others get no "
        "example.",
        asked,
        name,
        known,
    )


def load_test(settings):
    """Opens the data set's test split where `val_targets` names it, else None."""
    evaluation = settings.evaluation
    if not evaluation.with_test or TEST_SPLIT not in evaluation.val_targets:
        return None
    return load_batches(settings, evaluation.test_batch_size, split=TEST_SPLIT)


def load_pairs(settings):
    """Opens the verification sets: `{name: Pairs}`."""
    if not settings.evaluation.with_test:
        return {}
    pairs = {}
    for target in settings.evaluation.val_targets:
        if target == TEST_SPLIT:
            continue
        found = data_load.load_val(
            settings.dataset.dataset_name, data_request(settings), target
        )
        if len(found) < FOLDS:
            raise ValueError(
                f"The verification set '{target}' must have at least {FOLDS} pairs, "
                f"one for each fold. Received: {len(found)} pairs."
            )
        name = found.name if found.name not in pairs else target
        pairs[name] = found
    return pairs


def build_model(settings, strategy):
    """Builds backbone and head under a strategy; not compiled yet."""
    head = settings.head
    keras.utils.set_random_seed(settings.performance.seed)
    margins = Margins(
        m1=head.margin1, m2=head.margin, m3=head.margin3, gradient=head.margin_gradient
    )
    kind = ShardedHead if head.loss_type.startswith("dist_") else DenseHead
    with strategy.scope():
        return Classifier(
            _build_backbone(settings),
            kind(
                num_classes=settings.dataset.num_classes,
                margins=SOFTMAX if head.loss_type.endswith("softmax") else margins,
                scale=head.scale,
                seed=settings.performance.seed,
            ),
        )


def _build_backbone(settings):
    """A network of the library by name, or the user's own by dotted path."""
    model = settings.model
    arguments = {
        "embedding_size": model.emb_size,
        "image_shape": (*settings.preprocessing.image_size, 3),
    }
    if "." in model.model_name:
        if (
            model.dropout is not None
            or model.model_options
            or (model.synchronized_batch_norm)
        ):
            raise ValueError(
                "dropout, model_options and synchronized_batch_norm are for the "
                "library's networks; your own decides itself. Received: "
                f"model_name={model.model_name!r}"
            )
        return backbones.from_user(model.model_name, **arguments)
    return backbones.build(
        model.model_name,
        dropout=model.dropout,
        synchronized_batch_norm=model.synchronized_batch_norm,
        **arguments,
        **model.backbone_options(),
    )
