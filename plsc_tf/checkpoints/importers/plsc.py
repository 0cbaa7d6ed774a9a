"""Imports the face ResNet and the class-sharded head of PLSC 0.1 and 0.2.

Source: PaddlePaddle/PLSC v0.1.1 and v0.2.0, `plsc/entry.py`, `plsc/models/`. A
checkpoint is a folder with one file per variable, named after the variable, in Paddle's
binary format (0.1) or as `.pdparam` and `.pdopt` (0.2), and `meta.json` with
`pretrain_nranks`, `emb_dim` and `num_classes`. Rank r's class weights are
`dist@<loss>@rank@<r>.w_0`, `[emb, ceil(classes / ranks)]`; the last rank has the
remaining classes.
"""

import functools
import os
import re
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from plsc_tf.checkpoints.importers import layers, paddle_files
from plsc_tf.requirements import listed, require
from plsc_tf.storage import files

SUFFIXES = {"w_0": "weight", "b_0": "bias", "w_1": "running_mean", "w_2": "running_var"}
META = "meta.json"
# Networks by their number of convolutions: one in the stem, two or three in each block,
# and one in the shortcut of each of the four stages.
NETWORKS = {1 + 2 * 24 + 4: "resnet50", 1 + 2 * 33 + 4: "resnet101"}
NETWORKS |= {1 + 2 * 49 + 4: "resnet100", 1 + 2 * 50 + 4: "resnet152"}
BOTTLENECKS = {1 + 3 * 33 + 4: "resnet101", 1 + 3 * 50 + 4: "resnet152"}
KNOWN = "Only PLSC's ResNet50, 100, 101 and 152 are known"

FILES = re.compile(r"meta\.json|conv2d_0\.w_0.*|.*\.(pdparams?|pdopt)")
_HEAD = re.compile(r"dist@(.+)@rank@(\d{1,9})\.([wb])_\d+")
# Heads that were not sharded: loss types softmax and arcface.
_WHOLE = re.compile(r"(fc_\d+|final_fc_w_\d+)(?:\.([wb])_\d+)?")
_LAYER = re.compile(r"(conv2d|batch_norm|prelu|fc)_(\d{1,9})\.(w_[012]|b_0)")
_ARRAYS = {"w": "weight", "b": "bias"}


def read(folder: str, names: Iterable[str]) -> dict[str, Any]:
    """Opens a checkpoint.

    Args:
        folder: the folder that contains the files.
        names: the names of one file or of all files in the folder.

    Returns:
        the fields of a `plsc_tf.checkpoints.importers.Source`.

    Raises:
        FileNotFoundError: a rank's file is missing.
        ValueError: a file is damaged, or the shards do not fit together.
    """
    meta = _read_meta(folder) if META in names else {}
    variables = _read_variables(folder, names)
    head, loss = _head_variables(variables)
    taken = {item.name for by_rank in head.values() for item in by_rank.values()}
    places = {n: place for n in variables if (place := _LAYER.fullmatch(n))}
    # PLSC numbers the layers of each kind in order.
    names = sorted(places.keys() - taken, key=lambda n: (int(places[n][2]), n))
    backbone = {name: variables[name].open() for name in names}
    arrays, ranks = _read_head(folder, head, loss, meta)
    return {
        "backbone": backbone,
        "backbone_file": folder,
        "arrays": arrays,
        "ranks": ranks,
        "num_classes": meta.get("num_classes"),
        "loss": loss,
        "left": sorted(set(variables) - taken - set(backbone)),
    }


def standard(weights: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Returns the weights by PyTorch's names, with kernels `[outputs, inputs]`."""
    found = {}
    for name, array in weights.items():
        layer, _, suffix = name.rpartition(".")
        found[f"{layer}.{SUFFIXES[suffix]}"] = array.T if array.ndim == 2 else array
    return found


def network(weights: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """Returns the options of the network that the weights belong to; {} if unknown."""
    count = sum(name.startswith("conv2d_") for name in weights)
    options = {"model_options": "variant=v0.1"} if count in BOTTLENECKS else {}
    name = (NETWORKS | BOTTLENECKS).get(count)
    size = {"emb_size": weights["fc_0.b_0"].size} if "fc_0.b_0" in weights else {}
    return {"model_name": name, **options, **size} if name else {}


def _read_meta(folder):
    path = os.path.join(folder, META)
    names = ("pretrain_nranks", "emb_dim", "num_classes")
    with layers.reading(path, f"PLSC's, with {', '.join(names)}"):
        meta = files.read_json(path)
        return {name: int(meta[name]) for name in names}


def _read_variables(folder, names):
    variables = {}
    for name in sorted(names):
        if not name.endswith(paddle_files.PICKLED) and not re.search(r"[wb]_\d+", name):
            continue  # Counters, learning rates and programs are not imported.
        path = os.path.join(folder, name)
        for variable in paddle_files.variables(path):
            first = variables.setdefault(variable.name, variable)
            rule = f"{variable.name} is both in {first.path} and in {path}"
            require(first is variable, rule, "Pass a folder with one checkpoint")
    return variables


def _head_variables(variables):
    """Returns (`{our name: {rank: variable}}`, PLSC's loss type or None)."""
    head, loss = {}, None
    for name, variable in variables.items():
        if match := _HEAD.fullmatch(name):
            loss = f"dist_{match[1]}"
            head.setdefault(_ARRAYS[match[3]], {})[int(match[2])] = variable
    if head:
        return head, loss
    # With the loss types softmax and arcface, the head is not sharded.
    dense = {match[1] for name in variables if (match := re.match(r"fc_(\d+)\.", name))}
    last = f"fc_{max(map(int, dense))}" if len(dense) > 1 else None
    for name, variable in variables.items():
        match = _WHOLE.fullmatch(name)
        if match and (match[1] == last or match[1].startswith("final_fc_w")):
            loss = "softmax" if match[1] == last else "arcface"
            head[_ARRAYS[match[2] or "w"]] = {0: variable}
    return head, loss


def _read_head(folder, head, loss, meta):
    """Returns (`{our name: rows}`, number of ranks), after checking all shards."""
    if not head:
        return {}, 0
    rule = f"{folder} has the head's {listed(head)} but not its weights"
    advice = "Copy all files of the checkpoint"
    require("weight" in head, rule, advice, raises=FileNotFoundError)
    count, arrays = 1, {}
    if loss.startswith("dist_"):
        count = meta.get("pretrain_nranks") or 1 + max(map(max, head.values()))
    for key, by_rank in head.items():
        name = functools.partial(_of_rank, next(iter(by_rank.values())).name)
        variables = layers.of_all_ranks(folder, by_rank, count, name)
        ranks = f"{len(by_rank)} ranks, but its {META} says {count}"
        advice = "Pass a folder with one checkpoint"
        require(len(by_rank) <= count, f"{folder} has the {key} of {ranks}", advice)
        arrays[key] = _rows(variables, meta)
    classes = {key: rows.shape[0] for key, rows in arrays.items()}
    rule = f"The head's arrays in {folder} must have the same number of classes"
    fits = len(set(classes.values())) == 1
    require(fits, rule, "Copy all files of the checkpoint again", classes=classes)
    return arrays, count


def _of_rank(name, rank):
    return re.sub(r"@rank@\d+", f"@rank@{rank:05d}", name)


def _rows(variables, meta):
    """Returns rows from the shards, `[emb, ceil(C / N)]` for C classes on N ranks."""
    shards = [(v.path, v.shape[::-1], lambda v=v: v.open().T) for v in variables]
    total = meta.get("num_classes", sum(shape[0] for _, shape, _ in shards))
    share, others = -(-total // len(shards)), len(shards) - 1
    row = shards[0][1][1:]
    row = (meta["emb_dim"],) if meta and row else row
    sizes = [share] * others + [total - share * others]
    return layers.sharded_rows(shards, sizes, row, META if meta else "")
