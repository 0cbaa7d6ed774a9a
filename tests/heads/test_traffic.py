"""The table of what a step's collectives move, by hand."""

from plsc_tf.heads import memory
from plsc_tf.heads.memory import HeadLoad


def load(**changes):
    given = {"num_classes": 1000, "embedding_size": 8, "global_batch": 8}
    return HeadLoad(**{**given, "row_bytes": 32, "replicas": 4, **changes})


def rows(load, gradient_bytes=4000, **options):
    found = memory.collectives(load, gradient_bytes, **options)
    return {one.name: (one.bytes, one.sent, one.count) for one in found}


SMALL = {"examples": (4, 6, 1), "votes, loss, accuracies": (16, 24, 1)}


def test_sharded_head():
    # A ring passes on 3 of 4 parts of what is gathered, and twice that of sums.
    expected = {
        "embeddings and labels": (8 * 12 * 4, 288, 1),
        "true classes' scores": (32, 48, 1),
        "statistics": (4 * 8 * 2 * 4, 192, 1),
        "embeddings' gradients": (8 * 8 * 4, 384, 1),
        "gradients of mirrored weights": (4000, 6000, 1),
        **SMALL,
    }
    assert rows(load()) == expected


def test_what_options_add():
    found = rows(load(sample_rate=0.5), smoothing=True, ranks=2)
    assert found["labels and examples"] == (96, 72, 1) and "examples" not in found
    assert found["statistics"] == (4 * 8 * 3 * 4, 288, 1)
    assert found["embeddings' gradients"] == (8 * 9 * 4, 432, 1)
    assert found["votes, loss, accuracies"] == (24, 36, 1)


def test_parts_of_a_batch_have_their_own_collectives():
    # 10 examples are padded to 2 parts of 2 on each of 4 replicas.
    found = rows(load(parts=2, global_batch=10))
    assert found["embeddings and labels"] == (16 * 12 * 4, 576, 2)
    assert found["gradients of mirrored weights"] == (4000, 6000, 1)


def test_a_head_that_is_whole_everywhere_sums_its_gradients():
    found = rows(load(sharded=False))
    assert found == {"gradients of mirrored weights": (36000, 54000, 1), **SMALL}


def test_one_replica_sends_nothing():
    assert all(sent == 0 for _, sent, _ in rows(load(replicas=1)).values())
