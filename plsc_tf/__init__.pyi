"""The public names for type checkers; `__init__.py` reads them from here."""

from plsc_tf import backbones as backbones, testing as testing
from plsc_tf.data.alignment import align_face as align_face
from plsc_tf.data.load import load as load
from plsc_tf.data.pairs import load_pairs as load_pairs
from plsc_tf.entry import Entry as Entry
from plsc_tf.evaluation.verification import verify_pairs as verify_pairs
from plsc_tf.heads.adaptive_margins import (
    ADAFACE as ADAFACE,
    CURRICULARFACE as CURRICULARFACE,
    MAGFACE as MAGFACE,
    AdaFace as AdaFace,
    CurricularFace as CurricularFace,
    MagFace as MagFace,
)
from plsc_tf.heads.heads import DenseHead as DenseHead, ShardedHead as ShardedHead
from plsc_tf.heads.linear_cross_entropy import (
    linear_cross_entropy as linear_cross_entropy,
)
from plsc_tf.heads.loss_layer import LinearCrossEntropy as LinearCrossEntropy
from plsc_tf.heads.margins import (
    ARCFACE as ARCFACE,
    COSFACE as COSFACE,
    SOFTMAX as SOFTMAX,
    SPHEREFACE as SPHEREFACE,
    InterclassFilter as InterclassFilter,
    MarginLoss as MarginLoss,
    Margins as Margins,
    Target as Target,
)
from plsc_tf.jobs.trained import load_model as load_model
from plsc_tf.parallel.strategy import strategy as strategy
from plsc_tf.reporting.trackers import Tracker as Tracker
from plsc_tf.serving.client import Client as Client, FaceService as FaceService
from plsc_tf.serving.export import export_saved_model as export_saved_model
from plsc_tf.serving.gallery import Gallery as Gallery
from plsc_tf.serving.plsc_server import PLSCServer as PLSCServer
from plsc_tf.training.callbacks import (
    Tracking as Tracking,
    Verification as Verification,
)
from plsc_tf.training.checkpoint import Checkpoint as Checkpoint
from plsc_tf.training.classifier import Classifier as Classifier
from plsc_tf.training.loss_scale import LossScale as LossScale
from plsc_tf.training.optimizers import Momentum as Momentum
from plsc_tf.training.schedules import WarmUp as WarmUp
from plsc_tf.training.sentinel import Sentinel as Sentinel

__version__: str
