"""The proof that a resume is exact notices a difference of one bit."""

import json
import shutil

import pytest

from benchmarks import prove_resume
from tests.jobs.tiny_run import TINY, as_flags

OPTIONS = {**TINY, "num_replicas": 1, "batch_size": 10, "dropout": 0.4}


@pytest.mark.slow
def test_a_resume_is_exact_and_one_bit_is_noticed(tmp_path, monkeypatch, capsys):
    compare, kept = prove_resume.compare, tmp_path / "kept"

    def keep(folder):
        shutil.copytree(folder, kept)
        return compare(folder)

    monkeypatch.setattr(prove_resume, "compare", keep)
    assert prove_resume.main(["--steps=3", *as_flags(OPTIONS)]) == 0
    found = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (found["exact"], found["steps"], found["files_differ"]) == (True, 6, [])
    path = kept / "resumed" / "losses.txt"
    lines = path.read_text().splitlines()
    step, loss = lines[4].split()
    lines[4] = f"{step} {(float.fromhex(loss) * (1 + 2**-52)).hex()}"
    path.write_text("\n".join(lines))
    assert compare(kept)["first_difference"] == 5
