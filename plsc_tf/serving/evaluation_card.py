"""Reads an evaluation card and extracts the threshold that an export stores."""

import os
from typing import NamedTuple

from plsc_tf.evaluation.calibration import Calibration
from plsc_tf.evaluation.card import VERSION, check
from plsc_tf.requirements import require
from plsc_tf.storage import files

_DAMAGE = TypeError, ValueError, AttributeError, KeyError, OverflowError, RuntimeError
_COMMAND = "python -m plsc_tf.evaluate --card_dir=DIR"
# The keys of a set's threshold that are copied into model_card.json.
_THRESHOLD_KEYS = ("far", "fpir", "squared_l2", "cosine", "note", "calibration")


def check_threshold(threshold: dict) -> None:
    """Raises one of several errors if a threshold cannot be used."""
    cosine, curve = threshold.get("cosine"), threshold.get("calibration")
    require(cosine is None or -2 < cosine < 2, "cosine must be a number or null")  # noqa: PLR2004
    if curve is not None:
        Calibration.read(curve)


class EvaluationCard(NamedTuple):
    """The card that `python -m plsc_tf.evaluate --card_dir=DIR` writes.

    Attributes:
        path: path of card.json.
        content: parsed content of card.json.
        page: content of card.html, or None if there is no such file.
    """

    path: str
    content: dict
    page: bytes | None

    @classmethod
    def read(cls, path: str, whole: bool = False) -> "EvaluationCard":
        """Reads `DIR/card.json` and, if it exists, `DIR/card.html`.

        Args:
            path: path of card.json.
            whole: whether to check all figures and curves, not only the thresholds.

        Raises:
            FileNotFoundError: card.json does not exist.
            ValueError: card.json is not an evaluation card.
        """
        if not files.exists(path):
            raise FileNotFoundError(f"{path} is missing. Create it with {_COMMAND}.")
        try:
            content = dict(files.read_json(path))
            for one in (content.get("model", {}), *content["sets"].values()):
                check_threshold(one.get("threshold") or {})
            if whole and content["version"] == VERSION:
                check(content)
            received = {"version": repr(content["version"])}
        except _DAMAGE as error:
            received = {"error": f"{error!r}"[:200]}
        rule = f"card must be a card.json (version {VERSION}) of plsc_tf.evaluate"
        good, received["card"] = received == {"version": repr(VERSION)}, path
        require(good, rule, f"Write it anew: {_COMMAND}", **received)
        page = files.canonical(f"{path.removesuffix('.json')}.html")
        # It is published: from an archive, it could be another name of any file.
        other = os.path.exists(page) and os.stat(page).st_nlink > 1
        require(not (other or os.path.islink(page)), f"{page} must not be a link")
        # A sparse file that takes no disk could have any size.
        html = files.read_limited(page, 1 << 28) if files.exists(page) else None
        return cls(path, content, html)

    def check_model(self, facts: dict) -> None:
        """Checks that the card describes the exported model.

        Args:
            facts: those about the checkpoint, as in a card: its path, "weights_sha256",
                and "manifest_sha256": the manifest says which network has the weights.

        Raises:
            ValueError: one of the card's two is missing or different.
        """
        model, checkpoint = self.content.get("model", {}), facts["checkpoint"]
        start = f"The evaluation card must describe the exported model, {checkpoint!r}"
        command = f"python -m plsc_tf.evaluate --checkpoint_dir={checkpoint}"
        advice = f"Create its card: {command} --card_dir=DIR"
        for name in ("weights_sha256", "manifest_sha256"):
            rule = f"{start}, with {name}={facts[name][:16]}"
            given = {"card": self.path, name: str(model.get(name))[:16]}
            require(model.get(name) == facts[name], rule, advice, **given)

    def threshold(self) -> dict | None:
        """Returns the threshold for model_card.json, or None if no set has one.

        Returns:
            {"set", "far" or "fpir", "squared_l2", "cosine", "note", "calibration"} of
            the first set with a cosine threshold, or else of the first set.
        """
        thresholds = [
            {"set": name} | {key: one[key] for key in _THRESHOLD_KEYS if key in one}
            for name, figures in self.content["sets"].items()
            if (one := figures.get("threshold"))
        ]
        usable = [one for one in thresholds if one.get("cosine") is not None]
        return next(iter(usable + thresholds), None)
