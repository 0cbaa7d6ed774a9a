"""Reads snapshots as rows of a matrix, slice by slice, and defines a row's layout."""

import dataclasses
import functools
from collections.abc import Callable
from io import BytesIO

import h5py
import numpy as np
import tensorflow as tf

from plsc_tf.checkpoints import catalog, manifest, reader, writer
from plsc_tf.checkpoints.rows import StoredRows
from plsc_tf.requirements import require
from plsc_tf.storage import files


@dataclasses.dataclass(frozen=True)
class Piece:
    """One weight variable as a section of the weight vector.

    Attributes:
        name: name of the weight.
        shape: shape of the weight.
        start: its first index in the vector.
        dataset: HDF5 name in a checkpoint's weights file; empty for class weights.
        rows: array name in a checkpoint, such as "weight", if this is a class weight;
            otherwise empty.
    """

    name: str
    shape: tuple
    start: int
    dataset: str = ""
    rows: str = ""

    @property
    def size(self):
        """Number of elements."""
        return int(np.prod(self.shape, dtype=np.int64))

    @property
    def stop(self):
        """The index in the vector after its last element."""
        return self.start + self.size


@dataclasses.dataclass(frozen=True)
class Layout:
    """The order of the trained weights: in network order, then the head's weights.

    Keras numbers layer names across the whole process, so sorting by name could give a
    different order in another process. The network order is stable, and checkpoints
    preserve it.

    Attributes:
        pieces: tuple of `Piece`.
        variables: the mirrored `keras.Variable`s of the pieces, in the same order.
    """

    pieces: tuple
    variables: tuple

    @property
    def with_head(self):
        """True if the class weights are included."""
        return bool(self.pieces[-1].rows)

    @property
    def size(self):
        """n, the length of the vector."""
        return self.pieces[-1].stop

    def describe(self):
        """Returns `[[name, shape]]` of the pieces for a projection's description.

        Names come from the weights file, so they are the same in every process.
        """
        return [[p.dataset or p.name, list(p.shape)] for p in self.pieces]


def layout_of(model, scope):
    """Returns the `Layout` of a model.

    Args:
        model: the `Classifier`.
        scope: "backbone", or "all" to include the class weights.
    """
    network = model.backbone
    places = _datasets(network)
    variables = list(network.trainable_variables)
    weights = [(v.path, v.shape, places[id(v)], "") for v in variables]
    if scope == "all":
        arrays = model.head.arrays().items()
        weights += [(f"head/{name}", rows.shape, "", name) for name, rows in arrays]
        variables += [] if model.head.sharded else model.head.variables_replicated
    pieces, start = [], 0
    for name, shape, dataset, rows in weights:
        pieces.append(Piece(name, tuple(shape), start, dataset, rows))
        start = pieces[-1].stop
    return Layout(tuple(pieces), tuple(variables))


def _datasets(network):
    """Finds each weight's HDF5 name in Keras's weights file: `{id(weight): name}`.

    To do so, it writes a file in which each weight is filled with its own index.
    """
    weights, places = network.weights, {}
    values = [(w, tf.fill(w.shape, tf.cast(i, w.dtype))) for i, w in enumerate(weights)]

    def look(name, item):
        if isinstance(item, h5py.Dataset) and item.size:
            places[int(item[(0,) * item.ndim])] = name

    content = b"".join(writer.backbone_file(network, values).buffers())
    with h5py.File(BytesIO(content)) as file:
        file.visititems(look)
    return {id(w): places[i] for i, w in enumerate(weights) if i in places}


class Snapshot:
    """A snapshot that is read by slices of the weight vector.

    Args:
        path: path of the checkpoint.
        layout: the `Layout` of the model.
        heartbeat: function to call after each reading.

    Raises:
        DamagedCheckpointError: a file is missing or damaged.
        ValueError: the snapshot is of another model.
    """

    def __init__(self, path, layout, heartbeat: Callable = lambda: None):
        self.path, self._heartbeat = path, heartbeat
        content = manifest.read(path)
        classes = [piece for piece in layout.pieces if piece.rows]
        arrays = [_class_rows(path, content, piece) for piece in classes]
        names = [part["file"] for array in arrays for part in array["parts"]]
        reader.verify(path, content, [content["backbone"]["file"], *names])
        stored = [StoredRows(path, array) for array in arrays]
        reads = [functools.partial(_of_rows, rows) for rows in stored]
        self._parts = list(zip(classes, reads, strict=True))
        name = files.join(path, content["backbone"]["file"])
        with h5py.File(reader.open_weights(path, content)) as file:
            for piece in [piece for piece in layout.pieces if not piece.rows]:
                read = functools.partial(_of_file, name, *self._place(file, piece))
                self._parts.append((piece, read))
        heartbeat()

    def read(self, low, high):
        """Reads elements `[low, high)` of the vector as float32."""
        numbers = np.empty(high - low, np.float32)
        for piece, read in self._parts:
            start, stop = max(low, piece.start), min(high, piece.stop)
            if start < stop:
                part = read(start - piece.start, stop - piece.start)
                numbers[start - low : stop - low] = part
        self._heartbeat()
        return numbers

    def _place(self, file, piece):
        """Returns (dtype, offset of the data) of a weight in the file."""
        data = file.get(piece.dataset)
        if data is None or data.shape != piece.shape:
            problem = f"no {piece.dataset} of shape {list(piece.shape)}"
            _refuse(self.path, f"{problem} ({piece.name} here)")
        return data.dtype, data.id.get_offset()


def _of_file(path, dtype, offset, low, high):
    """Reads elements `[low, high)` of a weight in a file."""
    begin, end = offset + low * dtype.itemsize, offset + high * dtype.itemsize
    return np.frombuffer(files.read(path, begin, end), dtype)


def _of_rows(rows, low, high):
    """Reads elements `[low, high)` from stored rows, which are read whole."""
    width = int(np.prod(rows.shape[1:], dtype=np.int64))
    first, end = low // width, -(-high // width)
    return rows.read(first, end).reshape(-1)[low - first * width : high - first * width]


def _class_rows(path, content, piece):
    """Returns the manifest's entry of class weights; refuses another model's."""
    if (array := content["arrays"].get(piece.rows)) is None:
        _refuse(path, "no class weights, which dim_reduce_scope=all needs")
    if tuple(array["shape"]) != piece.shape:
        own = list(piece.shape)
        _refuse(path, f"{piece.name} of shape {array['shape']}, not {own}")
    return array


def _refuse(path, problem):
    raise ValueError(
        f"Snapshot {path} belongs to another model: it has {problem}. Use the "
        "model_name, emb_size, num_classes and dim_reduce_scope of stage 1."
    )


def open_folder(
    folder: str, layout, components: int, heartbeat: Callable = lambda: None
) -> list[Snapshot]:
    """Opens and checks all snapshots in a folder, oldest first.

    Args:
        folder: the snapshots' folder (MindSpore: weight_load_dir).
        layout: the `Layout` of the model.
        components: number of principal components.
        heartbeat: see `Snapshot`.

    Returns:
        list of `Snapshot`.

    Raises:
        DamagedCheckpointError: a snapshot's file is missing or damaged; without a
            readable manifest, it does not count.
        NotADirectoryError: `folder` is not a folder.
        ValueError: there are too few snapshots, or one is of another model.
    """
    rule = f"weight_load_dir '{folder}' is not a folder"
    advice = "Set it to stage 1's snapshot_dir, by default model_save_dir/snapshots"
    require(files.is_dir(folder), rule, advice, raises=NotADirectoryError)
    paths = [path for _, path in catalog.find_all(folder)]
    rule = f"n_component={components} needs at least {components + 1} snapshots"
    advice = "Lower it, or keep more in stage 1 (snapshots_per_epoch, snapshot_max)"
    found = f"'{folder}' with {len(paths)}"
    require(len(paths) > components, rule, advice, weight_load_dir=found)
    return [Snapshot(path, layout, heartbeat) for path in paths]
