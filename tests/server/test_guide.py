"""What docs/serving.md shows works."""

import re
import subprocess

import pytest
from server_tools import ask

from tests.programs import ROOT

GUIDE = (ROOT / "docs" / "serving.md").read_text(encoding="utf-8")
SHELL = re.findall(r"```shell\n(.*?)```", GUIDE, re.DOTALL)


@pytest.fixture
def here(tmp_path, monkeypatch, pictures):
    """A folder with a photo."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "photo.jpg").write_bytes(pictures[0])
    return tmp_path


def test_curl_lines(server, here):
    lines = [line for block in SHELL for line in block.splitlines() if "curl" in line]
    block = "\n".join(lines).replace("localhost:8010", f"localhost:{server['port']}")
    done = subprocess.run(
        ["bash", "-euc", block.replace("curl ", "curl -sSf ")], capture_output=True
    )
    assert done.returncode == 0, done.stderr
    for words in (b'"instance":', b'"predictions":', b"AVAILABLE", b"signature_def"):
        assert words in done.stdout
    assert b'{"name":"ada","faces":1}' in done.stdout
    assert ask(server, "POST", "/gallery/remove", {"name": "ada"})[0] == 200


def test_named_options_exist_and_defaults_are_right():
    from plsc_tf.options.settings import known_options

    known = known_options()
    others = {"rest_api_port", "port", "model_name", "model_base_path"}
    assert set(re.findall(r"--(\w+)", GUIDE)) - others <= set(known)
    for name, value in re.findall(r"`--(\w+)` ([\d.]+) \|", GUIDE):
        assert known[name].default == float(value), name


def test_named_metrics_exist(server):
    _, text, headers = ask(server, "GET", "/metrics")
    assert headers["Content-Type"].startswith("text/plain")
    for name in set(re.findall(r"`(plsc_tf_\w+)", GUIDE)):
        assert f"# TYPE {name} " in text, name
