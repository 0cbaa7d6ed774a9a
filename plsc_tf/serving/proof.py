"""Checks that the files of an export reproduce the network's embeddings."""

import numpy as np

from plsc_tf.evaluation.embedding_store import unit
from plsc_tf.storage import files

# Largest allowed difference between the network and its export. If the largest
# embedding value exceeds 1 (not every network ends in a batch norm), the limit grows in
# proportion.
TOLERANCE = 1e-4


def compare(
    name: str,
    embeddings: np.ndarray,
    expected: np.ndarray,
    smallest_cosine: float | None = None,
) -> dict:
    """Compares the embeddings or scores from one part of an export with the network's.

    Args:
        name: name of the signature or file.
        embeddings: float32 `[N, embedding_size]`, from that part.
        expected: float32 `[N, embedding_size]`, from the network.
        smallest_cosine: lower bound of the mean cosine; None requires equal numbers,
            within the tolerance.

    Returns:
        The part's row in proof.json.

    Raises:
        RuntimeError: the bound does not hold, the shapes differ, or the embeddings
            contain NaN or infinity.
    """
    bad = np.count_nonzero(~np.isfinite(embeddings))
    if bad or embeddings.shape != expected.shape:
        shapes = f"{expected.shape}, received {embeddings.shape} with {bad} not finite"
        raise _disagrees(name, f"expected finite numbers of shape {shapes}")
    first, second = unit(embeddings.astype(np.float64)), unit(expected)
    # The cosine of two rows of zeros is 1, too.
    same = np.all(embeddings == expected, axis=1)
    cosines = np.where(same, 1.0, np.sum(first * second, axis=1))
    mean = float(cosines.mean())
    difference = float(np.abs(embeddings - expected).max())
    if smallest_cosine is None:
        allowed = TOLERANCE * max(1.0, float(np.abs(expected).max()))
        bound, holds = {"max_difference": allowed}, difference <= allowed
        reason = f"largest difference {difference:.3g}, allowed {allowed:.3g}"
    else:
        bound, holds = {"mean_cosine": smallest_cosine}, mean >= smallest_cosine
        reason = f"mean cosine {mean:.5f}, allowed: at least {smallest_cosine:g}"
    if not holds:
        raise _disagrees(name, reason)
    return {
        "artefact": name,
        "max_difference": difference,
        "mean_cosine": mean,
        "min_cosine": float(cosines.min()),
        "bound": bound,
    }


def verify(name: str, before: dict, after: dict, allowed: float) -> dict:
    """Compares the verification accuracies of one part with the network's.

    Args:
        name: name of the signature or file.
        before: {verification set: accuracy} of the network.
        after: {verification set: accuracy} of the part.
        allowed: largest allowed drop.

    Returns:
        {verification set: {"network", "artefact", "change"}}, for proof.json.

    Raises:
        RuntimeError: an accuracy drops by more than `allowed`.
    """
    rows = {}
    for one, old in before.items():
        new = after[one]
        if old - new > allowed + 1e-9:
            drop = f"accuracy on {one} drops from {old:.4f} to {new:.4f}"
            raise _disagrees(name, f"{drop}, more than accuracy_loss={allowed:g}")
        rows[one] = {"network": old, "artefact": new, "change": new - old}
    return rows


def table(folder: str) -> list[tuple[str, str]]:
    """Returns the content of an export's proof.json as rows [(subject, result)]."""
    content = files.read_json(files.join(folder, "assets.extra", "proof.json"))
    rows = [("compared on", f"{content['pictures']} {content['basis']}")]
    for row in content["artefacts"]:
        cosines = "cosine {mean_cosine:.6f} (min {min_cosine:.6f})".format(**row)
        parts = [f"largest difference {row['max_difference']:.2g}", cosines]
        if "same_classes" in row:
            parts.append(f"same classes {row['same_classes']:.1%}")
        for name, one in row.get("verification", {}).items():
            parts.append(f"{name} {one['network']:.4f} -> {one['artefact']:.4f}")
        rows.append((f"proof: {row['artefact']}", ", ".join(parts)))
    return rows


def _disagrees(name, how):
    problem = f"The exported {name!r} disagrees with the network: {how}"
    return RuntimeError(f"{problem}. It was deleted.")
