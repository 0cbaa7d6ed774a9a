"""Who belongs to a cluster, from TF_CONFIG, flags and Slurm."""

import json
import os
import socket
import stat

import pytest

from plsc_tf.options.settings import Settings
from plsc_tf.parallel import addresses
from plsc_tf.parallel.cluster import Cluster, resolve


def Options(**values):  # noqa: N802
    return Settings.from_values(**values).cluster


HOSTS, IPV6 = ("a:1", "b:2", "c:3"), "[fe80::1]:9"


def tf_config(kind="worker", index=1, **cluster):
    cluster = cluster or {"worker": list(HOSTS)}
    config = {"cluster": cluster, "task": {"type": kind, "index": index}}
    return {"TF_CONFIG": json.dumps(config)}


def slurm_step(procid, localid, node):
    return {
        "SLURM_PROCID": str(procid),
        "SLURM_LOCALID": str(localid),
        "SLURMD_NODENAME": node,
        "SLURM_STEP_NUM_TASKS": "3",
        "SLURM_STEP_NODELIST": "n[2,10]",
        "SLURM_STEP_TASKS_PER_NODE": "2,1",
    }


def test_the_workers_share_a_secret_that_others_cannot_read(tmp_path):
    path = tmp_path / "secret"
    shared = {"cluster_node_ips": HOSTS, "cluster_secret_file": str(path)}
    options = [Options(task_index=i, **shared) for i in range(3)]
    (secret,) = {resolve(one, {}).secret for one in options}
    assert len(secret) == 64 and stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [file.name for file in tmp_path.iterdir()] == ["secret"]
    path.chmod(0o640)
    with pytest.raises(ValueError, match=f"chmod 600 {path}"):
        resolve(options[0], {})
    path.chmod(0o400)
    path.write_bytes(b"short\n")
    with pytest.raises(ValueError, match="at least 16 bytes. Received: bytes=5"):
        resolve(options[0], {})
    path.unlink()
    os.mkfifo(path, 0o600)
    with pytest.raises(ValueError, match="must be a file of this user or of root"):
        resolve(options[0], {})
    path.unlink()
    if os.geteuid() == 0:
        path.touch(0o600)
        os.chown(path, 12345, -1)
        with pytest.raises(ValueError, match="Others may know the secret"):
            resolve(options[0], {})
        path.unlink()
    path.symlink_to(tmp_path / "nowhere")
    with pytest.raises(OSError, match="nowhere|secret"):
        resolve(options[0], {})
    # The launcher's secret comes in the environment.
    found = resolve(Options(), {**tf_config(), "PLSC_TF_CLUSTER_SECRET": "abc"})
    assert found.secret == b"abc" and "abc" not in repr(found)


@pytest.mark.parametrize("index", [1, "1"])
def test_tf_config_gives_addresses_and_place(index):
    found = resolve(Options(), tf_config(index=index))
    assert found == Cluster(HOSTS, 1, "TF_CONFIG")
    assert (found.size, found.is_chief, found.address) == (3, False, "b:2")
    assert json.loads(found.tf_config()) == json.loads(tf_config()["TF_CONFIG"])


@pytest.mark.parametrize(("kind", "index", "rank"), [("chief", 0, 0), ("worker", 1, 2)])
def test_the_chief_comes_before_the_workers(kind, index, rank):
    environ = tf_config(kind, index, worker=["b:2", "c:3"], chief=["a:1"], ps=[])
    found = resolve(Options(), environ)
    assert (found.addresses, found.index) == (HOSTS, rank)


@pytest.mark.parametrize(
    ("values", "environ"),
    [
        ({}, {}),
        ({}, {"TF_CONFIG": "{}"}),
        ({}, {"TF_CONFIG": '{"cluster": {}}'}),
        ({}, tf_config(index=0, worker=["a:1"])),
        ({"cluster_resolver": "none"}, tf_config()),
        ({"cluster_node_ips": ("127.0.0.1",)}, {}),
        # What FastNN writes for one machine.
        ({"job_name": "worker", "task_index": 0}, {}),
        ({}, {"SLURM_PROCID": "0"}),
        ({}, {"SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "1"}),
    ],
)
def test_one_worker_is_a_single_process(values, environ):
    assert resolve(Options(**values), environ) is None


@pytest.mark.parametrize(
    ("environ", "message"),
    [
        ({"TF_CONFIG": "{"}, "malformed .*JSON"),
        ({"TF_CONFIG": "[]"}, r'Expected {"cluster": {"worker": .*Received: \[\]'),
        ({"TF_CONFIG": '{"cluster": ["a:1"]}'}, "malformed"),
        ({"TF_CONFIG": '{"cluster": {"worker": ["a:1"]}}'}, "malformed .*task"),
        (tf_config(index=3), "no worker 3"),
        (tf_config(worker=["a:1", "b"]), "'b' has no port"),
        (tf_config(worker=["a:1", "b:70000"]), "1 to 65535"),
        (tf_config(worker=["a:1", "b:2", "A:1"]), "workers 0 and 2 have the same"),
        (tf_config(worker=["a:1", "::1:2"]), r"needs brackets: \[::1\]"),
        (tf_config(worker="a:1"), "must be a list"),
        (tf_config(worker=["a:1"], ps=["b:2"]), "no parameter servers"),
        (tf_config("evaluator", 0), "workers evaluate by themselves"),
        (tf_config("master", 0), "tasks are chief or worker"),
    ],
)
def test_a_tf_config_that_cannot_train_is_refused(environ, message):
    with pytest.raises(ValueError, match=message):
        resolve(Options(), environ)


@pytest.mark.parametrize(
    ("hosts", "options", "addresses", "index"),
    [
        (("a", "b"), {"node_ip": "b"}, ("a:6170", "b:6170"), 1),
        (("a", "b"), {"node_ip": "B"}, ("a:6170", "b:6170"), 1),
        (("a", "b"), {"task_index": 1}, ("a:6170", "b:6170"), 1),
        # A port comes from the entry, else from node_port.
        (("a:5", "[FE80::1]"), {"node_port": 9, "task_index": 0}, ("a:5", IPV6), 0),
        (("a:5", "a:6"), {"node_ip": "a:6"}, ("a:5", "a:6"), 1),
    ],
)
def test_flags_give_addresses_and_place(hosts, options, addresses, index):
    found = resolve(Options(cluster_node_ips=hosts, **options), {})
    assert found == Cluster(addresses, index, "cluster_node_ips")


def test_the_index_of_a_pod_says_which_machine_this_is():
    options = Options(cluster_node_ips=("a", "b", "c"))
    assert resolve(options, {"JOB_COMPLETION_INDEX": "2"}).index == 2
    with pytest.raises(ValueError, match="has 3 entries"):
        resolve(options, {"JOB_COMPLETION_INDEX": "3"})


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"cluster_node_ips": ("a", "b")}, "Set node_ip or task_index on each"),
        ({"cluster_node_ips": ("a", "b"), "node_ip": "c"}, "ip=c must .*matches=0"),
        ({"cluster_node_ips": ("a:1", "a:2"), "node_ip": "a"}, "ip=a must .*matches=2"),
        ({"cluster_node_ips": ("a", "b"), "task_index": 2}, "2 entries"),
        (
            {"cluster_node_ips": ("a", "b"), "task_index": 0, "node_ip": "b"},
            "Set only one of them",
        ),
        ({"cluster_node_ips": ("a", "a"), "task_index": 0}, "same address, a:6170"),
        ({"cluster_node_ips": ("a", "b/c"), "task_index": 0}, "received 'b/c'"),
        ({"node_ip": "a"}, "select an entry of cluster_node_ips"),
        ({"job_name": "ps"}, "no parameter servers"),
        ({"job_name": "evaluator"}, "must be worker"),
        ({"num_workers": 2}, "plsc_tf.launch"),
    ],
)
def test_flags_that_cannot_train_are_refused(values, message):
    with pytest.raises(ValueError, match=message):
        resolve(Options(**values), {})


def test_flags_that_agree_with_tf_config_are_fine():
    options = Options(cluster_node_ips=HOSTS, node_ip="b")
    assert resolve(options, tf_config()).source == "TF_CONFIG"
    launched = tf_config(index=3, worker=["a:7", "a:8", "b:7", "b:8"])
    values = {"cluster_node_ips": ("a", "b"), "node_port": 7, "num_workers": 2}
    assert resolve(Options(node_ip="b", **values), launched).index == 3
    with pytest.raises(ValueError, match="worker 3 of a:7, .*node_ip=a"):
        resolve(Options(node_ip="a", **values), launched)


def test_flags_that_contradict_tf_config_are_an_error():
    with pytest.raises(ValueError, match="of a:1, b:2, c:3.*ips=a:1,b:2, node"):
        resolve(Options(cluster_node_ips=("a:1", "b:2"), node_ip="b"), tf_config())


@pytest.mark.parametrize(
    ("procid", "localid", "node", "own"),
    [(0, 0, "n2", "n2:7"), (1, 1, "n2", "n2:8"), (2, 0, "n10", "n10:7")],
)
def test_a_slurm_worker_is_found_by_its_node(procid, localid, node, own, monkeypatch):
    for name, value in slurm_step(procid, localid, node).items():
        monkeypatch.setenv(name, value)
    found = resolve(Options(node_port=7), os.environ)
    assert sorted(found.addresses) == ["n10:7", "n2:7", "n2:8"]
    assert (found.address, found.source) == (own, "Slurm")


def test_a_slurm_step_that_contradicts_itself_is_an_error(monkeypatch):
    for name, value in slurm_step(0, 0, "n3").items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ValueError, match="n3:6170, is not in the Slurm step"):
        resolve(Options(), os.environ)


def test_other_sources_come_before_slurm():
    environ = {**slurm_step(0, 0, "n2"), **tf_config()}
    assert resolve(Options(), environ).source == "TF_CONFIG"


def test_free_addresses_are_free_and_differ():
    found = addresses.free_addresses(20)
    assert len(set(found)) == 20
    for address in found:
        socket.create_server(addresses.split(address)).close()
