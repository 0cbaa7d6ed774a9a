"""The evaluation card inside an export: whose it is, and the threshold it brings."""

import json
import pathlib

import pytest

from plsc_tf.serving.evaluation_card import EvaluationCard
from plsc_tf.serving.export import Extras, export_saved_model
from tests.serving.tiny import network

SETS = {
    "small": {
        "threshold": {"far": 1e-3, "squared_l2": None, "cosine": None, "note": "few"}
    },
    "large": {
        "threshold": {
            "far": 1e-3,
            "squared_l2": 1.2,
            "cosine": 0.4,
            "tar": 0.9,
        }
    },
    "classes": {"threshold": {}},
}
CARD = {"version": 1, "model": {"weights_sha256": "a" * 64}, "sets": SETS}


def write(folder, content=CARD):
    path = folder / "card.json"
    path.write_text(json.dumps(content))
    return str(path)


def test_the_card_travels_and_tells_the_first_threshold_there_is(tmp_path):
    path = write(tmp_path)
    (tmp_path / "card.html").write_text("<p>page")
    card = EvaluationCard.read(path)
    card.check_weights("a" * 64, "run/7")
    folder = export_saved_model(network(), tmp_path / "face", extras=Extras(card=card))
    extra = pathlib.Path(folder, "assets.extra")
    assert json.loads((extra / "card.json").read_text()) == CARD
    assert (extra / "card.html").read_text() == "<p>page"
    told = json.loads((extra / "model_card.json").read_text())
    large = {"far": 1e-3, "squared_l2": 1.2, "cosine": 0.4}
    assert told["threshold"] == {"set": "large", **large}
    assert told["thresholds"] == {"large": large, "small": SETS["small"]["threshold"]}


def test_values_that_the_data_cannot_support_stay_away(tmp_path):
    card = EvaluationCard.read(write(tmp_path, {**CARD, "sets": {"s": SETS["small"]}}))
    assert card.thresholds()["threshold"] == {
        **{"set": "s", "far": 1e-3, "squared_l2": None, "cosine": None, "note": "few"}
    }
    card = EvaluationCard.read(write(tmp_path, {**CARD, "sets": {}}))
    assert card.thresholds() == {}
    assert card.page is None


def test_the_card_of_another_model_is_refused(tmp_path):
    card = EvaluationCard.read(write(tmp_path))
    with pytest.raises(
        ValueError, match=r"run/7', weights_sha256=bbbb.*Received: .*aaa"
    ):
        card.check_weights("b" * 64, "run/7")
    card = EvaluationCard.read(write(tmp_path, {**CARD, "model": {}}))
    with pytest.raises(ValueError, match="names no weights, as of saved embeddings"):
        card.check_weights("b" * 64, "run/7")


@pytest.mark.parametrize(
    "content", [[], {}, {"version": 2, "sets": {}}, {"version": 1, "sets": []}]
)
def test_other_files_are_refused(tmp_path, content):
    with pytest.raises(ValueError, match="card must be the card.json"):
        EvaluationCard.read(write(tmp_path, content))


def test_a_card_that_is_not_there(tmp_path):
    with pytest.raises(FileNotFoundError, match="--card_dir=DIR writes"):
        EvaluationCard.read(str(tmp_path / "card.json"))
    (tmp_path / "card.json").write_text("no")
    with pytest.raises(ValueError, match="is not JSON"):
        EvaluationCard.read(str(tmp_path / "card.json"))
