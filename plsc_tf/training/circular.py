"""Names of classes whose modules import the modules that name them in annotations."""

import typing

if typing.TYPE_CHECKING:
    from plsc_tf.training.checkpoint import Checkpoint as Checkpoint
    from plsc_tf.training.classifier import Classifier as Classifier
    from plsc_tf.training.trainer import Trainer as Trainer
else:
    Checkpoint = Classifier = Trainer = typing.Any
