"""Large-scale classification in TensorFlow: class-sharded margin heads.

Public names are imported on first use: `import plsc_tf` and the commands' `--help` are
instant, because importing TensorFlow, which takes seconds, is deferred.
"""

import ast as _ast
import importlib as _importlib
import pathlib as _pathlib

__version__ = "0.1.0"

# In a clone, `flags/`, `datasets/` and `hparams/` are next to this package; in an
# installed wheel, they are inside it. In both cases, their names are `plsc_tf.flags`
# and so on.
_ROOT = _pathlib.Path(__file__).resolve().parent.parent
if (_ROOT / "setup.py").is_file() and (_ROOT / "flags").is_dir():
    __path__.append(str(_ROOT))

# `_PUBLIC` is {name: module}, read from the stub file's imports, such as
# `from plsc_tf.heads.margins import ARCFACE as ARCFACE`. Type checkers read them too.
_STUB = _ast.parse(_pathlib.Path(__file__).with_suffix(".pyi").read_text())
_PUBLIC = {
    alias.name: node.module
    for node in _STUB.body
    if isinstance(node, _ast.ImportFrom)
    for alias in node.names
}
__all__ = sorted(_PUBLIC)


def __getattr__(name):
    if name not in _PUBLIC:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    _importlib.import_module(f"{__name__}.versions").check()
    if _PUBLIC[name] == __name__:
        return _importlib.import_module(f"{__name__}.{name}")
    return getattr(_importlib.import_module(_PUBLIC[name]), name)


def __dir__():
    return sorted([*globals(), *__all__])
