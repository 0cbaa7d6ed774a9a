"""The evaluation card inside an export, and what a server takes from it."""

import dataclasses
import json

from plsc_tf.storage import files

# What a threshold says that others need: the rest stays in the card.
_OF_A_THRESHOLD = ("far", "fpir", "squared_l2", "cosine", "note")


@dataclasses.dataclass(frozen=True)
class EvaluationCard:
    """What `python -m plsc_tf.evaluate --card_dir=DIR` has written.

    Attributes:
        path: of card.json.
        content: what it says.
        page: the bytes of card.html beside it, or None.
    """

    path: str
    content: dict
    page: bytes | None

    @classmethod
    def read(cls, path):
        """Reads `DIR/card.json` and `DIR/card.html`.

        Raises:
            FileNotFoundError: there is no such file.
            ValueError: it is no evaluation card.
        """
        if not files.exists(path):
            raise FileNotFoundError(
                f"There is no evaluation card {path!r}. python -m plsc_tf.evaluate "
                "--card_dir=DIR writes DIR/card.json."
            )
        try:
            content = json.loads(files.read(path))
        except ValueError as error:
            raise ValueError(
                f"The evaluation card {path} is no JSON: {error}"
            ) from None
        version = content.get("version") if isinstance(content, dict) else None
        if version != 1 or not isinstance(content.get("sets"), dict):
            raise ValueError(
                "card must be the card.json that python -m plsc_tf.evaluate writes, "
                f"version 1. Received: {path}, version={version!r}."
            )
        page = f"{path.removesuffix('.json')}.html"
        return cls(path, content, files.read(page) if files.exists(page) else None)

    def check_weights(self, sha256, checkpoint):
        """Refuses the card of another model.

        Args:
            sha256: `weights_sha256` of the checkpoint, as cards have it.
            checkpoint: its path, for the message.

        Raises:
            ValueError: the card does not tell whose it is, or is another's.
        """
        model = self.content.get("model", {})
        told = model.get("weights_sha256")
        if told == sha256:
            return
        whose = f"of {model.get('checkpoint')!r}, weights_sha256={str(told)[:16]}..."
        if told is None:
            whose = "one that names no weights, as of saved embeddings"
        raise ValueError(
            f"The evaluation card must be of the exported model, {checkpoint!r}, "
            f"weights_sha256={sha256[:16]}.... Received: {self.path}, {whose}. Write "
            f"it by python -m plsc_tf.evaluate --checkpoint_dir={checkpoint} "
            "--card_dir=DIR."
        )

    def thresholds(self):
        """What goes into model_card.json.

        Returns:
            {"thresholds": {set: {"far" or "fpir", "squared_l2", "cosine", "note"}},
            "threshold": the same of the first set that has a value, else of the first
            one, and its name as "set"}; empty where no set has a threshold.
        """
        found = {
            name: {key: told[key] for key in _OF_A_THRESHOLD if key in told}
            for name, one in self.content["sets"].items()
            if (told := one.get("threshold"))
        }
        if not found:
            return {}
        first = next(
            (name for name, one in found.items() if one.get("cosine") is not None),
            next(iter(found)),
        )
        return {"thresholds": found, "threshold": {"set": first, **found[first]}}
