"""Reading what torch.save wrote, with PyTorch itself and without running a pickle."""

import pickle
import zipfile

import numpy as np

# What a damaged or foreign file makes torch.load raise.
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
    try:
        # Only the zip form, which is PyTorch's since 1.6, can be mapped.
        mapped = zipfile.is_zipfile(path)
        return torch.load(path, map_location="cpu", weights_only=True, mmap=mapped)
    except _FAULTS as error:
        first = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise ValueError(
            f"{path} is cut off, is no file of torch.save, or holds more than tensors "
            f"and plain data, which is refused as it could run programs: {first[:300]}"
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
