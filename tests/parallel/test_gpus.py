"""Which GPUs a process uses, and what it says if it cannot."""

from types import SimpleNamespace

import pytest
import tensorflow as tf
from tensorflow.python.distribute.cross_device_ops import CollectiveAllReduce

import plsc_tf
from plsc_tf import private_apis
from plsc_tf.parallel import gpus

OPEN = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  545.23.08  Release\n"
CLOSED = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  470.57.02  Tue Jul 13 2021\n"


@pytest.fixture
def driver(tmp_path, monkeypatch):
    """Installs a driver on a machine of which TensorFlow lists no GPU."""
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    path = tmp_path / "version"
    monkeypatch.setattr(gpus, "DRIVER_FILE", path)
    return path.write_text


def test_gpus_of_a_process(monkeypatch):
    def replace(name, of_gpus):
        real = getattr(tf.config, name)
        # Strategies of CPU devices ask the same functions.
        monkeypatch.setattr(
            tf.config, name, lambda x: of_gpus(x) if "GPU" in x else real(x)
        )

    def machine(visible, hidden=0, parts=None):
        names = [f"GPU:{i}" for i in range(visible + hidden)]
        replace("list_physical_devices", lambda kind: names)
        replace("get_visible_devices", lambda kind: names[:visible])
        replace("get_logical_device_configuration", lambda gpu: parts)

    machine(visible=4)
    assert [gpus.to_use(n) for n in (0, 1, 4)] == [4, 1, 4]
    with pytest.raises(ValueError, match=r"num_replicas=5, but this .* has 4 GPU"):
        plsc_tf.strategy(5)
    machine(visible=1, parts=[None, None])
    assert gpus.to_use() == 2
    machine(visible=0, hidden=4)
    assert gpus.to_use(2) == 0
    assert "CPU" in plsc_tf.strategy(2).extended.worker_devices[0]


@pytest.mark.parametrize(
    ("asked", "used", "expected"),
    [
        ("auto", [8, 8], "nccl"),
        ("auto", [0, 0], "auto"),
        ("ring", [8, 8], "ring"),
        ("nccl", [1, 1], "nccl"),
    ],
)
def test_gpus_communicate_through_nccl(asked, used, expected):
    assert gpus.implementation(asked, used) == expected


@pytest.mark.parametrize(
    ("asked", "used", "message"),
    [
        ("auto", [8, 8, 7], "same number of GPUs.*worker 0=8, worker 1=8, worker 2"),
        ("auto", [1, 0], "worker 0=1, worker 1=0"),
        ("nccl", [0, 0], "communication=nccl needs GPUs"),
    ],
)
def test_workers_that_cannot_communicate(asked, used, message):
    with pytest.raises(ValueError, match=message):
        gpus.implementation(asked, used)


def test_strategies_that_use_nccl():
    kinds = tf.distribute.experimental.CommunicationImplementation
    for kind in kinds:
        options = tf.distribute.experimental.CommunicationOptions(implementation=kind)
        devices = ["CPU:0", "CPU:1"]
        operations = CollectiveAllReduce(devices, len(devices), options)
        extended = SimpleNamespace(_cross_device_ops=operations)
        strategy = SimpleNamespace(num_replicas_in_sync=2, extended=extended)
        assert private_apis.uses_nccl(strategy) == (kind == kinds.NCCL)
    assert not private_apis.uses_nccl(plsc_tf.strategy(2))
    assert not private_apis.uses_nccl(tf.distribute.get_strategy())


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (CLOSED, "driver 470.57.02. It needs driver 525.60.13 or later"),
        (OPEN, r"driver 545.23.08. .* install 'tensorflow\[and-cuda\]=="),
        ("a new form", "driver 'a new form'. .*CUDA_VISIBLE_DEVICES=-1"),
    ],
)
def test_a_driver_without_gpus_is_explained(driver, text, words, caplog):
    driver(text)
    with pytest.raises(ValueError, match=words):
        plsc_tf.strategy(2)
    with pytest.raises(ValueError, match=words):
        gpus.to_use(0, required=True)  # communication=nccl
    assert "CPU" in plsc_tf.strategy(1).extended.worker_devices[0]


def test_hidden_gpus_are_not_missing(driver, monkeypatch):
    driver(CLOSED)
    for hidden in ("", "-1"):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", hidden)
        assert gpus.to_use(2, required=True) == 0
    monkeypatch.setattr(gpus, "DRIVER_FILE", "/no/such/file")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    assert gpus.to_use(2, required=True) == 0


def test_a_device_without_memory_is_an_error(monkeypatch, logical_devices):
    gpus.require_working(["CPU:0", "CPU:1"])
    monkeypatch.setattr(gpus, "LEAST_BYTES", 1 << 55)
    with pytest.raises(RuntimeError, match=r"CPU:0 cannot be used: .*nvidia-smi shows"):
        gpus.require_working(["CPU:0"])
