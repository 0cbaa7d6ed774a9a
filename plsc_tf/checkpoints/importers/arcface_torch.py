"""Imports arcface_torch's IResNet state dicts and Partial FC class centers.

Source: deepinsight/insightface `recognition/arcface_torch`: `backbones/iresnet.py`,
`partial_fc_v2.py`, and the files that `train_v2.py` saves:

    model.pt                the backbone's state dict
    checkpoint_gpu_<r>.pt   backbone, rank r's class centers, optimizer, epoch, step
    softmax_fc_gpu_<r>.pt   rank r's class centers (before 2022)

`torch_files` reads them without PyTorch.
"""

import os
import re
from collections.abc import Iterable, Mapping
from typing import Any

import keras
import numpy as np

from plsc_tf.checkpoints.importers import layers, torch_files
from plsc_tf.checkpoints.importers.layers import Names
from plsc_tf.requirements import require

NAMES = Names(".weight", ".bias", ".running_mean", ".running_var", False)
# arcface_torch scales images as (x − 127.5) / 127.5, this library as (x − 127.5) / 128.
# The first convolution has no bias, so scaling its kernel compensates for that.
IMAGE_SCALE = 128 / 127.5
# Number of blocks in each stage of arcface_torch's networks.
DEPTHS: dict[tuple[int, ...], str] = {
    (2, 2, 2, 2): "iresnet18",
    (3, 4, 6, 3): "iresnet34",
    (3, 4, 14, 3): "iresnet50",
    (3, 13, 30, 3): "iresnet100",
    (6, 26, 60, 6): "iresnet200",
}

_BACKBONE_FILE = re.compile(r"(?!.*_gpu_\d+\.).*\.pth?")


def recognizes(names: Iterable[str]) -> bool:
    """Returns whether the file names look like those of arcface_torch."""
    return any(re.fullmatch(r".*\.pth?", name) for name in names)


def read(folder: str, names: Iterable[str]) -> dict[str, Any]:
    """Opens a checkpoint.

    Args:
        folder: the folder that contains the files.
        names: the names of one file or of all files in the folder.

    Returns:
        the fields of a `plsc_tf.checkpoints.importers.Source`.

    Raises:
        FileNotFoundError: the backbone's file or a rank's file is missing.
        ValueError: a file has unexpected contents.
    """
    kind, paths = _rank_files(folder, names)
    path = paths[0] if kind == "checkpoint" else _backbone_file(folder, names)
    whole = torch_files.load(path)
    parts = whole if isinstance(whole, dict) else {}
    backbone, left = parts.get("state_dict_backbone", whole), []
    if backbone is not whole:
        left = [name for name in parts if not name.startswith("state_dict")]
    return {
        "backbone": _weights(backbone, path),
        "backbone_file": path,
        "arrays": {"weight": _class_rows(kind, paths)} if paths else {},
        "ranks": len(paths),
        "left": left,
    }


def layer_names(backbone: keras.Model, weights: Mapping) -> dict[str, str] | None:
    """Maps our layer names to arcface_torch's; returns None for other networks."""
    del weights
    names = {}
    order = layers.order(backbone, scaled=False) or {}
    for name, (stage, block, kind) in order.items():
        theirs = layers.BLOCK[kind] if block else layers.AROUND[kind]
        if theirs is None:
            return None
        names[name] = f"layer{stage}.{block - 1}.{theirs}" if block else theirs
    return names or None


def prepare(weights: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Folds the image scale and the last layer's scale into the kernels."""
    weights = dict(weights)
    if "conv1.weight" in weights:
        weights["conv1.weight"] = weights["conv1.weight"] * np.float32(IMAGE_SCALE)
    # arcface_torch keeps this scale at 1, but other programs may have trained it:
    # s (Wx + b − m) = (sW) x + sb − sm.
    scale = weights.pop("features.weight", None)
    if scale is None or scale.ndim != 1 or np.all(scale == 1):
        return weights
    for name in ("fc.weight", "fc.bias", "features.running_mean"):
        if name in weights and len(weights[name]) == len(scale):
            factor = scale.reshape(-1, *[1] * (weights[name].ndim - 1))
            weights[name] = weights[name] * factor
    return weights


def hint(weights: Mapping[str, np.ndarray]) -> str:
    """Returns advice that names the network that the weights belong to."""
    places = [re.match(r"layer([1-4])\.(\d+)\.bn1\.weight", name) for name in weights]
    stages = [int(place[1]) for place in places if place]
    network = DEPTHS.get(tuple(stages.count(stage) for stage in range(1, 5)))
    if network is None:
        return (
            "Only arcface_torch's IResNets (r18, r34, r50, r100, r200) can be "
            "imported, not its mbf or vit"
        )
    size = f" --emb_size={len(weights['fc.weight'])}" if "fc.weight" in weights else ""
    return f"The file looks like --model_name={network}{size}"


def _rank_files(folder, names):
    """Returns ("checkpoint" or "softmax_fc", paths in order of rank), or (None, [])."""
    for kind in ("checkpoint", "softmax_fc"):
        matches = [re.fullmatch(rf"{kind}_gpu_(\d+)\.pth?", name) for name in names]
        ranks = {int(m[1]): os.path.join(folder, m[0]) for m in matches if m}
        if ranks:
            name = f"{kind}_gpu_{{}}.pt"
            return kind, layers.of_all_ranks(folder, ranks, max(ranks) + 1, name)
    return None, []


def _backbone_file(folder, names):
    candidates = sorted(name for name in names if _BACKBONE_FILE.fullmatch(name))
    known = [n for n in ("model.pt", "backbone.pt", "backbone.pth") if n in candidates]
    if known or len(candidates) == 1:
        return os.path.join(folder, (known or candidates)[0])
    raise FileNotFoundError(
        f"{folder} has no model.pt, which holds arcface_torch's backbone. Found: "
        f"{layers.listed(candidates) or 'no other .pt file'}. Pass the file itself."
    )


def _weights(state, path):
    """Returns the backbone's weights as arrays, without those unused in inference."""
    rule = f"{path} holds a {type(state).__name__}, not a state dict of tensors"
    require(isinstance(state, dict), rule)
    # The numbers of batches that layers have seen are single numbers. As float32, bytes
    # would take four times the file.
    state = {
        name: one
        for name, one in state.items()
        if isinstance(name, str) and isinstance(one, np.ndarray) and one.ndim
        if one.itemsize > 1
    }
    torch_files.check_size(path, sum(one.nbytes for one in state.values()))
    # DistributedDataParallel adds the prefix "module." to every name.
    return {
        name.removeprefix("module."): np.asarray(value, np.float32)
        for name, value in state.items()
    }


def _class_rows(kind, paths):
    """Returns the class centers of all ranks, which stay in their files.

    Of C classes over W ranks, PartialFC_V2 assigns C // W + (r < C % W) to rank r.
    """
    shapes = [tuple(_centers(kind, path).shape) for path in paths]
    total = sum(shape[0] for shape in shapes)
    least, more = divmod(total, len(shapes))
    expected = [(least + (r < more), shapes[0][1]) for r in range(len(shapes))]
    layers.check_shapes(paths, shapes, expected, total)
    steps = (torch_files.load(path).get("global_step") for path in paths)
    # Lists within each other could have a text of any length.
    numbers = int | np.generic | np.ndarray
    steps = [str(step) if isinstance(step, numbers) else None for step in steps]
    rule = f"{paths[0]} and the files of the other ranks must be of the same step"
    require(len(set(steps)) == 1, rule, "Copy them again", global_step=steps)
    opens = [lambda p=path: np.asarray(_centers(kind, p), np.float32) for path in paths]
    counts = [shape[0] for shape in shapes]
    return layers.sharded_rows(list(zip(counts, opens, strict=True)), shapes[0][1:])


def _centers(kind, path):
    """Returns the tensor with one rank's class centers."""
    state = torch_files.load(path)
    if kind == "checkpoint":
        state = _part(state, "state_dict_softmax_fc", path)
    weight = state.get("weight") if isinstance(state, dict) else None
    rule = f"{path} must have class centers, a 'weight' [classes, embedding size]"
    fits = isinstance(weight, np.ndarray) and weight.ndim == 2 and weight.size
    require(fits, rule)
    torch_files.check_size(path, weight.nbytes)
    return weight


def _part(whole, name, path):
    rule = f"{path} has no '{name}', so it is not from arcface_torch's train_v2"
    require(isinstance(whole, dict) and name in whole, rule)
    return whole[name]
