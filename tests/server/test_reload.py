"""New versions are served as they appear; nobody notices but by the answers."""

import os
import shutil
import signal
import sys

import numpy as np
import pytest
import server_tools as tools

from plsc_tf.parallel.addresses import free_addresses, split
from plsc_tf.serving.client import FaceService
from plsc_tf.serving.plsc_server import PLSCServer
from tests import programs


def states(server):
    _, answer, _ = tools.ask(server, "GET", "/v1/models/face")
    return {one["version"]: one["state"] for one in answer["model_version_status"]}


@pytest.fixture(scope="module")
def versions(tmp_path_factory):
    """Two versions to copy from."""
    folder = tmp_path_factory.mktemp("versions") / "face"
    tools.export(folder, 1)
    tools.export(folder, 2)
    return folder


def add(versions, version, folder):
    """Publishes a version as the export does: complete, by one rename."""
    shutil.copytree(versions / version, folder / f".{version}")
    (folder / f".{version}").rename(folder / version)


def test_a_new_version_takes_over_without_a_lost_request(versions, tmp_path, pictures):
    folder = tmp_path / "face"
    add(versions, "1", folder)
    old = tools.direct(versions / "1", pictures)
    new = tools.direct(versions / "2", pictures)
    with (
        tools.served(folder) as server,
        tools.asking(server, pictures, callers=4) as answers,
    ):
        tools.wait_for(lambda: len(answers) > 20)
        add(versions, "2", folder)
        tools.wait_for(lambda: states(server) == {"2": "AVAILABLE"})
        before = len(answers)
        tools.wait_for(lambda: len(answers) > before + 20)
    assert {status for status, _ in answers} == {200}
    by_old = [np.allclose(rows, old, atol=1e-5) for _, rows in answers]
    by_new = [np.allclose(rows, new, atol=1e-5) for _, rows in answers]
    assert all(a != b for a, b in zip(by_old, by_new, strict=True))
    assert by_old[0]
    assert by_new[-1]


def test_a_broken_version_is_reported_and_the_old_one_stays(
    versions, tmp_path, pictures
):
    folder = tmp_path / "face"
    add(versions, "1", folder)
    with tools.served(folder) as server:
        (folder / "5").mkdir()
        (folder / "5" / "saved_model.pb").write_bytes(b"rubbish")
        tools.wait_for(lambda: states(server).get("5") == "END")
        assert states(server)["1"] == "AVAILABLE"
        _, answer, _ = tools.ask(server, "GET", "/v1/models/face/versions/5")
        (one,) = answer["model_version_status"]
        assert one["status"]["error_code"] == "UNKNOWN"
        assert one["status"]["error_message"]
        # Put right, it is served; taken away, the one before is again.
        shutil.rmtree(folder / "5")
        tools.wait_for(lambda: "5" not in states(server))
        add(versions, "2", folder)
        tools.wait_for(lambda: states(server) == {"2": "AVAILABLE"})
        shutil.rmtree(folder / "2")
        tools.wait_for(lambda: states(server) == {"1": "AVAILABLE"})
        assert tools.ask(server, "GET", "/healthz")[0] == 200
        # The next export may get the number of one that was removed.
        shutil.rmtree(folder / "1")
        shutil.copytree(versions / "2", folder / ".new")
        (folder / ".new").rename(folder / "1")
        new = tools.direct(versions / "2", pictures)
        with tools.asking(server, pictures) as answers:
            tools.wait_for(
                lambda: any(np.allclose(x, new, atol=1e-5) for _, x in answers)
            )
        assert {status for status, _ in answers} == {200}


def test_several_versions(versions, tmp_path, pictures):
    body = {"instances": [{"b64": tools.b64(one)} for one in pictures]}
    folder = tmp_path / "face"
    shutil.copytree(versions, folder)
    with tools.served(folder, num_versions=2) as server:
        for path, version in (("/versions/1", "1"), ("/versions/2", "2"), ("", "2")):
            path = f"/v1/models/face{path}:predict"
            status, answer, _ = tools.ask(server, "POST", path, body)
            assert status == 200, answer
            expected = tools.direct(versions / version, pictures)
            np.testing.assert_allclose(answer["predictions"], expected, atol=1e-5)


def test_what_cannot_be_served_is_told_at_once(versions, tmp_path, monkeypatch):
    for folder, gpu, error, words in (
        (tmp_path / "nothing", 0, FileNotFoundError, "export.*nothing', which"),
        (tmp_path, 0, OSError, "it has no version folders"),
        ("", 0, FileNotFoundError, "model_dir"),
        (versions, 3, ValueError, "gpu_index"),
    ):
        with pytest.raises(error, match=words):
            PLSCServer().with_model(folder).run(gpu, port=0, block=False)
    with tools.served(versions) as server:
        with pytest.raises(OSError, match=f"port={server['port']}.*Stop the other"):
            PLSCServer().with_model(versions).run(port=server["port"], block=False)
    monkeypatch.setitem(sys.modules, "aiohttp", None)
    monkeypatch.delitem(sys.modules, "plsc_tf.serving.server.app")
    with pytest.raises(ImportError, match=r"requires aiohttp: .*plsc_tf\[serving\]"):
        PLSCServer().with_model(versions).run(port=0, block=False)
    with pytest.raises(ValueError, match="power of two"):
        PLSCServer(max_batch_images=12)
    with pytest.raises(ValueError, match="the same length"):
        PLSCServer().with_model(versions).run_multi([0, 1], [8866])


@pytest.mark.parametrize("one", [False, True])
def test_the_processes_of_all_ports_end_together(tmp_path, one):
    # They went on serving, with their ports, keys and GPUs, or one was missing.
    python, pids = tmp_path / "python", tmp_path / "pids"
    python.write_text("#!/bin/sh\nsleep 1\necho $$ >> pids\nexec sleep 60\n")
    python.chmod(0o755)
    program = f"""
import sys
import plsc_tf
sys.executable = {str(python)!r}
plsc_tf.PLSCServer().with_model("face").run_multi([0, 0], [8010, 8011])
"""
    process = programs.start("-c", program, cwd=tmp_path)
    tools.wait_for(lambda: pids.exists() and pids.read_text().count("\n") == 2)
    first, *_ = numbers = pids.read_text().split()
    os.kill(int(first), signal.SIGKILL) if one else process.terminate()
    done = programs.end(process, 60)
    assert done.status == one and ("A server ended" in done.err) == one
    for pid in numbers:
        with pytest.raises(ProcessLookupError):
            os.kill(int(pid), 0)


@pytest.mark.slow
def test_a_process_for_each_port(versions, pictures):
    addresses = free_addresses(2)
    ports = [split(address)[1] for address in addresses]
    server = PLSCServer().with_model(versions)
    server.run_multi([0, 0], ports, block=False)
    try:
        for port in ports:
            tools.wait_for(lambda port=port: tools.is_listened_at(port))
        with FaceService() as service:
            service.connect_all_server(addresses)
            expected = tools.direct(versions / "2", pictures)
            for _ in range(2):
                found = service.encode(pictures)
                np.testing.assert_allclose(found, expected, atol=1e-5)
    finally:
        server.stop()
    assert not any(map(tools.is_listened_at, ports))
