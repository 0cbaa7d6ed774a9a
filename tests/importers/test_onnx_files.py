"""Pretrained networks in ONNX files embed as there, or are refused."""

import importlib.util
import json
import os
import types

import numpy as np
import pytest

from plsc_tf import import_checkpoint as command
from plsc_tf.checkpoints import importers
from plsc_tf.data.images import encode
from plsc_tf.jobs import import_checkpoint, teachers, trained
from plsc_tf.jobs.embed.command import embed
from plsc_tf.jobs.evaluate.command import evaluate
from plsc_tf.options.settings import Settings
from plsc_tf.parallel.strategy import strategy
from plsc_tf.serving.client import Client
from plsc_tf.training import weight_rules
from tests import programs, required
from tests.server.server_tools import served

for name in ("onnx", "onnxruntime"):
    pytest.importorskip(name, reason="needs pip install 'plsc_tf[onnx]'")

SMALL = {"model_name": "iresnet", "model_options": "depths=2-1,width=4-6"}
SMALL |= {"emb_size": 8, "image_shape": (3, 16, 16)}


def export(folder, *names):
    """Writes files of networks, see `torch_networks`."""
    programs.run("-m", "tests.importers.torch_networks", folder, *names)


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """A folder with the files of a small network and of mbf."""
    if importlib.util.find_spec("torch") is None:
        required.skip("TORCH", "PyTorch is missing")
    folder = tmp_path_factory.mktemp("exported")
    export(folder, "small", "mbf")
    return folder


def imported(path, **options):
    """Returns (rows of the command, the loaded backbone) after comparing embeddings."""
    options |= {"import_from": str(path), "checkpoint_dir": f"{path}.ours"}
    rows = dict(import_checkpoint.import_checkpoint(Settings.from_values(**options)))
    settings = Settings.from_values(checkpoint_dir=f"{path}.ours", num_replicas=1)
    model = trained.load(settings).model
    name = path.name.partition(".")[0].removesuffix("_unfolded")
    theirs = json.loads(path.with_name(f"{name}.json").read_text())
    found = model.embed(np.array(theirs["images"], np.uint8))
    limit = 1e-4 * max(1, np.abs(theirs["embeddings"]).max())
    np.testing.assert_allclose(found, theirs["embeddings"], atol=limit)
    return rows, model.backbone


def test_an_iresnet_without_folded_batch_norms(exported):
    rows, _ = imported(exported / "small_unfolded.onnx", **SMALL)
    assert rows["format"] == "onnx"
    assert "folded" not in rows


def test_folded_batch_norms_stay_what_they_are_if_they_are_frozen(exported):
    rows, backbone = imported(exported / "small.onnx", **SMALL)
    assert rows["folded"].startswith("9 batch normalizations without statistics")
    # As that row advises; the last one has statistics of its own.
    weight_rules.freeze(backbone, ".*bn|embedding$")
    x = np.random.default_rng(2).normal(size=(4, 16, 16, 3))
    both = [backbone(x, training=training) for training in (True, False)]
    np.testing.assert_allclose(*both, atol=1e-5)


@pytest.mark.parametrize("file", ["mbf.onnx", "mbf.pt"])
def test_mbf_is_recognized(exported, file):
    rows, backbone = imported(exported / file)
    assert rows["backbone"].startswith("mbf: ")
    assert (backbone.name, backbone.output_shape[1]) == ("mbf", 128)
    options = Settings.from_values(teacher=str(exported / file), distill="embedding")
    model = types.SimpleNamespace(strategy=strategy(2))
    found = teachers.load_distillation(options.distillation, model).teacher
    theirs = json.loads((exported / "mbf.json").read_text())
    images = np.array(theirs["images"], np.float32)
    np.testing.assert_allclose(found.embed(images), theirs["embeddings"], atol=0.2)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["iresnet18", "vit_t"])
def test_large_networks_are_recognized(exported, tmp_path, name):
    export(tmp_path, name)
    _, backbone = imported(tmp_path / f"{name}.onnx")
    assert backbone.name == name


def write(path, *nodes, y=(1, 3, 16, 16), **constants):
    """Writes a graph of the nodes, whose operations may refer to the constants."""
    from onnx import helper, numpy_helper, save

    shapes = {"x": (1, 3, 16, 16), "y": y}.items()
    values = [helper.make_tensor_value_info(n, 1, shape) for n, shape in shapes]
    tensors = [numpy_helper.from_array(a, name) for name, a in constants.items()]
    graph = helper.make_graph(nodes, "g", values[:1], values[1:], tensors)
    save(helper.make_model(graph), str(path))


def conv(**changes):
    from onnx import helper

    return helper.make_node("Conv", ["x", "kernel"], ["y"], pads=[1] * 4, **changes)


KERNEL = np.zeros((3, 3, 3, 3), np.float32)


def test_what_is_not_one_of_the_networks_is_named(tmp_path):
    write(tmp_path / "detector.onnx", conv(), kernel=KERNEL)
    settings = Settings.from_values(import_from=str(tmp_path))
    message = "detector.onnx has an unknown network. Only IResNet .* are known"
    with pytest.raises(ValueError, match=message):
        command.main(settings)
    write(tmp_path / "recognizer.onnx", conv(), kernel=KERNEL)
    with pytest.raises(ValueError, match="files=detector.onnx, recognizer.onnx"):
        command.main(settings)


def test_another_network_is_used_as_it_is(tmp_path):
    from onnx import helper

    pool = helper.make_node("GlobalAveragePool", ["x"], ["mean"])
    path, names = tmp_path / "other.onnx", [f"{i:02}.png" for i in range(18)]
    write(path, pool, helper.make_node("Flatten", ["mean"], ["y"]), y=(1, 3))
    colors = 200 * np.eye(3)[np.arange(18) // 2 % 3]
    for name, color in zip(names, colors, strict=True):
        (tmp_path / name).write_bytes(encode(np.full((16, 16, 3), color, np.uint8)))
    given = {"saved_model": str(path), "output": str(tmp_path / "rows.npy")}
    embed(Settings.from_values(images=str(tmp_path), **given))
    rows = np.load(tmp_path / "rows.npy")  # with those of the mirror images
    np.testing.assert_allclose(rows, 2 * (colors - 127.5) / 127.5, atol=1e-5)
    same = [f"{a} {b} 1" for a, b in zip(names[::2], names[1::2], strict=True)]
    others = [f"{a} {b} 0" for a, b in zip(names[1::2], names[2::2], strict=False)]
    (tmp_path / "pairs.txt").write_text("\n".join(same + others))
    lists = (str(tmp_path / "pairs.txt"),)
    rows = evaluate(Settings.from_values(saved_model=str(path), pair_lists=lists))
    assert dict(rows)["pairs: accuracy"].startswith("1.0")
    with served(path) as server, Client(f"127.0.0.1:{server['port']}") as client:
        found = client.encode([(tmp_path / name).read_bytes() for name in names[:4]])
    np.testing.assert_allclose(found, (colors[:4] - 127.5) / 127.5, atol=0.03)
    write(path, conv(), kernel=KERNEL)
    with pytest.raises(ValueError, match=r"other.onnx must return \[images, size\]"):
        embed(Settings.from_values(images=str(tmp_path), **given | {"output": "b.npy"}))


def test_damaged_files_and_those_that_reach_outside_are_refused(tmp_path):
    import onnx

    path = tmp_path / "model.onnx"

    def refuses(message):
        with pytest.raises(ValueError, match=f"model.onnx is truncated, .*{message}"):
            importers.read(str(path))

    write(path, conv(), kernel=KERNEL)
    whole = path.read_bytes()
    for size in (0, 40, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:size])
        refuses("")
    path.write_bytes(b"\x89PNG\r\n")
    refuses("")
    write(path, conv(domain="com.example"), kernel=KERNEL)
    refuses("operations that are not ONNX's")
    outside = onnx.load_model_from_string(whole)
    tensor = outside.graph.initializer[0]
    onnx.external_data_helper.set_external_data(tensor, "/etc/hostname")
    path.write_bytes(outside.SerializeToString())
    refuses("its weights are in other files")
    # The files that a sparse tensor names are not its own.
    sparse = onnx.load_model_from_string(whole)
    sparse.graph.node[0].attribute.add(name="value").sparse_tensor.dims.append(1)
    path.write_bytes(sparse.SerializeToString())
    refuses("operations that are not ONNX's")


def test_the_same_weights_in_another_computation_are_refused(exported, tmp_path):
    import onnx

    model = onnx.load(exported / "small.onnx")
    next(node for node in model.graph.node if node.op_type == "Add").op_type = "Sub"
    onnx.save(model, tmp_path / "model.onnx")
    with pytest.raises(ValueError, match="must give the embeddings.*difference="):
        imported(tmp_path / "model.onnx", **SMALL)
    assert os.listdir(tmp_path) == ["model.onnx"]
