"""Stores the results of a run in results.json, and formats the table at its end."""

import json
import shlex
from collections.abc import Iterator

import numpy as np

from plsc_tf.evaluation import closed_set, report, verification
from plsc_tf.options.settings import Settings
from plsc_tf.reporting.recorder import Guard
from plsc_tf.storage import files


def read(save_dir: str) -> dict:
    """Returns the stored results of the run in a folder, {} if there are none.

    Raises:
        ValueError: results.json is not a JSON object.
    """
    path = files.join(save_dir, "results.json")
    if not files.exists(path):
        return {}
    try:
        return {**files.read_json(path)}
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(
            f"{path} must contain a JSON object. Delete it; the checkpoints remain."
        ) from error


def write(save_dir: str, results: dict) -> None:
    """Writes `<save_dir>/results.json`."""
    text = json.dumps(results, indent=1) + "\n"
    files.replace(files.join(save_dir, "results.json"), text.encode())


def verification_figures(results):
    """Converts `{name: VerificationResult}` to `{name: {accuracy, std, threshold}}`."""
    keys = ("accuracy", "std", "threshold")
    return {name: {k: getattr(one, k) for k in keys} for name, one in results.items()}


def test_figures(model, batches):
    """Returns `{accuracy, images}` on the test split."""
    ranks, _ = closed_set.ranks(model, batches)
    return {"accuracy": float(np.mean(ranks == 1)), "images": len(ranks)}


def raw_pixels(pairs, image_size):
    """Returns what correlations of images reach, the baseline of each set of pairs."""
    scores = {}
    for name, one in pairs.items():
        pixels = one.decoded(image_size).astype(np.float32)
        flat = (pixels - pixels.mean((1, 2, 3), keepdims=True)).reshape(len(pixels), -1)
        result = verification.verify(flat, one.left, one.right, one.same)
        scores[name] = {"accuracy": result.accuracy, "std": result.std}
    return scores


def rows(outcome: dict) -> Iterator[tuple[str, str]]:
    """Yields (name, text) for each figure of a run.

    Args:
        outcome: the content of results.json; entries may be missing.
    """
    for name in ("steps", "loss", "training_accuracy", "training_top5_accuracy"):
        if outcome.get(name) is not None:
            yield name, report.text(outcome[name])
    if outcome.get("images_per_second"):
        yield "images/s", report.text(outcome["images_per_second"])
    sets = {"verification": "verification accuracy", "raw_pixels": "raw pixels"}
    for key, words in sets.items():
        for name, figures in (outcome.get(key) or {}).items():
            yield f"{name}: {words}", "{accuracy:.4f} ± {std:.4f}".format_map(figures)
    for name, value in (outcome.get("test") or {}).items():
        yield f"test {name}", report.text(value)
    if "checkpoint_dir" in outcome:
        yield "checkpoint", outcome["checkpoint_dir"] or "none: no save has succeeded"
    if "unsaved_steps" in outcome:
        yield "NOT SAVED", f"the last {outcome['unsaved_steps']} steps; see the errors"


def table(settings: Settings, outcome: dict) -> str:
    """Returns the table that is printed at the end of a run; "" if it fails.

    Args:
        settings: the `Settings` of the run.
        outcome: the content of results.json.
    """
    return Guard("the table of results")(lambda: _table(settings, outcome), "")


def _table(settings, outcome):
    folder = settings.checkpoints.model_save_dir
    lines = [*rows(outcome), ("flags", files.join(folder, "flags.cfg"))]
    lines.append(("results", files.join(folder, "results.json")))
    page = files.join(folder, "report.html")
    if settings.logging.run_report and files.exists(page) and not files.is_dir(page):
        lines.append(("report", page))
    if outcome["export_dir"]:
        lines.append(("SavedModel", outcome["export_dir"]))
    if command := next_command(settings, outcome):
        lines.append(("next, try", command))
    return report.format_table(lines)


def next_command(settings: Settings, results: dict) -> str:
    """Returns a command to run after the training, or "".

    Args:
        settings: the `Settings` of the run.
        results: the content of results.json.
    """
    # Commands cannot import a network that is defined in a script.
    of_a_script = settings.model.model_name.startswith("__main__.")
    if not results.get("checkpoint_dir") or of_a_script:
        return ""
    flags = f"--flagfile={files.join(settings.checkpoints.model_save_dir, 'flags.cfg')}"
    verb, word = "export", flags
    if settings.evaluation.with_test and settings.evaluation.val_targets:
        verb, word = "evaluate", flags
    elif results["export_dir"]:
        verb, word = "serve", f"--model_dir={files.parent(results['export_dir'])}"
    return f"python -m plsc_tf.{verb} {shlex.quote(word)}"
