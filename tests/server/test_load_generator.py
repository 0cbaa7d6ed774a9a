"""The benchmark's generator counts what it sends, and what comes back."""

import json
import pathlib
import subprocess
import sys

import pytest
from server_tools import b64

ROOT = pathlib.Path(__file__).parents[2]
PLSC = "/FaceClassifyService/inference"


@pytest.mark.parametrize("rate", [pytest.param(0, marks=pytest.mark.slow), 100])
def test_answers_and_errors_are_counted(server, pictures, tmp_path, rate):
    good = json.dumps({"base64_string": [b64(pictures[0])]})
    (tmp_path / "bodies").write_text(f"{good}\n{good}\n{{}}\n{good}\n")
    done = subprocess.run(
        [
            *(sys.executable, "-m", "benchmarks.serving_load"),
            *(f"--port={server['port']}", f"--path={PLSC}", "--requests=40"),
            *(f"--bodies={tmp_path / 'bodies'}", "--connections=8", f"--rate={rate}"),
        ],
        cwd=ROOT,
        capture_output=True,
        check=True,
    )
    found = json.loads(done.stdout)
    assert found["requests"] == 40
    assert found["kinds"] == {"400": 10}
    assert found["errors"] == 10
    assert 0 < found["p50_ms"] <= found["p99_ms"] <= found["max_ms"]
    if rate:
        # The fortieth is due after 0.39 s.
        assert found["seconds"] >= 0.39
