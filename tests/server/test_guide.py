"""What docs/serving.md shows works."""

import re

from server_tools import ask

from tests.conformance import guide_commands

PATH = guide_commands.ROOT / "docs" / "serving.md"
GUIDE = PATH.read_text(encoding="utf-8")


def test_curl_lines(server, tmp_path, monkeypatch, pictures):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "photo.jpg").write_bytes(pictures[0])
    lines = [line for line in guide_commands.lines(PATH) if "curl" in line]
    text = "\n".join(lines).replace("localhost:8010", f"localhost:{server['port']}")
    found = guide_commands.run_curl(text)
    for words in ('"instance":', '"predictions":', "AVAILABLE", "signature_def"):
        assert words in found
    assert '{"name":"ada","faces":1}' in found
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
