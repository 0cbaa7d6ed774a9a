"""The evaluation card inside an export, and what a server takes from it."""

import dataclasses
import json

from plsc_tf.storage import files

# What goes into model_card.json of a set's threshold; the rest stays in the card.
_THRESHOLD_KEYS = ("far", "fpir", "squared_l2", "cosine", "note")


@dataclasses.dataclass(frozen=True)
class EvaluationCard:
    """The card that `python -m plsc_tf.evaluate --card_dir=DIR` writes.

    Attributes:
        path: of card.json.
        content: of card.json.
        page: the bytes of card.html, or None.
    """

    path: str
    content: dict
    page: bytes | None

    @classmethod
    def read(cls, path: str) -> "EvaluationCard":
        """Reads `DIR/card.json` and `DIR/card.html`.

        Raises:
            FileNotFoundError: the file does not exist.
            ValueError: it is not an evaluation card.
        """
        if not files.exists(path):
            raise FileNotFoundError(
                f"The evaluation card {path!r} does not exist. python -m "
                "plsc_tf.evaluate --card_dir=DIR writes DIR/card.json."
            )
        try:
            content = json.loads(files.read(path))
        except ValueError as error:
            raise ValueError(
                f"The evaluation card {path} is not JSON: {error}"
            ) from None
        version = content.get("version") if isinstance(content, dict) else None
        if version != 1 or not isinstance(content.get("sets"), dict):
            raise ValueError(
                "card must be the card.json that python -m plsc_tf.evaluate writes, "
                f"version 1. Received: {path}, version={version!r}."
            )
        page = f"{path.removesuffix('.json')}.html"
        return cls(path, content, files.read(page) if files.exists(page) else None)

    def check_weights(self, sha256: str, checkpoint: str) -> None:
        """Refuses the card of another model.

        Args:
            sha256: `weights_sha256` of the checkpoint, as cards have it.
            checkpoint: its path, for the message.

        Raises:
            ValueError: the card names no weights, or different ones.
        """
        weights = self.content.get("model", {}).get("weights_sha256")
        if weights != sha256:
            raise ValueError(
                f"The evaluation card must be of the exported model, {checkpoint!r}, "
                f"weights_sha256={sha256[:16]}.... Received: {self.path}, of "
                f"weights_sha256={str(weights)[:16]}.... python -m plsc_tf.evaluate "
                f"--checkpoint_dir={checkpoint} --card_dir=DIR writes it."
            )

    def thresholds(self) -> dict:
        """The entries for model_card.json.

        Returns:
            {"thresholds": {set: {"far" or "fpir", "squared_l2", "cosine", "note"}},
            "threshold": the same of the first set that has a value, else of the first
            one, and its name as "set"}; empty if no set has a threshold.
        """
        thresholds = {
            name: {key: one[key] for key in _THRESHOLD_KEYS if key in one}
            for name, figures in self.content["sets"].items()
            if (one := figures.get("threshold"))
        }
        if not thresholds:
            return {}
        usable = [k for k, v in thresholds.items() if v.get("cosine") is not None]
        first = [*usable, *thresholds][0]
        threshold = {"set": first, **thresholds[first]}
        return {"thresholds": thresholds, "threshold": threshold}
