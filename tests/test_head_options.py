"""The options of the head: losses, margins, sampling, and what contradicts what."""

import pytest

import plsc_tf
from plsc_tf.jobs.builders.heads import make_head, make_loss
from plsc_tf.options.settings import Settings

# The four of PLSC 0.1, and their kin.
LOSSES = {
    "softmax": plsc_tf.SOFTMAX,
    "arcface": plsc_tf.ARCFACE,
    "cosface": plsc_tf.COSFACE,
    "sphereface": plsc_tf.SPHEREFACE,
    "adaface": plsc_tf.ADAFACE,
    "curricularface": plsc_tf.CURRICULARFACE,
    "magface": plsc_tf.MAGFACE,
}


def head(**options):
    return Settings.from_values(**options).head


def loss(**options):
    return make_loss(head(**options))


@pytest.mark.parametrize("name", LOSSES)
def test_every_loss_has_its_own_margins_replicated_and_sharded(name):
    assert loss(loss_type=name) == loss(loss_type=f"dist_{name}") == LOSSES[name]
    assert not head(loss_type=name).sharded
    assert head(loss_type=f"dist_{name}").sharded


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"margin": 0.3}, plsc_tf.Margins(m2=0.3)),
        # PLSC 0.2's names, and arcface_torch's margin_list (1.0, 0.0, 0.4)
        (
            {"margin1": 1.0, "margin2": 0.0, "margin3": 0.4},
            plsc_tf.Margins(1.0, 0.0, 0.4),
        ),
        ({"loss_type": "sphereface", "margin1": 2}, plsc_tf.Margins(m1=2.0)),
        # PLSC has a margin for every loss, which its softmax ignores.
        ({"loss_type": "softmax", "margin": 0.5}, plsc_tf.SOFTMAX),
        (
            {"margin_gradient": "straight_through"},
            plsc_tf.Margins(m2=0.5, gradient="straight_through"),
        ),
        (
            {"loss_type": "adaface", "margin": 0.3, "adaface_t_alpha": 0.1},
            plsc_tf.AdaFace(0.3, t_alpha=0.1),
        ),
        ({"loss_type": "curricularface", "margin": 0.3}, plsc_tf.CurricularFace(0.3)),
        (
            {
                "loss_type": "magface",
                "magface_norms": (5, 50),
                "magface_margins": (0.2, 0.4),
                "magface_lambda_g": 20,
            },
            plsc_tf.MagFace(5.0, 50.0, 0.2, 0.4, 20.0),
        ),
        (
            {"loss_type": "adaface", "interclass_filtering_threshold": 0.4},
            plsc_tf.InterclassFilter(plsc_tf.ADAFACE, 0.4),
        ),
    ],
)
def test_margins_that_are_given(options, expected):
    assert loss(**options) == expected


def test_the_head_gets_every_option():
    options = {
        "loss_type": "dist_curricularface",
        "num_classes": 50,
        "scale": 30.0,
        "seed": 3,
        "sample_rate": 0.5,
        "head_tile_rows": 4,
        "head_logits_mb": 7,
        "head_dtype": "bfloat16",
    }
    made = make_head(Settings.from_values(**options))
    assert type(made) is plsc_tf.ShardedHead
    assert made.loss == plsc_tf.CURRICULARFACE
    assert (made.num_classes, made.scale, made.seed) == (50, 30.0, 3)
    assert (made.sample_rate, made.tile_rows) == (0.5, 4)
    assert (made.logits_mb, made.dtype) == (7, "bfloat16")


def test_a_replicated_head_gets_what_it_has():
    options = {"loss_type": "arcface", "label_smoothing": 0.1, "head_logits_mb": 7}
    made = make_head(Settings.from_values(**options))
    assert type(made) is plsc_tf.DenseHead
    assert (made.label_smoothing, made.logits_mb) == (0.1, 7)


def test_a_head_that_only_embeds_may_be_smaller_than_its_tiles():
    settings = Settings.from_values(num_classes=2, head_tile_rows=100, sample_rate=0.1)
    made = make_head(settings, training=False)
    assert (made.tile_rows, made.sample_rate) == (None, 1.0)
