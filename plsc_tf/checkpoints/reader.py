"""Reads checkpoints: verifies the requested files, and loads them in chunks."""

import concurrent.futures
import io
import os
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import h5py
import keras
import numpy as np

from plsc_tf import private_apis
from plsc_tf.checkpoints import manifest as manifests
from plsc_tf.checkpoints.manifest import DamagedCheckpointError, naming_damage
from plsc_tf.checkpoints.rows import StoredRows
from plsc_tf.requirements import listed, require
from plsc_tf.storage import checksums, files
from plsc_tf.storage.paths import local_path

THREADS = 2
# Size of an HDF5 value of variable length, which refers to its bytes.
_REFERENCE_BYTES = 16
# More than Keras gives to any object.
_MOST_ATTRIBUTES = 16
# For each member of an archive, zipfile keeps almost a kilobyte.
_MOST_MEMBERS = 1 << 16


def verify(path: str, content: dict, names: Iterable[str] | None = None) -> None:
    """Compares files with the sizes and checksums in the manifest.

    Args:
        path: the checkpoint folder.
        content: its manifest.
        names: files to check, or None for all files.

    Raises:
        DamagedCheckpointError: a file is missing or differs; the message names the
            first one.
    """

    def problem_of(name):
        # The size shows damage without reading the file.
        if problem := _size_problem(path, content, name):
            return problem
        found = files.checksum(files.join(path, name), algorithm)[algorithm]
        if found != content["files"][name][algorithm]:
            return f"{name} does not have the checksum that its manifest gives"
        return ""

    algorithm = checksums.algorithm_of(content["files"])
    names = sorted(content["files"] if names is None else names)
    _require_distinct(path, names)
    with concurrent.futures.ThreadPoolExecutor(THREADS) as pool:
        for problem in filter(None, pool.map(problem_of, names)):
            raise DamagedCheckpointError(path, problem)


def check_sizes(path: str, content: dict, with_head: bool = True) -> None:
    """Compares the sizes of the network's and the head's files with the manifest.

    A model takes the memory that its manifest claims, before it is loaded.

    Raises:
        DamagedCheckpointError: see `verify`.
    """
    parts = content["arrays"].get("weight", {}).get("parts", ()) if with_head else ()
    names = [content["backbone"]["file"], *(part["file"] for part in parts)]
    for problem in filter(None, (_size_problem(path, content, one) for one in names)):
        raise DamagedCheckpointError(path, problem)
    _require_distinct(path, names)


def _require_distinct(path, names):
    """Raises an error if a name is a link to another one's file.

    Links of a few bytes would claim the bytes of one file again and again.
    """
    if files.is_local(path):
        places = {local_path(files.join(path, name)) for name in names}
        found = [os.stat(place).st_ino for place in filter(os.path.exists, places)]
        if len(set(found)) < len(found):
            raise DamagedCheckpointError(path, "several of its files are links to one")


def _size_problem(path, content, name):
    """Returns what the size of a file tells about its damage, or ""."""
    place, expected = files.join(path, name), content["files"][name]["bytes"]
    if not files.exists(place):
        return f"{name} is missing"
    size = files.size(place)
    return "" if size == expected else f"{name} has {size} bytes instead of {expected}"


def restore(
    path: str,
    *,
    network: keras.Model | None = None,
    variables: Mapping[str, keras.Variable] | None = None,
    arrays: Mapping[str, Any] | None = None,
    verified: bool = False,
) -> dict:
    """Loads a checkpoint after checking all requested files.

    Args:
        path: the checkpoint folder.
        network: backbone to load into, or None to skip the backbone.
        variables: `{name: variable}` to load; these are needed only to resume.
        arrays: `{name: TiledRows}` to load, with a `write`.
        verified: whether `verify` has just checked all files.

    Returns:
        the saved state dict.

    Raises:
        DamagedCheckpointError: a file differs from the one that was written; no
            variable is changed.
        ValueError: something is missing or has a different shape; no variable is
            changed.
    """
    content = manifests.read(path)
    variables, arrays = variables or {}, arrays or {}
    _compare(path, content, network, variables, arrays)
    if not verified:
        names = [part["file"] for n in arrays for part in content["arrays"][n]["parts"]]
        names += [content["backbone"]["file"]] if network is not None else []
        names += [content["training"]["file"]] if variables else []
        verify(path, content, names)
    jobs = []
    for name, array in arrays.items():
        stored = StoredRows(path, content["arrays"][name])
        jobs += [(stored, array, part) for part in content["arrays"][name]["parts"]]
    weights = None if network is None else open_weights(path, content)
    if variables:
        for name, value in read_variables(path, content, variables).items():
            variables[name].assign(value)
    if network is not None:
        with naming_damage(path, content["backbone"]["file"]):
            private_apis.load_weights(network, weights)
    with concurrent.futures.ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(lambda job: _load_part(*job), jobs))
    return content["state"]


def open_weights(path: str, content: dict) -> io.BytesIO:
    """Reads the backbone's verified file; returns it in memory.

    Raises:
        DamagedCheckpointError: it refers to data in other files, or its arrays need
            more memory than it has bytes.
    """
    name = content["backbone"]["file"]
    buffer = io.BytesIO(files.read(files.join(path, name)))
    if b"FRHP\0" in buffer.getvalue():  # such a heap of names may be compressed
        problem = f"{name} has a heap, which Keras never writes"
        raise DamagedCheckpointError(path, problem)

    types = {weight["dtype"] for weight in content["backbone"]["weights"]} | {"uint32"}
    seen = set()

    def outside(place, link):
        item = file[place] if isinstance(link, h5py.HardLink) else None
        # Compressed arrays and those that refer to other files have no offset.
        stored = isinstance(item, h5py.Dataset) and item.id.get_offset() is not None
        stored = stored and item.dtype.name in types
        if not stored and not isinstance(item, h5py.Group):
            return place
        # The attributes are looked up one after the other, for each name of an object.
        address = h5py.h5o.get_info(item.id).addr
        if address in seen or len(item.attrs) > _MOST_ATTRIBUTES:
            return place
        seen.add(address)
        values = [item.attrs.get_id(name) for name in item.attrs] + [item.id] * stored
        return place if any(map(repeats, values)) else None

    def repeats(value):
        # All values of variable length could be the same bytes of the file.
        return value.dtype.hasobject and value.get_storage_size() > _REFERENCE_BYTES

    # HDF5 would read any file that a link or an external array names.
    with naming_damage(path, name), h5py.File(buffer) as file:
        place = file.visititems_links(outside)
    if place is not None:
        problem = f"{name} has data elsewhere, repeated, compressed or of another type"
        raise DamagedCheckpointError(path, f"{problem}, at {place!r}")
    return buffer


def read_variables(path: str, content: dict, names: Iterable[str]) -> dict:
    """Reads variables that are needed only to resume; returns `{name: array}`.

    Args:
        path: the checkpoint folder, already verified.
        content: its manifest.
        names: the variables' names.
    """
    name, described = content["training"]["file"], content["training"]["variables"]
    file = files.read(files.join(path, name))
    if file.count(b"PK\1\2") > _MOST_MEMBERS:
        raise DamagedCheckpointError(path, f"{name} has too many members")
    with naming_damage(path, name), np.load(io.BytesIO(file)) as stored:
        members = stored.zip.infolist()
        packed = any(member.compress_type for member in members)
        if packed or sum(member.file_size for member in members) > len(file):
            raise ValueError("its arrays are compressed")
        arrays = {name: stored[name] for name in names}
        for name, array in arrays.items():
            found = {"shape": list(array.shape), "dtype": array.dtype.name}
            if found != described[name]:
                raise ValueError(f"{name} is {found}, not {described[name]}")
    return arrays


def build(path: str, content: dict, make: Callable[[], keras.Model]) -> keras.Model:
    """Builds a network, and creates its weights only if they fit the checkpoint's.

    Otherwise, the description of a network could fill the memory.

    Args:
        path: the checkpoint folder.
        content: its manifest.
        make: function that builds the network.

    Raises:
        ValueError: the weights have other shapes.
    """
    with private_apis.delayed_weights() as created:
        network = make()
        _compare(path, content, network, {}, {})
        # Each row of the head is as long as an embedding.
        size, rule = content["state"]["embedding_size"], "another embedding size"
        require(network.output_shape[1:] == (size,), f"{path} describes {rule}")
        # Such as those of a layer in the arguments of another one.
        rule = f"Checkpoint {path} describes weights outside of its network"
        require(len(created) <= len(network.variables), rule)
    return network


def _load_part(stored, array, part):
    """Loads the rows of one file that belong to this process, chunk by chunk."""
    first, end = array.local_range()
    first, end = max(first, part["first"]), min(end, part["last"] + 1)
    # Packed rows have exponents that unpacked ones have lost.
    same = stored.stored_dtype == array.stored_dtype
    read = stored.read_stored if same else stored.read
    if first < end:
        for start, stop in array.spans(first, end, stored.piece_rows):
            array.write(start, read(start, stop))


def _compare(path, content, network, variables, arrays):
    """Raises ValueError if a model cannot resume from a checkpoint, and says why."""
    rule = f"Checkpoint {path} contains only weights, so training cannot resume from it"
    advice = f"Start a new training from it: --checkpoint_dir={path}"
    require(not variables or content["kind"] == "training", rule, advice)
    problems = []
    if network is not None:
        stored, weights = content["backbone"]["weights"], network.weights
        if len(stored) != len(weights):
            counts = f"{len(stored)} backbone weights in the checkpoint, {len(weights)}"
            problems.append(f"{counts} here")
        for described, weight in zip(stored, weights, strict=False):
            problems += _compare_shape(weight.path, described, weight)
    in_training = content["training"].get("variables", {})
    for described, wanted in ((in_training, variables), (content["arrays"], arrays)):
        for name, value in wanted.items():
            problems += _compare_shape(name, described.get(name), value)
    options = "model_name, emb_size, num_classes, sub_centers and optimizer"
    rule = f"Checkpoint {path} does not fit this model: {listed(problems, 5, '; ')}"
    require(not problems, rule, f"Use the {options} it was made with")


def _compare_shape(name, described, value):
    if described is None:
        return [f"{name}: not in the checkpoint"]
    stored, here = described["shape"], list(value.shape)
    problem = f"{name}: {stored} in the checkpoint, {here} here"
    return [] if stored == here else [problem]


def load_matching(path: str, network: keras.Model) -> tuple[list, dict, list]:
    """Loads the backbone weights whose names and shapes match those of a network.

    In a Keras weights file, each layer is a group, with the layer's name as an
    attribute and its weights as numbered arrays. Layers that a user named are matched
    by name. Names that Keras generates contain a process-wide counter, so layers with
    such names are matched by their group's path, which counts the layers of each type
    within the network.

    Args:
        path: the checkpoint folder.
        network: a Keras model.

    Returns:
        names of the network's weights that were loaded; `{name: reason}` for those that
        were not; names of weights in the checkpoint that were not used.

    Raises:
        DamagedCheckpointError: the weights file is damaged.
        ValueError: no weight matches.
    """
    content = manifests.read(path)
    verify(path, content, [content["backbone"]["file"]])
    loaded: list[str] = []
    kept, buffer = {}, io.BytesIO()
    private_apis.save_weights(network, buffer)
    weights = open_weights(path, content)
    with (
        naming_damage(path, content["backbone"]["file"]),
        h5py.File(buffer, "r+") as target,
        h5py.File(weights) as source,
    ):
        stored = _arrays(source)
        for name, array in _arrays(target).items():
            if name not in stored:
                kept[name] = "not in the checkpoint"
            elif stored[name].shape != array.shape:
                here = f"{array.shape} here"
                kept[name] = f"{stored[name].shape} in the checkpoint, {here}"
            else:
                array[...] = stored[name][...]
                loaded.append(name)
    reason = f"none of its {len(stored)} backbone weights fits this one"
    rule = f"Checkpoint {path} belongs to another network: {reason}"
    require(loaded, rule, "Use the model_name it was made with")
    private_apis.load_weights(network, buffer)
    return loaded, kept, sorted(set(stored) - set(loaded))


def _arrays(file):
    """Returns `{"layer/number": array}` for a weights file."""
    arrays = {}

    def visit(place, item):
        if isinstance(item, h5py.Dataset):
            group, _, number = place.rpartition("/")
            key = f"{_layer_name(group, file[group].attrs.get('name'))}/{number}"
            # Layers of models within the network may have the same name.
            arrays[place if key in arrays else key] = item

    file.visititems(visit)
    return arrays


def _layer_name(group, name):
    place = group.removesuffix("/vars")
    kind = re.sub(r"_\d+$", "", place.rpartition("/")[2])
    made_up = name is None or re.fullmatch(rf"{re.escape(kind)}(_\d+)?", name)
    return place if made_up else name
