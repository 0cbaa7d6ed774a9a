"""arcface_torch: IResNet's state dict and the class centers of Partial FC.

Source: deepinsight/insightface `recognition/arcface_torch`: `backbones/iresnet.py`,
`partial_fc_v2.py`, and what `train_v2.py` saves:

    model.pt                the backbone's state dict
    checkpoint_gpu_<r>.pt   backbone, rank r's class centers, optimizer, epoch, step
    softmax_fc_gpu_<r>.pt   rank r's class centers (before 2022)
"""

import functools
import os
import re

import numpy as np

from plsc_tf.checkpoints.importers import layers, torch_files
from plsc_tf.checkpoints.importers.layers import Names
from plsc_tf.checkpoints.importers.rows import Shard, ShardedFiles

NAMES = Names(".weight", ".bias", ".running_mean", ".running_var", False)
# Layers of an IBasicBlock, after ours.
BLOCK = {
    "bn1": "bn1",
    "conv1": "conv1",
    "bn2": "bn2",
    "prelu2": "prelu",
    "conv2": "conv2",
    "bn3": "bn3",
    "shortcut_conv": "downsample.0",
    "shortcut_bn": "downsample.1",
}
AROUND = {
    "stem_conv": "conv1",
    "stem_bn": "bn1",
    "stem_prelu": "prelu",
    "features_bn": "bn2",
    "embedding_dense": "fc",
    "embedding": "features",
}
# Its images are (x − 127.5) / 127.5, ours (x − 127.5) / 128; the first convolution has
# no bias, so that a factor of its kernel makes up for it.
IMAGE_SCALE = 128 / 127.5

_BACKBONE_FILE = re.compile(r"(?!.*_gpu_\d+\.).*\.pth?")


def recognises(folder, names):
    """Whether files are arcface_torch's.

    Args:
        folder: where they are.
        names: of the files.
    """
    return any(re.fullmatch(r".*\.pth?", name) for name in names)


def read(folder, names):
    """Opens a checkpoint.

    Args:
        folder: where the files are.
        names: of the files, one of them or all of the folder.

    Returns:
        dict of what `plsc_tf.checkpoints.importers.source.Source` is made of.

    Raises:
        ImportError: PyTorch is not installed.
        FileNotFoundError: there is no backbone, or a rank's file is missing.
        ValueError: a file does not hold what it should.
    """
    kind, paths = _rank_files(folder, names)
    left = []
    if kind == "checkpoint":
        path = paths[0]
        whole = torch_files.load(path)
        backbone = _part(whole, "state_dict_backbone", path)
        left = [name for name in whole if not name.startswith("state_dict")]
    else:
        path = os.path.join(folder, _backbone_file(folder, names))
        backbone = torch_files.load(path)
        if isinstance(backbone, dict) and "state_dict_backbone" in backbone:
            backbone = backbone["state_dict_backbone"]
    return {
        "backbone": _weights(backbone, path),
        "backbone_file": path,
        "arrays": {"weight": _class_rows(kind, paths)} if paths else {},
        "ranks": len(paths),
        "left": left,
    }


def layer_names(backbone):
    """`{our layer: its name in arcface_torch}` for an IResNet of ours."""
    found = dict(AROUND)
    for stage, block in layers.block_names(backbone):
        for ours, theirs in BLOCK.items():
            name = f"stage{stage}_block{block}_{ours}"
            found[name] = f"layer{stage}.{block - 1}.{theirs}"
    return found


def places(backbone, weights):
    """Where the weights go; None when `backbone` is no IResNet."""
    existing = {layer.name for layer in backbone.layers}
    if not existing.issuperset(AROUND) or backbone.get_layer("embedding").scale:
        return None
    return layers.places(backbone, layer_names(backbone), NAMES)


def prepare(weights):
    """State dict for our IResNet: image scale and last scale become kernels'.

    Args:
        weights: `{name: array}` of arcface_torch.
    """
    weights = dict(weights)
    if "conv1.weight" in weights:
        weights["conv1.weight"] = weights["conv1.weight"] * np.float32(IMAGE_SCALE)
    # arcface_torch keeps this scale at 1, others may have trained it:
    # s (Wx + b − m) = (sW) x + sb − sm.
    scale = weights.pop("features.weight", None)
    if scale is None or scale.ndim != 1 or np.all(scale == 1):
        return weights
    for name in ("fc.weight", "fc.bias", "features.running_mean"):
        if name in weights and len(weights[name]) == len(scale):
            factor = scale.reshape(-1, *[1] * (weights[name].ndim - 1))
            weights[name] = weights[name] * factor
    return weights


def hint(weights):
    """Which network the weights are of, as advice."""
    depths = [0] * 4
    for name in weights:
        match = re.match(r"layer([1-4])\.(\d+)\.", name)
        if match:
            stage, block = int(match[1]) - 1, int(match[2]) + 1
            depths[stage] = max(depths[stage], block)
    known = {
        (2, 2, 2, 2): "iresnet18",
        (3, 4, 6, 3): "iresnet34",
        (3, 4, 14, 3): "iresnet50",
        (3, 13, 30, 3): "iresnet100",
        (6, 26, 60, 6): "iresnet200",
    }
    if tuple(depths) in known:
        size = ""
        if "fc.weight" in weights:
            size = f" --emb_size={len(weights['fc.weight'])}"
        return f"The file looks like --model_name={known[tuple(depths)]}{size}."
    return (
        "Only arcface_torch's IResNets (r18, r34, r50, r100, r200) can be imported, "
        "not its mbf or vit."
    )


def _rank_files(folder, names):
    """("checkpoint" or "softmax_fc", paths of the files by rank), or (None, [])."""
    for kind in ("checkpoint", "softmax_fc"):
        matches = [re.fullmatch(rf"{kind}_gpu_(\d+)\.pth?", name) for name in names]
        ranks = {int(match[1]): match[0] for match in matches if match}
        missing = [rank for rank in range(max(ranks, default=0)) if rank not in ranks]
        if missing:
            raise FileNotFoundError(
                f"{folder} has {kind}_gpu_{max(ranks)}.pt but not "
                f"{layers.listed(f'{kind}_gpu_{rank}.pt' for rank in missing)}: every "
                "rank of the training holds its own classes. Copy the files of all "
                "machines into one folder."
            )
        if ranks:
            return kind, [os.path.join(folder, ranks[r]) for r in range(len(ranks))]
    return None, []


def _backbone_file(folder, names):
    candidates = sorted(name for name in names if _BACKBONE_FILE.fullmatch(name))
    for name in ("model.pt", "backbone.pt", "backbone.pth"):
        if name in candidates:
            return name
    if len(candidates) == 1:
        return candidates[0]
    raise FileNotFoundError(
        f"{folder} has no model.pt, which holds arcface_torch's backbone. Found: "
        f"{layers.listed(candidates) or 'no other .pt file'}. Pass the file itself, or "
        "a folder with one backbone."
    )


def _weights(state, path):
    """The backbone's weights as arrays, without what inference never reads."""
    if not isinstance(state, dict):
        raise ValueError(
            f"{path} holds a {type(state).__name__}, not a state dict of tensors."
        )
    found = torch_files.arrays(state)
    return {
        name: array
        for name, array in found.items()
        if not name.endswith(".num_batches_tracked")
    }


def _class_rows(kind, paths):
    """The class centers of all ranks, which stay in their files.

    PartialFC_V2 gives rank r of W ranks C // W + (r < C % W) of C classes.
    """
    shapes = [tuple(_centers(kind, path).shape) for path in paths]
    total, world = sum(shape[0] for shape in shapes), len(shapes)
    for rank, (path, shape) in enumerate(zip(paths, shapes, strict=True)):
        expected = (total // world + (rank < total % world), shapes[0][1])
        if shape != expected:
            raise ValueError(
                f"{path} holds class centers of shape {list(shape)}. With {total} "
                f"classes over {world} ranks, as the files have them, rank {rank} must "
                f"hold {list(expected)}: a rank's file is missing or from another "
                "training."
            )
    shards = [
        Shard(shape[0], functools.partial(_load_centers, kind, path))
        for path, shape in zip(paths, shapes, strict=True)
    ]
    return ShardedFiles(shards, shapes[0][1:])


def _load_centers(kind, path):
    return torch_files.to_numpy(_centers(kind, path))


def _centers(kind, path):
    """The tensor of one rank's class centers."""
    state = torch_files.load(path)
    if kind == "checkpoint":
        state = _part(state, "state_dict_softmax_fc", path)
    weight = state.get("weight") if isinstance(state, dict) else None
    if not torch_files.is_tensor(weight) or weight.ndim != 2:
        raise ValueError(
            f"{path} holds no class centers: expected a state dict with 'weight' of "
            "shape [classes, embedding size]."
        )
    return weight


def _part(whole, name, path):
    if not isinstance(whole, dict) or name not in whole:
        raise ValueError(
            f"{path} has no '{name}': it is no checkpoint of arcface_torch's train_v2."
        )
    return whole[name]
