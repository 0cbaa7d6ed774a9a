"""Loads the weights of a checkpoint's backbone that fit another network.

In Keras's weights file every layer is a group with the layer's name as an attribute
and its weights as numbered arrays. Layers that were named by somebody are found by
that name; names that Keras made up count layers over the whole process, so those are
found by the place in the file, which counts layers of a kind over the network.
"""

import dataclasses
import os
import re
import tempfile

import h5py

from plsc_tf.checkpoints import manifest, reader


@dataclasses.dataclass(frozen=True)
class Matched:
    """The result of loading matching weights.

    Attributes:
        loaded: names of the network's weights that were loaded.
        kept: `{name: reason}` of those that stay as they are.
        unused: names of what else the checkpoint holds.
    """

    loaded: list
    kept: dict
    unused: list


def load_matching(path, network):
    """Loads the weights of equal name and shape into a network.

    Args:
        path: the checkpoint folder.
        network: a Keras model.

    Returns:
        `Matched`.

    Raises:
        DamagedCheckpointError: the weights file is damaged.
        ValueError: nothing fits.
    """
    content = manifest.read(path)
    reader.verify(path, content, [content["backbone"]["file"]])
    loaded, kept = [], {}
    with tempfile.TemporaryDirectory(prefix="plsc_tf-") as folder:
        own = os.path.join(folder, "own.weights.h5")
        network.save_weights(own)
        stored = reader.local_file(path, content["backbone"]["file"], folder)
        with h5py.File(own, "r+") as target, h5py.File(stored, "r") as source:
            found = _arrays(source)
            for name, place in _arrays(target).items():
                if name not in found:
                    kept[name] = "not in the checkpoint"
                    continue
                array = source[found[name]]
                if array.shape != target[place].shape:
                    kept[name] = f"{array.shape} in the checkpoint, "
                    kept[name] += f"{target[place].shape} here"
                    continue
                target[place][...] = array[...]
                loaded.append(name)
        if not loaded:
            raise ValueError(
                f"Checkpoint {path} is of another network: none of its "
                f"{len(found)} backbone weights fits. Use the model_name it was made "
                "with."
            )
        network.load_weights(own)
    return Matched(loaded, kept, sorted(set(found) - set(loaded)))


def _arrays(file):
    """`{name of layer and number: place in the file}` of a weights file."""
    found = {}

    def visit(place, item):
        if isinstance(item, h5py.Dataset):
            group, _, number = place.rpartition("/")
            layer = _layer_name(group, file[group].attrs.get("name"))
            found[f"{layer}/{number}"] = place

    file.visititems(visit)
    return found


def _layer_name(group, name):
    place = group.removesuffix("/vars")
    kind = re.sub(r"_\d+$", "", place.rpartition("/")[2])
    made_up = name is None or re.fullmatch(rf"{re.escape(kind)}(_\d+)?", name)
    return place if made_up else name
