"""The order of a conversion: random, equal shares, and only by seed and input."""

import numpy as np
import pytest

from plsc_tf.data.conversion import run
from plsc_tf.data.conversion.inputs import FilesInput
from plsc_tf.data.readers.formats import BASE64
from tests.conversion import drawn
from tests.conversion.test_round_trips import converted, inputs


class ManyBuckets(FilesInput):
    """As if the files were as large as need so many buckets."""

    def num_buckets(self):
        return 16


@pytest.fixture(scope="module")
def numbered(tmp_path_factory):
    """20,000 lines whose labels are their numbers; returns the paths."""
    rng = np.random.default_rng(0)
    lengths = 3 * rng.integers(1, 20, size=20_000)
    rows = [(b"GIF89a" + rng.bytes(n), k) for k, n in enumerate(lengths)]
    return drawn.write_base64(tmp_path_factory.mktemp("numbered"), rows)


def shuffled(paths, folder, **options):
    plan = run.ConversionPlan(str(folder), output_format="base64", **options)
    run.convert(ManyBuckets(BASE64, paths), plan)
    return np.array([label for _, label in drawn.read_base64(folder)])


@pytest.mark.parametrize("seed", [0, 1])
def test_position_and_origin_are_independent(numbered, tmp_path, seed):
    found = shuffled(numbered, tmp_path / "out", seed=seed)
    assert sorted(found) == list(range(20_000))
    table = np.histogram2d(np.arange(20_000), found, bins=10)[0]
    # 81 degrees of freedom: outside of this lies one order in 2,000 on either side.
    assert 45 < ((table - 200) ** 2 / 200).sum() < 130
    # Neighbours that stay neighbours: one is expected, as many as by a Poisson law.
    assert (np.diff(found) == 1).sum() < 7
    # Within each 16th, where one bucket's order is drawn, the same.
    inner = found.reshape(16, -1)
    correlations = [np.corrcoef(np.arange(part.size), part)[0, 1] for part in inner]
    assert np.abs(correlations).max() < 4 / np.sqrt(inner.shape[1])


def test_the_order_follows_from_the_seed_and_not_from_the_memory(numbered, tmp_path):
    one = shuffled(numbered, tmp_path / "a", seed=5)
    # Blocks of 64 kB.
    shuffled(numbered, tmp_path / "b", seed=5, memory_mb=1)
    assert drawn.digests(tmp_path / "b") == drawn.digests(tmp_path / "a")
    assert (shuffled(numbered, tmp_path / "c", seed=6) != one).mean() > 0.99


@pytest.mark.parametrize("layout", ["base64", "tfrecord"])
@pytest.mark.parametrize("shuffle", [False, True])
def test_padding_makes_shares_equal_and_is_from_the_set(tmp_path, layout, shuffle):
    examples = drawn.images(41)
    source = inputs("base64", tmp_path / "in", examples)
    options = {"num_shards": 8, "shuffle": shuffle, "pad": True, "seed": 2}
    manifest = converted(source, tmp_path / "out", layout, **options)
    assert [shard["count"] for shard in manifest["shards"]] == [6] * 8
    assert (manifest["num_examples"], manifest["padding"]) == (41, 7)
    found = drawn.read(tmp_path / "out", layout)
    assert sorted(found[:41]) == sorted(examples)
    extra = found[41:]
    # Seven different ones, neither the first nor the last of the order.
    assert len(set(extra)) == 7 and set(extra) <= set(examples)
    assert extra != found[:7] and extra != found[34:41]


def test_more_shards_than_records_are_refused(tmp_path):
    source = inputs("base64", tmp_path / "in", drawn.images(5))
    with pytest.raises(ValueError, match=r"number of records, 5. Received: num_shar"):
        converted(source, tmp_path / "out", "tfrecord", num_shards=6)
    assert not (tmp_path / "out").exists()
