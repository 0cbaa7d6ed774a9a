"""The launcher with real processes: places, logs, culprits, restarts, signals."""

import json
import os
import signal
import socket
import sys

import pytest

from tests.launch.conftest import runs

FOREVER = "\nwhile True: time.sleep(0.01)\n"


def test_workers_get_their_places_and_arguments(launchers):
    script = launchers.script('note("got", json.dumps([config, sys.argv[1:]]))')
    result = launchers.run("--num_workers=2", "--", script, "--its=1", "--", "x")
    assert result.status == 0, result.err
    got = [json.loads(launchers.read(f"got-{i}")) for i in (0, 1)]
    hosts = got[0][0]["cluster"]["worker"]
    for i, (config, arguments) in enumerate(got):
        task = {"type": "worker", "index": i}
        assert config == {"cluster": {"worker": hosts}, "task": task}
        assert arguments == ["--its=1", "--", "x"]
    assert len(set(hosts)) == 2
    assert {host.partition(":")[0] for host in hosts} == {"127.0.0.1"}


def test_one_worker_is_a_single_process(launchers):
    # PLSC's own command line, with a script and no --.
    result = launchers.run(
        "--cluster_node_ips=127.0.0.1",
        "--node_ip=127.0.0.1",
        "--selected_gpus=0,1,2",
        launchers.script('print("TF_CONFIG" in os.environ)'),
        CUDA_VISIBLE_DEVICES="0,1,2",
    )
    assert (result.status, result.out) == (0, "False\n")


def test_with_a_folder_each_worker_has_a_log_and_the_first_is_shown(launchers):
    code = 'print("I am", index); sys.stderr.write(f"error of {index}\\n")'
    script = launchers.script(code)
    for _ in range(2):
        result = launchers.run("--num_workers=2", "--log_dir=logs", script)
        assert result.status == 0
        assert result.out == "I am 0\nerror of 0\n"
    for i in (0, 1):
        lines = launchers.read(f"logs/worker-{i}.log").splitlines()
        assert lines[1:3] == lines[4:6] == [f"I am {i}", f"error of {i}"]
        assert lines[0].startswith(f"==== worker {i} of 2 (127.0.0.1:")
        assert ", attempt 1, " in lines[0] and ", attempt 1, " in lines[3]


def test_without_a_folder_the_lines_of_all_are_shown(launchers):
    script = launchers.script(
        'sys.stdout.write(f"one {index}\\ntwo"); note("wrote"); wait("wrote-0"); '
        'wait("wrote-1"); sys.stdout.write(" more")'
    )
    result = launchers.run("--num_workers=2", script)
    expected = ["[0] one 0", "[0] two more", "[1] one 1", "[1] two more"]
    assert sorted(result.out.splitlines()) == expected


def test_output_is_shown_at_once_and_a_closed_terminal_ends_nothing(launchers):
    script = launchers.script('print("first"); wait("go"); print("then"); note("end")')
    process = launchers.start(script)
    assert process.stdout.readline() == "first\n"
    process.stdout.close()
    (launchers.folder / "go").touch()
    assert process.wait(60) == 0
    launchers.wait_for("end-0")


def test_output_that_nobody_reads_holds_up_no_signal(launchers):
    # With `| less`, the launcher hung: only kill -9 ended it.
    script = launchers.script('print("x" * 200_000); note("wrote")' + FOREVER)
    process = launchers.start(script)
    launchers.wait_for("wrote-0")
    process.terminate()
    assert process.wait(60) == 143


def test_the_culprit_is_found_among_the_victims(launchers):
    script = launchers.script(
        """
if index == 0:
    note("ends")
    sys.exit(76)
wait("ends-0")
time.sleep(0.1)
raise KeyError("the culprit")
"""
    )
    result = launchers.run("--num_workers=2", "--log_dir=logs", script)
    assert result.status == 1
    assert "Worker 1 ended with status 1." in result.err
    assert "  | KeyError: 'the culprit'\n" in result.err
    assert "logs/worker-1.log" in result.err


def test_the_others_are_asked_to_end(launchers):
    script = launchers.script(
        """
if index == 1:
    wait("ready-0")
    sys.exit(5)
def leave(*_):
    note("asked")
    sys.exit(143)
signal.signal(signal.SIGTERM, leave)
note("ready")
"""
        + FOREVER
    )
    assert launchers.run("--num_workers=2", script).status == 5
    assert (launchers.folder / "asked-0").exists()


@pytest.mark.parametrize(
    "state",
    [
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)",
        "os.kill(os.getpid(), signal.SIGSTOP)",
    ],
)
def test_those_that_do_not_end_are_killed(launchers, state):
    script = launchers.script(
        f"""
if index == 1:
    wait("pid-0")
    sys.exit(5)
{state}
"""
        + FOREVER
    )
    result = launchers.run("--num_workers=2", script)
    assert result.status == 5 and "Worker 0 still runs" in result.err
    assert not any(runs(pid) for pid in launchers.pids())


def test_children_of_workers_end_with_them(launchers):
    code = 'note("pid", subprocess.Popen(["sleep", "1000"]).pid)'
    assert launchers.run(launchers.script(code, name="with_child.py")).status == 0
    assert not any(runs(pid) for pid in launchers.pids())


@pytest.mark.parametrize(("restarts", "status"), [(2, 0), (1, 4)])
def test_all_are_started_again_after_a_failure(launchers, restarts, status):
    script = launchers.script(
        """
attempts = len(list(pathlib.Path().glob("attempt*")))
if index == 1:
    for i in range(3 if attempts else 100):
        print(f"line {i} of 1")
    pathlib.Path(f"attempt{attempts}").touch()
    sys.exit(0 if attempts == 2 else 4)
wait("attempt2")
"""
    )
    arguments = ("--num_workers=2", "--log_dir=logs", f"--max_restarts={restarts}")
    result = launchers.run(*arguments, script)
    assert result.status == status
    for i in (0, 1):
        log = launchers.read(f"logs/worker-{i}.log")
        assert log.count("==== worker") == restarts + 1
        assert f", attempt {restarts + 1}, " in log
    assert f"Restart {restarts} of {restarts}." in result.err
    # Of each attempt that failed, its own last lines.
    shown = [line for line in result.err.splitlines() if " | " in line]
    assert shown == [f"  | line {i} of 1" for i in [*range(80, 100), 0, 1, 2]]


def test_wrong_options_are_not_tried_again(launchers):
    script = launchers.script("sys.exit(2)")
    result = launchers.run("--max_restarts=5", "--log_dir=logs", script)
    assert result.status == 2
    assert "Worker 0 ended with status 2 (invalid options" in result.err
    assert launchers.read("logs/worker-0.log").count("====") == 2


@pytest.mark.parametrize(
    ("signum", "passed_on", "status"),
    [
        (signal.SIGTERM, signal.SIGTERM, 143),
        (signal.SIGINT, signal.SIGINT, 130),
        (signal.SIGHUP, signal.SIGTERM, 129),
    ],
)
def test_signals_reach_the_workers_once(launchers, signum, passed_on, status):
    script = launchers.script(
        """
def leave(signum, _):
    note(f"signal{signum}")
    wait("go")
    sys.exit(128 + signum)
signal.signal(signal.SIGTERM, leave)
signal.signal(signal.SIGINT, leave)
note("ready", os.getpgid(0))
"""
        + FOREVER
    )
    process = launchers.start("--num_workers=2", "--max_restarts=3", script)
    launchers.wait_for("ready-0", "ready-1")
    # A terminal signals the launcher's group, which the workers are no members of.
    assert int(launchers.read("ready-0")) != os.getpgid(process.pid)
    process.send_signal(signum)
    launchers.wait_for(f"signal{int(passed_on)}-0", f"signal{int(passed_on)}-1")
    assert process.poll() is None
    (launchers.folder / "go").touch()
    assert launchers.result(process).status == status
    assert len(list(launchers.folder.glob("signal*"))) == 2


def test_a_second_signal_kills_the_workers(launchers):
    code = 'signal.signal(signal.SIGTERM, lambda *_: note("term"))\nnote("ready")\n'
    process = launchers.start(launchers.script(code + FOREVER))
    launchers.wait_for("ready-0")
    process.terminate()
    launchers.wait_for("term-0")
    process.terminate()
    assert launchers.result(process).status == 143
    assert not any(runs(pid) for pid in launchers.pids())


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="Linux ties them")
def test_a_killed_launcher_leaves_no_workers(launchers):
    code = 'signal.signal(signal.SIGTERM, signal.SIG_IGN)\nnote("ready")\n'
    process = launchers.start("--num_workers=3", launchers.script(code + FOREVER))
    launchers.wait_for("ready-0", "ready-1", "ready-2")
    pids = launchers.pids()
    assert len(pids) == 3 and all(runs(pid) for pid in pids)
    process.kill()
    launchers.until(lambda: not any(runs(pid) for pid in pids))


def test_a_port_in_use_is_told_before_anything_starts(launchers):
    script = launchers.script("")
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        result = launchers.run("--num_workers=2", f"--node_port={port}", script)
    assert result.status == 1
    assert f"127.0.0.1:{port}) cannot listen there: the port is in use" in result.err
    assert not launchers.pids()


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (["--num_worker=2", "--"], 2, "Did you mean 'num_workers'?"),
        (["none.py"], 1, "The script 'none.py' does not exist"),
        (["--log_dir=hdfs://a/b", "--"], 1, "log_dir must be a local folder"),
        (["--selected_gpus=77", "--"], 1, "has 77, but CUDA_VISIBLE_DEVICES="),
    ],
)
def test_wrong_command_lines_are_explained(launchers, arguments, status, message):
    result = launchers.run(*arguments)
    assert result.status == status
    assert message in result.err
