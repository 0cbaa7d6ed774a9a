"""The evaluation card inside an export: its model, and its threshold."""

import json
import pathlib

import pytest

from plsc_tf.serving.evaluation_card import EvaluationCard
from tests.serving.tiny import CARD, LARGE, SMALL, read

CURVE = {"method": "logistic", "prior": 0.5, "cosines": [-1, 1], "llrs": [-9, 9]}
# Exported, `verify` would answer NaN, or fail.
DAMAGED = [
    *([1], {"cosine": float("nan")}, {"cosine": "0.4"}, {"cosine": 10**400}),
    *({"calibration": CURVE | {"prior": prior}} for prior in (0, 1, float("nan"), "x")),
    *(
        {"calibration": CURVE | {"llrs": llrs}}
        for llrs in ([1], [0, 10**400], [[1], [2]])
    ),
    {"calibration": CURVE | {"cosines": [1, -1]}},
    {"calibration": CURVE | {"groups": {"a": {"cosines": [0], "llrs": []}}}},
]


def write(folder, content=CARD):
    path = folder / "card.json"
    path.write_text(content if content == "no" else json.dumps(content))
    return str(path)


def test_the_card_travels_and_tells_the_first_threshold_there_is(exported):
    _, folder = exported
    assert read(folder, "card.json") == CARD
    assert pathlib.Path(folder, "assets.extra/card.html").read_text() == "<p>page"
    assert read(folder, "model_card.json")["threshold"] == {"set": "large", **LARGE}


def test_thresholds_that_the_data_cannot_support_are_null(tmp_path):
    sets = {"s": {"threshold": SMALL}}
    card = EvaluationCard.read(write(tmp_path, {**CARD, "sets": sets}))
    assert card.threshold() == {"set": "s", **SMALL}
    card = EvaluationCard.read(write(tmp_path, {**CARD, "sets": {}}))
    assert card.threshold() is None
    assert card.page is None


@pytest.mark.parametrize(
    "content",
    [
        *("no", [], {}, {"version": 2, "sets": {}}, {"version": 1, "sets": []}),
        *({"version": 1, "sets": {"a": 5}}, {"version": 1, "sets": {}, "model": []}),
        *({"version": 1, "sets": {"a": {"threshold": one}}} for one in DAMAGED),
    ],
)
def test_other_files_are_refused(tmp_path, content):
    with pytest.raises(ValueError, match="card must be a card.json"):
        EvaluationCard.read(write(tmp_path, content))


# Exports are published, and with them any file that a stranger's link names.
@pytest.mark.parametrize("method", ["hardlink_to", "symlink_to"])
def test_a_link_is_not_published(tmp_path, method):
    (tmp_path / "private").write_text("mine")
    getattr(tmp_path / "card.html", method)(tmp_path / "private")
    with pytest.raises(ValueError, match="must not be a link"):
        EvaluationCard.read(write(tmp_path))


def test_a_card_that_does_not_exist(tmp_path):
    with pytest.raises(FileNotFoundError, match="Create it with .*--card_dir=DIR"):
        EvaluationCard.read(str(tmp_path / "card.json"))
