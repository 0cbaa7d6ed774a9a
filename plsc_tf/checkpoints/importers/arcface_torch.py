"""arcface_torch: IResNet's state dict and the class centres of Partial FC.

Source: deepinsight/insightface `recognition/arcface_torch`: `backbones/iresnet.py`,
`partial_fc_v2.py`, and what `train_v2.py` saves:

    model.pt                the backbone's state dict
    checkpoint_gpu_<r>.pt   backbone, rank r's class centres, optimizer, epoch, step
    softmax_fc_gpu_<r>.pt   rank r's class centres (before 2022)
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

_RANK_FILE = re.compile(r"(checkpoint|softmax_fc)_gpu_(\d+)\.pth?")
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
    kind, ranks = _rank_files(folder, names)
    found = _read_head(folder, kind, ranks) if ranks else {"arrays": {}, "left": []}
    if kind == "checkpoint":
        path = os.path.join(folder, ranks[0])
        whole = torch_files.load(path)
        backbone = _part(whole, "state_dict_backbone", path)
        found["left"] += [name for name in whole if not name.startswith("state_dict")]
    else:
        path = os.path.join(folder, _backbone_file(folder, names))
        backbone = torch_files.load(path)
        if isinstance(backbone, dict) and "state_dict_backbone" in backbone:
            backbone = backbone["state_dict_backbone"]
    found["backbone"] = _weights(backbone, path)
    found["backbone_file"] = path
    return found


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
    """("checkpoint" or "softmax_fc", list of the files by rank), or (None, [])."""
    ranks = {"checkpoint": {}, "softmax_fc": {}}
    for name in names:
        match = _RANK_FILE.fullmatch(name)
        if match:
            ranks[match[1]][int(match[2])] = name
    kind = next((kind for kind, found in ranks.items() if found), None)
    if kind is None:
        return None, []
    found = ranks[kind]
    missing = [rank for rank in range(max(found)) if rank not in found]
    if missing:
        raise FileNotFoundError(
            f"{folder} has {kind}_gpu_{max(found)}.pt but not "
            f"{layers.listed(f'{kind}_gpu_{rank}.pt' for rank in missing)}: every rank "
            "of the training holds classes of its own. Copy the files of all machines "
            "into one folder."
        )
    return kind, [found[rank] for rank in range(len(found))]


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


def _read_head(folder, kind, ranks):
    """Class centres, and their momentum where every rank has one."""
    paths = [os.path.join(folder, name) for name in ranks]
    shapes = {"weight": [], "weight/velocity": []}
    for path in paths:
        tensors = _tensors(kind, path)
        shapes["weight"].append(tuple(tensors["weight"].shape))
        velocity = tensors["weight/velocity"]
        if velocity is not None and velocity.shape == tensors["weight"].shape:
            shapes["weight/velocity"].append(tuple(velocity.shape))
    _check_split(paths, shapes["weight"])
    arrays = {}
    for name, found in shapes.items():
        if len(found) != len(paths):
            continue
        shards = [
            Shard(path, shape[0], functools.partial(_open, kind, path, name))
            for path, shape in zip(paths, found, strict=True)
        ]
        arrays[name] = ShardedFiles(shards, found[0][1:])
    return {"arrays": arrays, "left": [], "ranks": len(paths)}


def _check_split(paths, shapes):
    """Checks that the shards are those of PartialFC_V2: C // W + (r < C % W) each."""
    total, world = sum(shape[0] for shape in shapes), len(shapes)
    for rank, (path, shape) in enumerate(zip(paths, shapes, strict=True)):
        expected = (total // world + (rank < total % world), shapes[0][1])
        if shape != expected:
            raise ValueError(
                f"{path} holds class centres of shape {list(shape)}. With {total} "
                f"classes over {world} ranks, as the files have them, rank {rank} must "
                f"hold {list(expected)}: a rank's file is missing or of another "
                "training."
            )


def _tensors(kind, path):
    """`{"weight", "weight/velocity"}` of one rank; the latter may be None."""
    whole = torch_files.load(path)
    state, velocity = whole, None
    if kind == "checkpoint":
        state = _part(whole, "state_dict_softmax_fc", path)
        velocity = _momentum(whole.get("state_optimizer"))
    weight = state.get("weight") if isinstance(state, dict) else None
    if not torch_files.is_tensor(weight) or weight.ndim != 2:
        raise ValueError(
            f"{path} holds no class centres: expected a state dict with 'weight' of "
            "shape [classes, embedding size]."
        )
    if velocity is None and isinstance(state, dict):
        velocity = state.get("weight_mom")
    return {
        "weight": weight,
        "weight/velocity": velocity if torch_files.is_tensor(velocity) else None,
    }


def _momentum(optimizer):
    """SGD's momentum of the class centres, which are its last parameter, or None."""
    try:
        last = optimizer["param_groups"][-1]["params"][-1]
        return optimizer["state"][last].get("momentum_buffer")
    except (AttributeError, IndexError, KeyError, TypeError):
        return None


def _open(kind, path, name):
    return torch_files.to_numpy(_tensors(kind, path)[name])


def _part(whole, name, path):
    if not isinstance(whole, dict) or name not in whole:
        raise ValueError(
            f"{path} has no '{name}': it is no checkpoint of arcface_torch's train_v2."
        )
    return whole[name]
