"""Mutated files of every layout are read or refused by name: no crash, hang or bomb."""

import json

import pytest

from tests import programs


def fuzz(folder, count, seed, *only):
    """Runs the driver; returns what it saw."""
    words = "-m", "tests.fuzz.driver", folder, count, seed, *only
    done = programs.run(*words, status=None, TF_CPP_MIN_LOG_LEVEL="3")
    current = folder / "current"
    last = current.read_text() if current.exists() else "the start"
    assert done.status == 0, f"ended by {last}: {done.err[-3000:]}"
    result = json.loads(done.out.splitlines()[-1])
    assert result["problems"] == []
    assert result["grown_mb"] < 1024
    assert sum(sum(counts.values()) for counts in result["seen"].values()) == count
    return result["seen"]


def test_a_hundred_and_fifty_mutations(tmp_path):
    seen = fuzz(tmp_path, 150, seed=5)
    # Both ways are taken: mutations are neither harmless nor all the same.
    assert sum(counts.get("read", 0) for counts in seen.values()) > 10
    assert all(counts.get("rejected", 0) > 0 for counts in seen.values())


def test_three_hundred_checkpoints(tmp_path):
    (counts,) = fuzz(tmp_path, 300, 5, "checkpoint").values()
    assert counts["read"] > 10 and counts["rejected"] > 100


@pytest.mark.slow
@pytest.mark.parametrize("only", [(), ("checkpoint",)])
@pytest.mark.parametrize("seed", range(4))
def test_ten_thousand_of_each(tmp_path, seed, only):
    fuzz(tmp_path, 2500, seed, *only)
