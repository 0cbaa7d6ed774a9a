"""Proof that the files of an export give the network's embeddings."""

import dataclasses
import json
from collections.abc import Callable

import numpy as np

from plsc_tf.storage import files

# Largest difference between the network and its export, relative to the largest
# embedding value where that exceeds 1 (not every network ends in a batch norm).
TOLERANCE = 1e-4


@dataclasses.dataclass(frozen=True)
class Bounds:
    """Conditions for an export to be published.

    Attributes:
        float16: smallest mean cosine between embeddings of a float16 file and the
            network's.
        int8: the same of an int8 file.
        accuracy_loss: by how much verification accuracy may fall, of any file.
    """

    float16: float = 0.999
    int8: float = 0.97
    accuracy_loss: float = 0.01


class Proof:
    """Compares the files of an export with the network, one by one.

    Args:
        network: uint8 [N, height, width, 3] -> [N, embedding_size].
        images: of this form, to compare on.
        bounds: the `Bounds`.
        accuracy: callable, embed -> {verification set: accuracy}, see `Extras`; None
            without verification.

    Attributes:
        images: those to compare on.
        bounds: the `Bounds`.
        rows: list of dicts, plain values, one for each file or signature.

    Raises:
        RuntimeError: the network's embeddings are not finite.
    """

    def __init__(
        self,
        network: Callable,
        images: np.ndarray,
        bounds: Bounds,
        accuracy: Callable | None = None,
    ):
        self.images, self.bounds, self.rows = images, bounds, []
        self._expected = network(images)
        if not np.isfinite(self._expected).all():
            raise RuntimeError(
                "The network's embeddings are not finite, so it was not exported. Has "
                "the training diverged?"
            )
        self._accuracy = accuracy
        self._verified = accuracy(network) if accuracy else {}

    def add(
        self,
        name: str,
        embeddings: np.ndarray,
        smallest_cosine: float | None = None,
        embed: Callable | None = None,
    ) -> None:
        """Compares embeddings of the images with the network's.

        Args:
            name: of the file or signature.
            embeddings: [N, embedding_size]. Lengths may differ if a cosine is given.
            smallest_cosine: lower bound of the mean; None requires the same numbers.
            embed: callable as the network, to be verified.

        Raises:
            RuntimeError: a bound does not hold.
        """
        expected = self._expected
        if not np.isfinite(embeddings).all() or embeddings.shape != expected.shape:
            raise _disagrees(name, f"{embeddings.shape} values, not all finite")
        cosines = _cosines(embeddings, expected)
        mean = float(cosines.mean())
        difference = float(np.abs(embeddings - expected).max())
        if smallest_cosine is None:
            allowed = TOLERANCE * max(1.0, float(np.abs(expected).max()))
            bound = {"max_difference": allowed}
            if not difference <= allowed:
                raise _disagrees(
                    name, f"largest difference {difference:.3g}, allowed {allowed:.3g}"
                )
        else:
            bound = {"mean_cosine": smallest_cosine}
            if not mean >= smallest_cosine:
                raise _disagrees(
                    name,
                    f"mean cosine {mean:.5f}, allowed: at least {smallest_cosine:g}",
                )
        row = {
            "artefact": name,
            "max_difference": difference,
            "mean_cosine": mean,
            "min_cosine": float(cosines.min()),
            "bound": bound,
        }
        if self._accuracy and embed:
            row["verification"] = self._verify(name, embed)
        self.rows.append(row)

    def _verify(self, name, embed):
        compared, allowed = {}, self.bounds.accuracy_loss
        for one, after in self._accuracy(embed).items():
            before = self._verified[one]
            if before - after > allowed + 1e-9:
                raise _disagrees(
                    name,
                    f"accuracy on {one} falls from {before:.4f} to {after:.4f}, by "
                    f"more than accuracy_loss={allowed:g}",
                )
            compared[one] = {
                "network": before,
                "artefact": after,
                "change": after - before,
            }
        return compared

    def add_classes(self, outputs: dict, expected: dict) -> None:
        """Compares the outputs of `classify` with the network's.

        Args:
            outputs: {"scores": [N, top], "classes": [N, top]}.
            expected: the same by the network.

        Raises:
            RuntimeError: a score differs.
        """
        difference = float(np.abs(outputs["scores"] - expected["scores"]).max())
        if not difference <= TOLERANCE:
            raise _disagrees(
                "classify", f"largest difference of a score {difference:.3g}"
            )
        same = np.mean(outputs["classes"] == expected["classes"])
        self.rows.append(
            {
                "artefact": "classify",
                "max_difference": difference,
                "same_classes": float(same),
                "bound": {"max_difference": TOLERANCE},
            }
        )

    def content(self, basis: str) -> dict:
        """The content of proof.json.

        Args:
            basis: in words, which images these are.
        """
        return {
            "pictures": len(self.images),
            "basis": basis,
            "accuracy_loss_allowed": self.bounds.accuracy_loss,
            "artefacts": self.rows,
        }


def table(folder: str) -> list[tuple[str, str]]:
    """The rows of a table about an export's proof: [(subject, result)]."""
    content = json.loads(files.read(files.join(folder, "assets.extra", "proof.json")))
    rows = [("proved on", f"{content['pictures']} {content['basis']}")]
    for row in content["artefacts"]:
        parts = [f"largest difference {row['max_difference']:.2g}"]
        if "mean_cosine" in row:
            parts.append(
                f"cosine {row['mean_cosine']:.6f} (min {row['min_cosine']:.6f})"
            )
        if "same_classes" in row:
            parts.append(f"same classes {row['same_classes']:.1%}")
        for name, one in row.get("verification", {}).items():
            parts.append(f"{name} {one['network']:.4f} -> {one['artefact']:.4f}")
        rows.append((f"proof: {row['artefact']}", ", ".join(parts)))
    return rows


def _cosines(one, other):
    products = np.sum(one.astype(np.float64) * other, axis=1)
    lengths = np.linalg.norm(one, axis=1) * np.linalg.norm(other, axis=1)
    same = np.all(one == other, axis=1)  # also where both are zero
    return np.where(same, 1.0, products / np.maximum(lengths, 1e-300))


def _disagrees(name, how):
    return RuntimeError(
        f"The exported {name!r} disagrees with the network: {how}. Nothing was left in "
        "export_dir."
    )
