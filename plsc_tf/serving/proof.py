"""Proof that what was written gives the network's embeddings."""

import dataclasses
import json

import numpy as np

from plsc_tf.storage import files

NAME = "proof.json"
# Largest difference between the network and its export, relative to the largest
# embedding value where that exceeds 1 (not every network ends in a batch norm).
TOLERANCE = 1e-4


@dataclasses.dataclass(frozen=True)
class Bounds:
    """What an export must keep to be published.

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
    """Compares what was written with the network, artefact by artefact.

    Args:
        expected: float32 [N, embedding_size], the network's embeddings.
        bounds: the `Bounds`.
        basis: in words, which pictures these are.
        accuracy: callable, embed -> {verification set: accuracy}, see `Extras`; None
            without verification.
        reference: the network for it: uint8 [N, h, w, 3] -> [N, embedding_size].

    Attributes:
        rows: list of dicts, plain values, one for each artefact.

    Raises:
        RuntimeError: the network's embeddings are not finite.
    """

    def __init__(self, expected, bounds, basis, accuracy=None, reference=None):
        if not np.isfinite(expected).all():
            raise RuntimeError(
                "The network's embeddings are not finite, so it was not exported. Has "
                "the training diverged?"
            )
        self._expected, self._bounds, self._basis = expected, bounds, basis
        self._accuracy = accuracy
        self._verified = accuracy(reference) if accuracy else {}
        self.rows = []

    def add(self, name, found, smallest_cosine=None, embed=None):
        """Compares an artefact's embeddings of the same pictures.

        Args:
            name: of the artefact.
            found: [N, embedding_size]. Lengths may differ where a cosine is asked for.
            smallest_cosine: that the mean must reach; None asks for the same numbers.
            embed: the artefact as a callable, to be verified.

        Raises:
            RuntimeError: a bound does not hold.
        """
        found = np.asarray(found)
        if not np.isfinite(found).all() or found.shape != self._expected.shape:
            raise _broken(name, f"{found.shape} values, not all finite")
        cosines = _cosines(found, self._expected)
        difference = float(np.abs(found - self._expected).max())
        row = {
            "artefact": name,
            "max_difference": difference,
            "mean_cosine": float(cosines.mean()),
            "min_cosine": float(cosines.min()),
        }
        if smallest_cosine is None:
            allowed = TOLERANCE * max(1.0, float(np.abs(self._expected).max()))
            row["bound"] = {"max_difference": allowed}
            if not difference <= allowed:
                raise _broken(
                    name, f"largest difference {difference:.3g}, allowed {allowed:.3g}"
                )
        else:
            row["bound"] = {"mean_cosine": smallest_cosine}
            if not cosines.mean() >= smallest_cosine:
                raise _broken(
                    name,
                    f"mean cosine {cosines.mean():.5f}, asked for: at least "
                    f"{smallest_cosine:g}",
                )
        if self._accuracy and embed:
            row["verification"] = self._verify(name, embed)
        self.rows.append(row)

    def _verify(self, name, embed):
        compared, allowed = {}, self._bounds.accuracy_loss
        for one, accuracy in self._accuracy(embed).items():
            before = self._verified[one]
            compared[one] = {
                "network": before,
                "artefact": accuracy,
                "change": accuracy - before,
            }
            if before - accuracy > allowed + 1e-9:
                raise _broken(
                    name,
                    f"accuracy on {one} falls from {before:.4f} to {accuracy:.4f}, by "
                    f"more than accuracy_loss={allowed:g}",
                )
        return compared

    def add_classes(self, scores, classes, expected):
        """Compares what `classify` says.

        Args:
            scores: [N, top].
            classes: [N, top].
            expected: {"scores", "classes"} by the network.

        Raises:
            RuntimeError: a score is another one.
        """
        difference = float(np.abs(scores - expected["scores"]).max())
        if not difference <= TOLERANCE:
            raise _broken("classify", f"largest difference of a score {difference:.3g}")
        self.rows.append(
            {
                "artefact": "classify",
                "max_difference": difference,
                "same_classes": float(np.mean(classes == expected["classes"])),
                "bound": {"max_difference": TOLERANCE},
            }
        )

    def write(self, folder):
        """Writes `assets.extra/proof.json` of a SavedModel."""
        content = {
            "pictures": len(self._expected),
            "basis": self._basis,
            "accuracy_loss_allowed": self._bounds.accuracy_loss,
            "artefacts": self.rows,
        }
        path = files.join(folder, "assets.extra", NAME)
        files.write(path, f"{json.dumps(content, indent=2)}\n".encode())


def table(folder):
    """The rows of a table about an export's proof: [(what, result)]."""
    content = json.loads(files.read(files.join(folder, "assets.extra", NAME)))
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


def _broken(name, how):
    return RuntimeError(
        f"The exported {name!r} disagrees with the network: {how}. Nothing was left in "
        "export_dir."
    )
