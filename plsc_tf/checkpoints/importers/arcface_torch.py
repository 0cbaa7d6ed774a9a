"""Imports arcface_torch's state dicts and Partial FC class centers.

Source: deepinsight/insightface `recognition/arcface_torch`: `backbones/`,
`partial_fc_v2.py`, and the files that `train_v2.py` saves:

    model.pt                the backbone's state dict
    checkpoint_gpu_<r>.pt   backbone, rank r's class centers, optimizer, epoch, step
    softmax_fc_gpu_<r>.pt   rank r's class centers (before 2022)

`torch_files` reads them without PyTorch.
"""

import functools
import os
import re
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from plsc_tf.checkpoints.importers import layers, torch_files
from plsc_tf.requirements import listed, require

# arcface_torch scales images as (x − 127.5) / 127.5, this library as (x − 127.5) / 128.
# Scaling the first convolution's kernel compensates for that.
IMAGE_SCALE = 128 / 127.5
# Networks by their number of convolutions. IResNets have one in the stem, two in each
# block and one in the shortcut of each of the four stages.
_BLOCKS = {18: 8, 34: 16, 50: 24, 100: 49, 200: 98}
NETWORKS = {1 + 2 * blocks + 4: f"iresnet{n}" for n, blocks in _BLOCKS.items()}
NETWORKS[2 + 3 * 15 + 2] = "mbf"
# Transformers by their width and number of blocks.
TRANSFORMERS = {(256, 12): "vit_t", (512, 12): "vit_s"}
TRANSFORMERS |= {(512, 24): "vit_b", (768, 24): "vit_l"}
KNOWN = "Only IResNet 18, 34, 50, 100 and 200, mbf and vit of insightface are known"

FILES = re.compile(r".*\.pth?")
_BACKBONE_FILE = re.compile(r"(?!.*_gpu_\d+\.).*\.pth?")


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


def standard(weights: Mapping[str, np.ndarray]) -> Mapping[str, np.ndarray]:
    """Returns the weights for this library's images, by PyTorch's names."""
    first = next((name for name, array in weights.items() if array.ndim == 4), None)
    if first is None:
        return weights
    return {**weights, first: weights[first] * np.float32(IMAGE_SCALE)}


def network(weights: dict[str, np.ndarray]) -> dict[str, Any]:
    """Returns the options of the network that the weights belong to; {} if unknown."""
    found = layers.kinds(weights)
    convolutions = found.get("Conv2D", [])
    name = NETWORKS.get(len(convolutions))
    if len(convolutions) == 1:
        width = len(weights[f"{convolutions[0]}.weight"])
        # Four dense layers in each block, and two at the end.
        name = TRANSFORMERS.get((width, (len(found.get("Dense", ())) - 2) // 4))
    last = next(reversed(weights.values()), ())
    return {"model_name": name, "emb_size": len(last)} if name else {}


def _rank_files(folder, names):
    """Returns ("checkpoint" or "softmax_fc", paths in order of rank), or (None, [])."""
    for kind in ("checkpoint", "softmax_fc"):
        matches = [re.fullmatch(rf"{kind}_gpu_(\d+)\.pth?", name) for name in names]
        if ranks := {int(m[1]): os.path.join(folder, m[0]) for m in matches if m}:
            rule = f"{folder} must have one file of each rank: {listed(names)}"
            require(len(ranks) == sum(map(bool, matches)), rule)
            name = f"{kind}_gpu_{{}}.pt".format
            return kind, layers.of_all_ranks(folder, ranks, max(ranks) + 1, name)
    return None, []


def _backbone_file(folder, names):
    candidates = sorted(name for name in names if _BACKBONE_FILE.fullmatch(name))
    known = [n for n in ("model.pt", "backbone.pt", "backbone.pth") if n in candidates]
    if known or len(candidates) == 1:
        return os.path.join(folder, (known or candidates)[0])
    raise FileNotFoundError(
        f"{folder} has no model.pt, which holds arcface_torch's backbone. Found: "
        f"{listed(candidates) or 'no other .pt file'}. Pass the file itself."
    )


def _weights(state, path):
    """Returns the backbone's weights as arrays, without those unused in inference."""
    rule = f"{path} holds a {type(state).__name__}, not a state dict of tensors"
    require(isinstance(state, dict), rule)
    # The numbers of batches that layers have seen are single numbers. As float32, bytes
    # would take four times the file.
    arrays = {n: x for n, x in state.items() if isinstance(x, np.ndarray) and x.ndim}
    state = {n: x for n, x in arrays.items() if isinstance(n, str) and x.itemsize > 1}
    torch_files.check_size(path, sum(one.nbytes for one in state.values()))
    # DistributedDataParallel adds the prefix "module." to every name.
    weights = {n.removeprefix("module."): np.asarray(x, "f4") for n, x in state.items()}
    weights.pop("mask_token", None)  # A vit uses it only in training.
    first = next(iter(weights.values()), np.empty((0, 0)))
    # `match` relies on the order. Sorted by name, biases or other layers come first.
    rule = f"{path} must have the weights in the order in which the network has them"
    require(first.ndim > 1, rule, first=next(iter(weights), None))
    if "pos_embed" in weights:  # the only weight of its layer
        return {"pos_embed.weight": weights.pop("pos_embed"), **weights}
    return weights


def _class_rows(kind, paths):
    """Returns the class centers of all ranks, which stay in their files.

    Of C classes over W ranks, PartialFC_V2 assigns C // W + (r < C % W) to rank r.
    """
    opens = [functools.partial(_centers, kind, path) for path in paths]
    shapes = [open().shape for open in opens]
    least, more = divmod(sum(shape[0] for shape in shapes), len(paths))
    sizes = [least + (rank < more) for rank in range(len(paths))]
    shards = list(zip(paths, shapes, opens, strict=True))
    rows = layers.sharded_rows(shards, sizes, shapes[0][1:])
    steps = (torch_files.load(path).get("global_step") for path in paths)
    # A list, or an array of a thousand axes, could have a text of any length.
    steps = (s if isinstance(s, int | np.generic | np.ndarray) else None for s in steps)
    steps = [str(step) if np.size(step) == 1 else None for step in steps]
    rule = f"{paths[0]} and the files of the other ranks must be of the same step"
    require(len(set(steps)) == 1, rule, "Copy them again", global_step=steps)
    return rows


def _centers(kind, path):
    """Returns the tensor with one rank's class centers."""
    state = torch_files.load(path)
    if kind == "checkpoint" and isinstance(state, dict):
        state = state.get("state_dict_softmax_fc")
    weight = state.get("weight") if isinstance(state, dict) else None
    rule = f"{path} must have class centers, a 'weight' [classes, embedding size]"
    require(isinstance(weight, np.ndarray) and weight.ndim == 2 and weight.size, rule)
    torch_files.check_size(path, weight.nbytes)
    return weight
