"""Which workers a machine starts, what they run, and who of them failed."""

import os
from types import SimpleNamespace

import pytest

from plsc_tf.flags.cluster import Cluster as Options
from plsc_tf.parallel.cluster import Cluster
from plsc_tf.parallel.launch import plan as plans, supervise
from plsc_tf.parallel.launch.plan import make_plan, split_gpus

CPU = {"CUDA_VISIBLE_DEVICES": "-1"}


@pytest.mark.parametrize(
    ("argv", "own", "words"),
    [
        (["--a", "--", "--b", "--", "c"], ["--a"], ["--b", "--", "c"]),
        (["--a"], ["--a"], []),
        (["--log_dir", "./mylog", "a.py", "--b"], ["--log_dir", "./mylog"], None),
        (["--flagfile=a.py", "--", "b.py"], ["--flagfile=a.py"], ["b.py"]),
        (["--flagfile=a.py"], ["--flagfile=a.py"], []),
        ([], [], []),
    ],
)
def test_the_command_line_is_split(argv, own, words):
    words = ["a.py", "--b"] if words is None else words
    assert plans.split(argv) == (own, words)


def test_workers_are_numbered_machine_by_machine():
    options = Options(cluster_node_ips=("a", "b"), task_index=1, num_workers=3)
    plan = make_plan(options, (), CPU)
    assert (plan.size, list(plan.local)) == (6, [3, 4, 5])
    assert plan.addresses == tuple(f"{h}:{p}" for h in "ab" for p in (6170, 6171, 6172))


def test_one_machine_takes_the_ports_it_was_given():
    plan = make_plan(Options(num_workers=2, node_port=7000), (), CPU)
    assert plan.addresses == ("127.0.0.1:7000", "127.0.0.1:7001")
    listed = Options(cluster_node_ips=("127.0.0.1",), num_workers=2)
    assert make_plan(listed, (), CPU).addresses == ("127.0.0.1:6170", "127.0.0.1:6171")


def test_free_ports_are_taken_anew_for_each_attempt():
    plan = make_plan(Options(num_workers=2), (), CPU)
    first, second = plan.places(), plan.places()
    assert [place.index for place in first] == [0, 1]
    assert first[0].addresses == first[1].addresses != second[0].addresses


def test_a_tf_config_is_replaced_by_that_of_the_worker():
    theirs = Cluster(("a:1", "b:2"), 1, "TF_CONFIG").tf_config()
    environ = {**CPU, "TF_CONFIG": theirs, "HOME": "/root"}
    alone = make_plan(Options(cluster_resolver="none"), (), environ)
    [place] = alone.places()
    expected = {**CPU, "HOME": "/root", "PYTHONUNBUFFERED": "1"}
    assert alone.environment(place, environ) == expected
    shared = make_plan(Options(num_workers=2), (4, 7), {"CUDA_VISIBLE_DEVICES": "4,7"})
    own = [shared.environment(place, {}) for place in shared.places()]
    assert [one["CUDA_VISIBLE_DEVICES"] for one in own] == ["4", "7"]
    # All of a cluster's workers on one machine know a secret, which no other has.
    secrets = {one["PLSC_TF_CLUSTER_SECRET"] for one in own}
    (secret,), other = secrets, make_plan(Options(num_workers=2), (), CPU)
    assert len(secret) == 64 and secret != other.secret
    kept = make_plan(Options(), (), environ)
    place = Cluster(kept.addresses, 1, "launcher")
    kept = kept.environment(place, environ)
    assert kept["TF_CONFIG"] == theirs and "PLSC_TF_CLUSTER_SECRET" not in kept


def test_a_tf_config_means_one_worker_here():
    environ = {**CPU, "TF_CONFIG": Cluster(("a:1", "b:2"), 1, "").tf_config()}
    with pytest.raises(ValueError, match="worker 1 of 2, so num_workers must be 1"):
        make_plan(Options(num_workers=2), (), environ)


def test_slurm_needs_no_launcher(monkeypatch):
    step = "PROCID=0 LOCALID=0 STEP_NUM_TASKS=2 STEP_NODELIST=n[1-2]"
    for word in f"{step} STEP_TASKS_PER_NODE=1(x2)".split():
        monkeypatch.setenv(*f"SLURM_{word}".split("="))
    monkeypatch.setenv("SLURMD_NODENAME", "n1")
    with pytest.raises(ValueError, match="srun python -m plsc_tf.train"):
        make_plan(Options(), (), os.environ)
    # With one launcher per node, the flags say who belongs together.
    flags = Options(cluster_node_ips=("n1", "n2"), task_index=1)
    assert list(make_plan(flags, (), os.environ).local) == [1]


def split_four(selected, count, visible, devices):
    """Splits the GPUs of a machine that has four."""
    for number in range(4):
        (devices / f"nvidia{number}").touch()
    environ = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
    return split_gpus(selected, count, environ, devices)


@pytest.mark.parametrize(
    ("selected", "count", "visible", "expected"),
    [
        ((0, 1, 2, 3), 2, None, ("0,1", "2,3")),
        ((3, 1), 2, "1,2,3", ("3", "1")),
        ((0, 1), 1, None, ("0,1",)),
        ((), 1, "0,1", None),
        ((), 2, "-1", None),
        ((), 2, "", None),
    ],
)
def test_gpus_are_split_evenly(selected, count, visible, expected, tmp_path):
    assert split_four(selected, count, visible, tmp_path) == expected


def test_a_machine_without_gpus_has_those_of_its_environment_only(tmp_path):
    (tmp_path / "nvidiactl").touch()
    assert split_gpus((), 2, {}, tmp_path) is None
    with pytest.raises(ValueError, match="has 0, but this machine has 0 GPUs"):
        split_gpus((0,), 1, {}, tmp_path)
    assert split_gpus((0,), 1, {"CUDA_VISIBLE_DEVICES": "0"}, tmp_path) == ("0",)


@pytest.mark.parametrize(
    ("selected", "count", "visible", "message"),
    [
        ((0, 1, 2), 2, None, "3 GPUs cannot be split evenly over num_workers=2"),
        ((3, 4, 7), 1, None, "has 4, 7, but this machine has 4 GPUs, counted from 0."),
        ((0, 1), 1, "1,2", "has 0, but CUDA_VISIBLE_DEVICES='1,2' hides"),
        ((), 2, "0,1", "cannot each use all GPUs"),
        ((), 2, None, "Set selected_gpus"),
    ],
)
def test_unsplittable_gpus_are_an_error(selected, count, visible, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        split_four(selected, count, visible, tmp_path)


@pytest.mark.parametrize(
    ("exits", "index"),
    [
        ([(0, 0), (1, 0)], None),
        ([(0, 4), (1, 5)], 0),
        ([(0, 76), (1, 75), (2, -9)], 2),
        ([(0, 76), (1, 76)], 0),
        # What the launcher asked for is no failure, and what follows it none of the
        # first; but a worker that could not end as it should is.
        ([(0, 143, True), (1, -9, True), (2, 130, True)], None),
        ([(0, 76, True), (1, 0, True)], None),
        ([(0, 1, True), (1, 76)], 1),
        ([(0, 143, True), (1, 1, True)], 1),
        ([(0, 143), (1, 0)], 0),
    ],
)
def test_the_culprit(exits, index):
    names = ("index", "status", "signaled")
    known = [zip(names, (*one, False), strict=False) for one in exits]
    found = supervise.first_failure([SimpleNamespace(**dict(one)) for one in known])
    assert (None if found is None else found.index) == index


def test_how_a_worker_ended():
    assert supervise.exit_status(-63) == 191
    assert supervise.describe(-63) == "was ended by signal 63, a real-time signal"
    assert supervise.exit_status(-9) == 137
    assert "was ended by signal 9, SIGKILL" in supervise.describe(-9)
    assert "ended with status 75 (its watchdog" in supervise.describe(75)
    lost = "ended with status 76 (it ended because another worker was lost)"
    assert supervise.describe(76) == lost
