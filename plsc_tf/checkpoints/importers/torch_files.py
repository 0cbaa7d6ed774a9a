"""Reading what torch.save wrote, with PyTorch itself and without running a pickle."""

import inspect
import pickle
import zipfile

import numpy as np

# Errors of torch.load for damaged or foreign files.
_FAULTS = (
    pickle.UnpicklingError,
    EOFError,
    KeyError,
    LookupError,
    RuntimeError,
    TypeError,
    ValueError,
)


def load(path):
    """The object in a file of torch.save; its tensors stay in the file until read.

    With a PyTorch older than 2.1 they are read into memory at once.

    Args:
        path: a local file.

    Raises:
        ImportError: PyTorch is not installed.
        ValueError: the file is cut off, is no file of torch.save, or holds more than
            tensors and plain data.
    """
    try:
        import torch
    except ImportError as error:
        raise ImportError(
            f"Reading {path} takes PyTorch, which is not installed: "
            "pip install 'plsc_tf[torch]' (its CPU build is enough)."
        ) from error
    options = {"map_location": "cpu", "weights_only": True}
    # PyTorch maps files since 2.1, and only those of the zip form.
    if "mmap" in inspect.signature(torch.load).parameters:
        options["mmap"] = zipfile.is_zipfile(path)
    try:
        return torch.load(path, **options)
    except _FAULTS as error:
        first = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise ValueError(
            f"{path} is cut off, is no file of torch.save, or holds more than tensors "
            "and plain data, which is refused as it could run programs. "
            f"PyTorch {torch.__version__}: {first[:300]}"
        ) from None


def is_tensor(value):
    """Whether a loaded value is a tensor of numbers."""
    return hasattr(value, "detach") and hasattr(value, "numpy")


def to_numpy(tensor):
    """A tensor as float32; without a copy where it is one, so still in its file."""
    return np.asarray(tensor.detach().float().numpy())


def arrays(state):
    """The tensors of a state dict as `{name: array}`.

    DistributedDataParallel puts "module." before every name, which is taken off.

    Args:
        state: `{name: tensor}`.
    """
    found = {name: to_numpy(value) for name, value in state.items() if is_tensor(value)}
    if found and all(name.startswith("module.") for name in found):
        found = {name.removeprefix("module."): value for name, value in found.items()}
    return found
