"""PLSC 0.1 and 0.2: the face ResNet and the class-sharded head.

Source: PaddlePaddle/PLSC v0.1.1 and v0.2.0, `plsc/entry.py`, `plsc/models/`. A
checkpoint is a folder: a file per variable, called as the variable, in Paddle's
binary form (0.1) or as `.pdparam` and `.pdopt` (0.2), and `meta.json` with
`pretrain_nranks`, `emb_dim` and `num_classes`. Rank r's class weights are
`dist@<loss>@rank@<r>.w_0` of shape [embedding size, ceil(classes / ranks)], the last
rank has the remainder.
"""

import json
import os
import re

import numpy as np

from plsc_tf.checkpoints.importers import layers, paddle_files
from plsc_tf.checkpoints.importers.layers import Names
from plsc_tf.checkpoints.importers.rows import Shard, ShardedFiles

NAMES = Names(".w_0", ".b_0", ".w_1", ".w_2", True)
META = "meta.json"
# The layers before and after the blocks.
AROUND = (
    "stem_conv",
    "stem_bn",
    "stem_prelu",
    "features_bn",
    "embedding_dense",
    "embedding",
)
# The layers of a block in the order in which PLSC makes them, which numbers them.
BLOCK = (
    "bn1",
    "conv1",
    "bn2",
    "prelu2",
    "conv2",
    "bn3",
    "prelu3",
    "conv3",
    "bn4",
    "shortcut_conv",
    "shortcut_bn",
)
PREFIXES = {"bn": "batch_norm", "conv": "conv2d", "prelu": "prelu"}

_HEAD = re.compile(r"dist@(.+)@rank@(\d+)\.([wb])_\d+")
# Heads that every rank held whole: loss type softmax, and arcface.
_WHOLE = re.compile(r"(fc_\d+|final_fc_w_\d+)(?:\.([wb])_\d+)?")
_LAYER = re.compile(r"(conv2d|batch_norm|prelu|fc)_(\d+)(\.[wb]_\d+)")
_ARRAYS = {"w": "weight", "b": "bias"}


def recognises(folder, names):
    """Whether files are PLSC's.

    Args:
        folder: where they are.
        names: of the files.
    """
    return META in names or any(
        name.startswith("conv2d_0.w_0") or name.endswith(paddle_files.PICKLED)
        for name in names
    )


def read(folder, names):
    """Opens a checkpoint.

    Args:
        folder: where the files are.
        names: of the files, one of them or all of the folder.

    Returns:
        dict of what `plsc_tf.checkpoints.importers.source.Source` is made of.

    Raises:
        FileNotFoundError: a rank's file is missing.
        ValueError: a file is damaged, or the shards do not fit together.
    """
    meta = _read_meta(folder) if META in names else {}
    found = _read_variables(folder, names)
    head, loss = _head_variables(found)
    taken = {item.name for by_rank in head.values() for item in by_rank.values()}
    backbone = {
        name: variable.open()
        for name, variable in found.items()
        if _LAYER.fullmatch(name) and name not in taken
    }
    arrays, ranks = _read_head(folder, head, loss, meta)
    return {
        "backbone": backbone,
        "backbone_file": folder,
        "arrays": arrays,
        "ranks": ranks,
        "num_classes": meta.get("num_classes"),
        "loss": loss,
        "left": sorted(set(found) - taken - set(backbone)),
    }


def layer_names(backbone, firsts=None):
    """`{our layer: Paddle's name of it}` for a ResNet of ours.

    Args:
        backbone: the Keras model.
        firsts: `{"conv2d": number of the first, ...}` where it is not 0.
    """
    existing = {layer.name for layer in backbone.layers}
    order = list(AROUND[:3])
    for stage, block in layers.block_names(backbone):
        order += [f"stage{stage}_block{block}_{name}" for name in BLOCK]
    order += AROUND[3:]
    counts = dict.fromkeys(("conv2d", "batch_norm", "prelu", "fc"), 0)
    counts.update(firsts or {})
    found = {}
    for name in order:
        if name in existing:
            kind = _kind(name)
            found[name] = f"{kind}_{counts[kind]}"
            counts[kind] += 1
    return found


def places(backbone, weights):
    """Where the weights go; None when `backbone` is no ResNet of PLSC's kind."""
    existing = {layer.name for layer in backbone.layers}
    if not existing.issuperset(AROUND) or not backbone.get_layer("embedding").scale:
        return None
    names = layer_names(backbone, _first_numbers(weights))
    return layers.places(backbone, names, NAMES)


def prepare(weights):
    """The weights as they are: the networks are the same."""
    return weights


def hint(weights):
    """Which network the weights are of, as advice."""
    convolutions = sum(name.startswith("conv2d_") for name in weights)
    # The stem, two or three for each block, and a shortcut for each of four stages.
    known = {
        1 + 2 * 24 + 4: "resnet50",
        1 + 2 * 33 + 4: "resnet101",
        1 + 2 * 49 + 4: "resnet100",
        1 + 2 * 50 + 4: "resnet152",
        1 + 3 * 33 + 4: "resnet101 --model_options=variant=v0.1",
        1 + 3 * 50 + 4: "resnet152 --model_options=variant=v0.1",
    }
    if convolutions not in known:
        return "Only PLSC's ResNet50, 100, 101 and 152 can be imported."
    size = ""
    if "fc_0.b_0" in weights:
        size = f" --emb_size={len(weights['fc_0.b_0'])}"
    return f"The files look like --model_name={known[convolutions]}{size}."


def _kind(name):
    last = name.rpartition("_")[2].rstrip("0123456789")
    if name == "embedding_dense":
        return "fc"
    return PREFIXES.get(last, "batch_norm")


def _first_numbers(weights):
    """The smallest number of each kind of layer, usually 0.

    Paddle goes on counting where a program built something else before.
    """
    numbers = {}
    for name in weights:
        match = _LAYER.fullmatch(name)
        if match:
            numbers.setdefault(match[1], set()).add(int(match[2]))
    return {
        kind: min(found)
        for kind, found in numbers.items()
        if max(found) - min(found) == len(found) - 1
    }


def _read_meta(folder):
    path = os.path.join(folder, META)
    try:
        with open(path, encoding="utf-8") as file:
            meta = json.load(file)
        return {
            name: int(meta[name])
            for name in ("pretrain_nranks", "emb_dim", "num_classes")
        }
    except (ValueError, TypeError, KeyError) as error:
        raise ValueError(
            f"{path} is not PLSC's: expected JSON with pretrain_nranks, emb_dim and "
            f"num_classes ({type(error).__name__}: {error})."
        ) from None


def _read_variables(folder, names):
    found = {}
    for name in sorted(names):
        if name == META or name.startswith("."):
            continue
        path = os.path.join(folder, name)
        pickled = name.endswith(paddle_files.PICKLED)
        if not pickled and not re.search(r"[wb]_\d+", name):
            continue  # counters, rates and programs, of which nothing is taken
        for variable in paddle_files.variables(path):
            if variable.name in found:
                raise ValueError(
                    f"{variable.name} is both in {found[variable.name].path} and in "
                    f"{path}. Pass a folder with one checkpoint."
                )
            found[variable.name] = variable
    return found


def _head_variables(found):
    """Returns (`{our name: {rank: variable}}`, PLSC's loss type or None)."""
    head, loss = {}, None
    for name, variable in found.items():
        match = _HEAD.fullmatch(name)
        if match:
            loss = f"dist_{match[1]}"
            head.setdefault(_ARRAYS[match[3]], {})[int(match[2])] = variable
    return (head, loss) if head else _whole_head(found)


def _whole_head(found):
    """The same for the loss types softmax and arcface, whose head is not split."""
    dense = {match[1] for name in found if (match := re.match(r"fc_(\d+)\.", name))}
    own = f"fc_{max(map(int, dense))}" if len(dense) > 1 else None
    head, loss = {}, None
    for name, variable in found.items():
        match = _WHOLE.fullmatch(name)
        if match and (match[1] == own or match[1].startswith("final_fc_w")):
            loss = "softmax" if match[1] == own else "arcface"
            head[_ARRAYS[match[2] or "w"]] = {0: variable}
    return head, loss


def _read_head(folder, head, loss, meta):
    """Returns (`{our name: rows}`, number of ranks), after checking all shards."""
    if not head:
        return {}, 0
    if "weight" not in head:
        raise FileNotFoundError(
            f"{folder} has the head's {layers.listed(head)} but not its weights."
        )
    count = 1
    if loss.startswith("dist_"):
        count = meta.get("pretrain_nranks") or 1 + max(map(max, head.values()))
    arrays = {}
    for key, by_rank in head.items():
        _check_ranks(folder, key, by_rank, count)
        variables = [by_rank[rank] for rank in range(count)]
        _check_split(variables, meta)
        arrays[key] = _rows(variables)
    shapes = [f"{key} {list(rows.shape)}" for key, rows in arrays.items()]
    if len({rows.shape[0] for rows in arrays.values()}) > 1:
        raise ValueError(
            f"{folder}: the head's arrays differ in their number of classes: "
            f"{', '.join(shapes)}."
        )
    return arrays, count


def _check_ranks(folder, key, by_rank, count):
    missing = [rank for rank in range(count) if rank not in by_rank]
    if not missing and len(by_rank) == count:
        return
    name = next(iter(by_rank.values())).name
    if not missing:
        raise ValueError(
            f"{folder} has the {key} of {len(by_rank)} ranks, {META} says {count}."
        )
    wanted = [re.sub(r"@rank@\d+", f"@rank@{rank:05d}", name) for rank in missing]
    raise FileNotFoundError(
        f"{folder} lacks {layers.listed(wanted)}: every one of {count} ranks holds "
        "classes of its own. Copy the files of all machines into one folder."
    )


def _check_split(variables, meta):
    """Checks the shards' shapes against ceil(C / N) and against each other."""
    sizes = [variable.shape[-1] if variable.shape else 0 for variable in variables]
    total = meta.get("num_classes", sum(sizes))
    share = -(-total // len(sizes))
    for rank, variable in enumerate(variables):
        last = rank == len(sizes) - 1
        size = total - share * (len(sizes) - 1) if last else share
        expected = (*variables[0].shape[:-1], size)
        if meta and len(expected) == 2:
            expected = (meta["emb_dim"], size)
        if variable.shape != expected:
            raise ValueError(
                f"{variable.path} has the shape {list(variable.shape)}. With {total} "
                f"classes over {len(sizes)} ranks, as "
                f"{META if meta else 'the files'} has them, it must be "
                f"{list(expected)}."
            )


def _rows(variables):
    """Columns of Paddle's [embedding size, classes] as rows."""
    shards = [
        Shard(item.shape[-1], lambda item=item: np.transpose(item.open()))
        for item in variables
    ]
    return ShardedFiles(shards, variables[0].shape[:-1])
