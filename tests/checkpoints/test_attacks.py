"""Checkpoints made by an attacker, whose checksums are right."""

import math
import os

import h5py
import numpy as np
import pytest
import tensorflow as tf

from plsc_tf.checkpoints import manifest, reader
from plsc_tf.checkpoints.manifest import DamagedCheckpointError
from plsc_tf.storage import files
from tests.checkpoints.small import FILES, Target, make_network, seal

SECRET = np.arange(6, dtype=np.float32)


# An attacker's checkpoint would copy any file of the user into weights that the user
# trains on and publishes.
@pytest.mark.parametrize("listed", [True, False])
@pytest.mark.parametrize("name", ["../secret", "rows/../../secret", "{0}/secret"])
def test_a_manifest_names_only_its_own_files(path, tmp_path, name, listed):
    name = name.format(tmp_path)
    (tmp_path / "secret").write_bytes(SECRET.tobytes())
    content = manifest.read(str(path))
    for entry in (content["backbone"], content["arrays"]["weight"]["parts"][0]):
        before, entry["file"] = entry["file"], name
        if listed:
            content["files"][name] = content["files"][before]
        seal(path, content)
        with pytest.raises(DamagedCheckpointError, match=r"manifest\.json.*secret"):
            manifest.read(str(path))
        entry["file"] = before


# As above, by HDF5's own ways to refer to other files.
@pytest.mark.parametrize("kind", ["external", "virtual", "link", "folder link", "soft"])
def test_weights_come_from_their_own_file(path, tmp_path, kind):
    secret, place, shape = str(tmp_path / "secret"), "layers/dense/vars/0", (2, 3)
    (tmp_path / "secret").write_bytes(SECRET.tobytes())
    with h5py.File(f"{secret}.h5", "w") as file:
        file[place] = SECRET.reshape(shape)
    with h5py.File(path / "backbone.weights.h5", "r+") as file:
        del file[place]
        if kind == "external":
            file.create_dataset(place, shape, "f4", external=[(secret, 0, 24)])
        elif kind == "virtual":
            layout = h5py.VirtualLayout(shape, "f4")
            layout[:] = h5py.VirtualSource(f"{secret}.h5", place, shape)
            file.create_virtual_dataset(place, layout)
        elif "link" in kind:
            del file["layers/dense"]
            at = place if kind == "link" else "layers/dense"
            file[at] = h5py.ExternalLink(f"{secret}.h5", at)
        else:
            file[place] = h5py.SoftLink("/layers/dense/vars/1")
    seal(path, manifest.read(str(path)))
    slots = {"optimizer/0000": tf.Variable([0.0, 0.0])}
    for load in (
        lambda network: reader.load_matching(str(path), network),
        lambda network: reader.restore(str(path), network=network, variables=slots),
    ):
        network = make_network()
        with pytest.raises(DamagedCheckpointError, match=r"weights\.h5 has data else"):
            load(network)
        assert not np.any(network.layers[0].kernel)
        assert not np.any(slots["optimizer/0000"])


# A command that waits forever, or fills the memory, on a folder that a user was sent.
@pytest.mark.parametrize("kind", ["FIFO", "device"])
def test_only_files_are_opened(tmp_path, kind):
    path = tmp_path / manifest.NAME
    os.mkfifo(path) if kind == "FIFO" else path.symlink_to("/dev/zero")
    for read in (files.read, files.checksum, files.open_random):
        with pytest.raises(OSError, match="not a file, but a FIFO, device"):
            read(str(path))


# Otherwise, whoever loads the checkpoint gets a traceback instead of the cause.
def test_a_manifest_of_wrong_types_is_one_error(path):
    good = manifest.read(str(path))
    wrong = [{**good, key: value} for key in good for value in (None, [1], "x", -1)]
    wrong += [{k: v for k, v in good.items() if k != key} for key in good]
    wrong += [{**good, "state": {"global_step": step}} for step in (-1, "1", None)]
    for content in wrong:
        if (
            content.get("format") == manifest.FORMAT
            and content.get("versions") == good["versions"]
        ):
            (path / manifest.NAME).write_bytes(manifest.encode(content))
            with pytest.raises(DamagedCheckpointError, match=r"manifest\.json"):
                manifest.read(str(path))
    (path / manifest.NAME).write_text("[" * 10**5)
    with pytest.raises(DamagedCheckpointError, match=r"manifest\.json.*recursion"):
        manifest.read(str(path))


@pytest.mark.parametrize("both", [True, False])
def test_checksums_of_two_kinds_are_refused(path, both):
    content = manifest.read(str(path))
    entry = content["files"][FILES[0]]
    entry["sha256"] = entry["blake3"] if both else entry.pop("blake3")
    (path / manifest.NAME).write_bytes(manifest.encode(content))
    with pytest.raises(DamagedCheckpointError, match="checksums of several kinds"):
        manifest.read(str(path))


# The memory of a network would be a multiple of the file's bytes.
def test_a_network_has_no_numbers_of_8_bits(path):
    content = manifest.read(str(path))
    number = content["files"][content["backbone"]["file"]]["bytes"] * 3 // 4
    weights = [{"path": "x", "shape": [number], "dtype": "uint8"}]
    content["backbone"]["weights"] = weights
    (path / manifest.NAME).write_bytes(manifest.encode(content))
    with pytest.raises(DamagedCheckpointError, match="fit into a listed file"):
        manifest.read(str(path))


HUGE = {"shape": [2**20, 2**20], "dtype": "float32"}


# Each of these would end in a traceback, or take terabytes before a file is looked at.
@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("state.global_step", 1.5),
        ("state.num_classes", 2**70),
        ("state.epoch", "1"),
        ("state.logs", {"loss": "x"}),
        ("state.head", {"kind": "ShardedHead"}),
        ("state.given", 5),
        ("state.starts", 5),
        ("backbone.weights", [{"path": "x", **HUGE}]),
        ("backbone.file", "rows"),
        ("training.variables", {"optimizer/0000": HUGE}),
        ("arrays.weight.shape", [7, 2**50]),
        ("arrays.weight.shape", [7, 0]),
        ("arrays.weight.shape", [2**60] * 4),
        ("arrays.weight.dtype", "object"),
        ("arrays.weight.dtype", "float64_e5m2"),
        ("arrays", {"bias": {"shape": [7], "dtype": "float32", "parts": []}}),
        ("files", {FILES[0]: {"bytes": 1}, FILES[1]: {"bytes": 1, "blake3": "0" * 64}}),
        ("arrays.weight.parts", [{"file": FILES[2], "first": 0, "last": math.nan}]),
    ],
)
def test_a_wrong_value_is_refused_by_its_key(path, key, value):
    content = inner = manifest.read(str(path))
    *outer, last = key.split(".")
    for name in outer:
        inner = inner[name]
    inner[last] = value
    seal(path, content)
    named = rf"manifest\.json.*{'.'.join(outer)}.* must"
    with pytest.raises(DamagedCheckpointError, match=named):
        manifest.read(str(path))


# Each value would be the same bytes, of which the file has only one copy.
# Names, and the attributes of each, were read one by one: in days.
@pytest.mark.parametrize("place", ["text", "type", "attribute", "attributes", "link"])
def test_values_that_are_read_many_times_are_refused(path, place):
    target = Target()
    with h5py.File(path / "backbone.weights.h5", "r+") as weights:
        if place == "attribute":
            weights["layers/dense"].attrs["name"] = ["dense"] * 6
        elif place == "attributes":
            weights["layers/dense"].attrs.update(
                {f"{number}": 1 for number in range(20)}
            )
        elif place == "link":
            weights["layers/more"] = weights["layers/dense/vars/0"]
        else:
            del weights["layers/dense/vars/0"]
            weights["layers/dense/vars/0"] = [["1" if place == "text" else 1] * 3] * 2
    seal(path, manifest.read(str(path)))
    with pytest.raises(DamagedCheckpointError, match="repeated"):
        target.restore(path)
    assert target.is_untouched()


# A few kilobytes that need gigabytes of memory.
@pytest.mark.parametrize("file", ["training.npz", "backbone.weights.h5", "a heap"])
def test_a_file_that_unpacks_to_more_than_its_size_is_refused(path, file):
    target = Target()
    if file == "training.npz":
        # Its stated size is small, but an attacker can state any.
        np.savez_compressed(path / file, **{"optimizer/0000": np.zeros(2)})
    elif file == "a heap":
        # Whose names may be compressed.
        file = "backbone.weights.h5"
        with h5py.File(path / file, "r+", libver="latest") as weights:
            group = weights.create_group("more")
            for number in range(100):
                group[f"{number}"] = weights["layers"]
    else:
        with h5py.File(path / file, "r+") as weights:
            kernel = "layers/dense/vars/0"
            del weights[kernel]
            weights.create_dataset(kernel, (2, 10**12), "f4", chunks=True)
    seal(path, manifest.read(str(path)))
    with pytest.raises(DamagedCheckpointError, match=rf"{file} .*(compressed|heap)"):
        target.restore(path)
    assert target.is_untouched()
