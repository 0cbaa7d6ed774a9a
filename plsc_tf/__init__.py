"""Large-scale classification in TensorFlow: class-sharded margin heads.

The public names are imported when first used, so that `import plsc_tf` and every
command's `--help` stay instant; importing TensorFlow alone takes seconds.
"""

import importlib as _importlib
import pathlib as _pathlib

__version__ = "0.1.0"

# A clone keeps `flags/`, `datasets/` and `hparams/` next to this package; an installed
# wheel has them inside. Either way they are `plsc_tf.flags` and so on.
_ROOT = _pathlib.Path(__file__).resolve().parent.parent
if (_ROOT / "setup.py").is_file() and (_ROOT / "flags").is_dir():
    __path__.append(str(_ROOT))

_PUBLIC = {
    "ADAFACE": "heads.adaptive_margins",
    "ARCFACE": "heads.margins",
    "COSFACE": "heads.margins",
    "CURRICULARFACE": "heads.adaptive_margins",
    "MAGFACE": "heads.adaptive_margins",
    "SOFTMAX": "heads.margins",
    "SPHEREFACE": "heads.margins",
    "AdaFace": "heads.adaptive_margins",
    "Checkpoint": "training.checkpoint",
    "Classifier": "training.classifier",
    "Client": "serving.client",
    "CurricularFace": "heads.adaptive_margins",
    "DenseHead": "heads.dense",
    "Entry": "entry",
    "FaceService": "serving.client",
    "Gallery": "serving.gallery",
    "InterclassFilter": "heads.margins",
    "LossScale": "training.loss_scale",
    "MagFace": "heads.adaptive_margins",
    "MarginLoss": "heads.margins",
    "Margins": "heads.margins",
    "Target": "heads.margins",
    "Momentum": "training.momentum",
    "PLSCServer": "serving.plsc_server",
    "Sentinel": "training.sentinel",
    "ShardedHead": "heads.sharded",
    "Verification": "training.callbacks",
    "WarmUp": "training.schedules",
    "align": "data.alignment",
    "export_saved_model": "serving.export",
    "load": "data.load",
    "load_model": "jobs.load_model",
    "load_pairs": "data.pairs",
    "strategy": "parallel.strategy",
    "verify_pairs": "evaluation.verification",
}
_MODULES = ("backbones", "testing")

__all__ = sorted([*_PUBLIC, *_MODULES])


def __getattr__(name):
    if name in _MODULES:
        return _importlib.import_module(f"{__name__}.{name}")
    if name in _PUBLIC:
        module = _importlib.import_module(f"{__name__}.{_PUBLIC[name]}")
        return getattr(module, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__():
    return sorted([*globals(), *__all__])
