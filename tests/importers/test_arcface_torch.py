"""Files of arcface_torch, which are read without PyTorch and mostly written by it."""

import io
import itertools
import os
import pickle
import zipfile

import numpy as np
import pytest

from plsc_tf import backbones
from plsc_tf.checkpoints import importers
from tests.data.pickled import Call

CLASSES, SIZE = 11, 3
WEIGHT = np.random.default_rng(0).normal(size=(CLASSES, SIZE)).astype(np.float32)
BACKBONE = {"conv1.weight": np.ones((2, 3, 3, 3), np.float32)}


class _Storage:
    """Pickles as a persistent ID: 18 numbers, of which the key names the file."""


def _tensor(*arguments):
    """Pickles as the call of a function of PyTorch."""
    return Call(_rebuild_tensor_v2, _Storage(), *arguments, False, {})


class FloatStorage: ...


def _rebuild_tensor_v2(*arguments): ...


FloatStorage.__module__, _rebuild_tensor_v2.__module__ = "torch", "torch._utils"


class _Pickler(pickle._Pickler):
    def persistent_id(self, thing):
        if isinstance(thing, _Storage):
            return "storage", FloatStorage, "0", "cpu", 18
        return None

    def save_global(self, obj, name=None):
        self.write(f"c{obj.__module__}\n{obj.__name__}\n".encode())

    dispatch = {**pickle._Pickler.dispatch, type(_rebuild_tensor_v2): save_global}


def write_by_hand(
    path, *tensor, name="conv1.weight", member="m/data/0", method=zipfile.ZIP_STORED
):
    """Writes a state dict with one tensor: its offset, shape and strides."""
    write_archive(path, {name: _tensor(*tensor)}, member, method)


def write_archive(path, content, member="m/data/0", method=zipfile.ZIP_STORED):
    main = io.BytesIO()
    _Pickler(main, 2).dump(content)
    with zipfile.ZipFile(path, "w", method) as archive:
        archive.writestr("m/data.pkl", main.getvalue())
        archive.writestr(member, np.arange(18, dtype="<f4").tobytes())


def test_pytorch_is_not_needed(tmp_path):
    write_by_hand(tmp_path / "model.pt", 1, (2, 3), (1, 5))
    (weight,) = importers.read(str(tmp_path)).backbone.values()
    np.testing.assert_array_equal(weight, [[1, 6, 11], [2, 7, 12]])


# A file of another program got a traceback that does not name it.
def test_other_tensors_are_one_error(tmp_path):
    network = backbones.build("iresnet10", image_shape=(32, 32, 3))
    for tensor, name in (((0, (2,), (1,)), 0), ((0, (), ()), "fc.weight")):
        write_by_hand(tmp_path / "model.pt", *tensor, name=name)
        source = importers.read(str(tmp_path))
        source.backbone["features.weight"] = WEIGHT[0]
        with pytest.raises(ValueError, match="model.pt does not contain the weights"):
            importers.assign(source, network)
    write_by_hand(tmp_path / "softmax_fc_gpu_0.pt", 0, (4, 0), (1, 1), name="weight")
    with pytest.raises(ValueError, match="gpu_0.pt must have class centers"):
        importers.read(str(tmp_path))


# PyTorch's own reader ran code of forged files, also with weights_only.
@pytest.mark.parametrize(
    "forged",
    [
        dict(tensor=(1, (18,), (1,))),
        dict(tensor=(0, (2,), (-1,))),
        dict(tensor=(-1, (1,), (1,))),
        dict(tensor=(0, (2**61, 2**61), (0, 0))),
        dict(tensor=(0, (10**6, 10**6), (0, 0))),
        # 2^64 bytes from the first to the last, and as numbers that overflow.
        *(dict(tensor=(0, (17,), (n,))) for n in (2**58, np.int64(2**58), [0])),
        dict(tensor=(0, (18,), (1,)), member="m/data/1"),
        dict(tensor=(0, (18,), (1,)), method=zipfile.ZIP_DEFLATED),
    ],
)
def test_tensors_beyond_their_file_are_refused(tmp_path, forged):
    write_by_hand(tmp_path / "model.pt", *forged.pop("tensor"), **forged)
    with pytest.raises(ValueError, match="truncated|cut off|compressed|unpacks to"):
        importers.read(str(tmp_path))


def test_views_and_types(torch, tmp_path):
    numbers = torch.arange(24.0).reshape(2, 3, 4)
    state = {"a": numbers.permute(2, 0, 1), "b": numbers[1, 1:, ::2]}
    state["c"] = numbers[0, 0]
    state["d"] = torch.nn.Parameter(numbers[1:])
    for kind in ("float16", "bfloat16", "float64", "int64", "uint8", "bool"):
        state[kind] = numbers.to(getattr(torch, kind))
    path = tmp_path / "model.pt"
    torch.save(state, path)
    found = importers.read(str(path)).backbone
    assert list(found) == list(state)[:-2]  # no weights are bytes
    for name, array in found.items():
        np.testing.assert_array_equal(array, state[name].detach().float().tolist())


@pytest.mark.parametrize(
    ("names", "problem"),
    [
        (
            ["checkpoint_gpu_0.pt", "checkpoint_gpu_2.pt"],
            "not contain checkpoint_gpu_1.pt",
        ),
        (["softmax_fc_gpu_1.pt", "model.pt"], "does not contain softmax_fc_gpu_0.pt"),
        # The names of a trillion files would fill the memory.
        (["softmax_fc_gpu_1000000.pt", "model.pt"], "9995 more.*1000001 ranks"),
        (["a.pt", "b.pt"], "no model.pt.*Found: a.pt, b.pt"),
    ],
)
def test_missing_files_are_named_before_anything_is_read(tmp_path, names, problem):
    for name in names:
        (tmp_path / name).write_bytes(b"")
    with pytest.raises(FileNotFoundError, match=problem):
        importers.read(str(tmp_path))


# Otherwise, an import waits for ever on a folder from elsewhere.
def test_fifos_are_not_files_of_a_checkpoint(tmp_path):
    os.mkfifo(tmp_path / "checkpoint_gpu_0.pt")
    (tmp_path / "checkpoint_gpu_1.pt").write_bytes(b"")
    for path in (tmp_path, tmp_path / "checkpoint_gpu_1.pt"):
        with pytest.raises(FileNotFoundError, match="not contain checkpoint_gpu_0.pt"):
            importers.read(str(path))


def tensors(torch, arrays):
    return {name: torch.from_dlpack(array) for name, array in arrays.items()}


def write_checkpoints(torch, folder, ranks=4):
    """What train_v2 saves with save_all_states, by a real SGD.

    PyTorch 1.13 (Debian's) refuses to read Python floats with weights_only: for it the
    same numbers are whole ones, and there is no schedule.
    """
    old = torch.__version__.startswith("1.")
    # PartialFC_V2: C // W + (r < C % W) rows each.
    firsts = [CLASSES // ranks * r + min(r, CLASSES % ranks) for r in range(ranks + 1)]
    for rank, (low, high) in enumerate(itertools.pairwise(firsts)):
        bias = torch.nn.Parameter(torch.zeros(2))
        weight = torch.nn.Parameter(torch.from_dlpack(WEIGHT[low:high]))
        optimizer = torch.optim.SGD(
            [{"params": [bias]}, {"params": [weight]}],
            lr=0 if old else 0.0,
            momentum=1 if old else 0.9,
        )
        (bias.sum() + 2 * weight.sum()).backward()
        optimizer.step()
        schedule = {}
        if not old:
            linear = torch.optim.lr_scheduler.LinearLR(optimizer)
            linear.step()
            schedule = linear.state_dict()
        whole = {
            "epoch": 3,
            "global_step": 100,
            "state_dict_backbone": tensors(torch, BACKBONE),
            "state_dict_softmax_fc": {"weight": weight.detach()},
            "state_optimizer": optimizer.state_dict(),
            "state_lr_scheduler": schedule,
        }
        torch.save(whole, folder / f"checkpoint_gpu_{rank}.pt")


def whole(rows):
    return rows.read(0, rows.shape[0])


def test_a_backbone_alone(torch, tmp_path):
    state = {f"module.{k}": v for k, v in tensors(torch, BACKBONE).items()}
    state["module.bn1.num_batches_tracked"] = torch.tensor(5)
    path = tmp_path / "glint.pth"
    torch.save(state, path)
    for given in (path, tmp_path):
        source = importers.read(str(given))
        assert (source.format, source.arrays) == ("arcface_torch", {})
        assert list(source.backbone) == ["conv1.weight"]
        np.testing.assert_array_equal(source.backbone["conv1.weight"], 1)


@pytest.mark.parametrize("ranks", [1, 4])
def test_checkpoints_of_all_ranks(torch, tmp_path, ranks):
    write_checkpoints(torch, tmp_path, ranks)
    for given in (tmp_path, tmp_path / "checkpoint_gpu_0.pt"):
        source = importers.read(str(given))
        assert source.ranks == ranks
        np.testing.assert_array_equal(source.backbone["conv1.weight"], 1)
        np.testing.assert_array_equal(whole(source.arrays["weight"]), WEIGHT)
        assert {"epoch", "state_optimizer"} < set(source.left)


@pytest.mark.parametrize("rows", [(4, 7), (5, 6), (3, 3, 5)])
def test_shards_that_do_not_fit_are_named(torch, tmp_path, rows):
    torch.save(tensors(torch, BACKBONE), tmp_path / "model.pt")
    for rank, count in enumerate(rows):
        name = f"softmax_fc_gpu_{rank}.pt"
        torch.save({"weight": torch.zeros(count, SIZE)}, tmp_path / name)
    found = rf"softmax_fc_gpu_\d.pt must hold .*: 11 classes over {len(rows)} ranks"
    with pytest.raises(ValueError, match=found):
        importers.read(str(tmp_path))


# Otherwise, the classes of a job that was killed while it saved are of two steps.
@pytest.mark.parametrize(
    ("step", "size", "problem"),
    [
        (100, 3, None),
        (200, 3, r"of the same step.*\['100', '200'\]"),
        (100, 2, r"gpu_1.pt must .*\[5, 3\].*shape=\[5, 2\]"),
    ],
)
def test_another_step_or_embedding_size_is_named(tmp_path, step, size, problem):
    for rank, (one, shape) in enumerate([(100, (6, 3)), (step, (5, size))]):
        content = {"global_step": one, "state_dict_backbone": {}}
        content["state_dict_softmax_fc"] = {"weight": _tensor(0, shape, (3, 1))}
        write_archive(tmp_path / f"checkpoint_gpu_{rank}.pt", content)
    if problem is None:
        assert importers.read(str(tmp_path)).left == ["global_step"]
        return
    with pytest.raises(ValueError, match=problem):
        importers.read(str(tmp_path))


def test_a_file_that_is_cut_off_is_named(torch, tmp_path):
    path = tmp_path / "model.pt"
    torch.save(tensors(torch, BACKBONE), path)
    content = path.read_bytes()
    cuts = [content[:size] for size in (0, 1, 100, len(content) // 2, len(content) - 1)]
    # An archive whose first member is said to begin before the file, or is encrypted.
    at = content.index(b"PK\1\2")
    cuts += [content[9:], content[: at + 6] + b"\xff" + content[at + 7 :]]
    for cut in cuts:
        path.write_bytes(cut)
        with pytest.raises(ValueError, match="model.pt is truncated"):
            importers.read(str(path))


def test_a_file_that_wants_to_run_something_is_refused(torch, tmp_path):
    sign = tmp_path / "it_ran"
    torch.save({"conv1.weight": Call(open, str(sign), "w")}, tmp_path / "model.pt")
    with pytest.raises(ValueError, match="refused"):
        importers.read(str(tmp_path / "model.pt"))
    assert not sign.exists()


@pytest.mark.parametrize(
    ("content", "message"),
    [([1, 2], "holds a list, not a state dict"), ({"epoch": 3}, "must have class")],
)
def test_a_file_without_weights(torch, tmp_path, content, message):
    torch.save(content, tmp_path / "checkpoint_gpu_0.pt")
    with pytest.raises(ValueError, match=message):
        importers.read(str(tmp_path))
