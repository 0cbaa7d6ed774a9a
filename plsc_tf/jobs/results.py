"""Results of a run: results.json, the export and the final table."""

import json
import shlex

from absl import logging

from plsc_tf.evaluation import closed_set, report, verification
from plsc_tf.jobs import exporting
from plsc_tf.storage import files


def read(save_dir):
    """The results in a run's folder; an empty dict if there are none."""
    path = files.join(save_dir, "results.json")
    if not files.exists(path):
        return {}
    try:
        results = json.loads(files.read(path))
    except ValueError as error:
        raise ValueError(
            f"{path} is not JSON ({error}). Remove it; the checkpoints stay."
        ) from error
    if not isinstance(results, dict):
        raise ValueError(
            f"{path} must hold the results of a run by name. Received: "
            f"{type(results).__name__}. Remove it; the checkpoints stay."
        )
    return results


def write(save_dir, results):
    """Writes `<save_dir>/results.json`."""
    text = json.dumps(results, indent=1) + "\n"
    files.replace(files.join(save_dir, "results.json"), text.encode())


def verification_figures(results):
    """`{name: {accuracy, std, threshold}}` of `{name: VerificationResult}`."""
    return {
        name: {
            "accuracy": result.accuracy,
            "std": result.std,
            "threshold": result.threshold,
        }
        for name, result in results.items()
    }


def test_figures(model, batches):
    """`{accuracy, images}` on the test split, see `closed_set.accuracy`."""
    accuracy, count = closed_set.accuracy(model, batches)
    return {"accuracy": accuracy, "images": count}


def raw_pixels(pairs, image_size):
    """The accuracy of comparing raw pixels on each verification set."""
    scores = {}
    for name, one in pairs.items():
        pixels = verification.raw_pixels(one.decoded(image_size))
        result = verification.verify(pixels, one.left, one.right, one.same)
        scores[name] = {"accuracy": result.accuracy, "std": result.std}
    return scores


def export(settings, model, checkpoint, figures, pairs=None):
    """Exports the model after a training; returns the version folder.

    Args:
        settings: the `Settings`.
        model: the `Classifier`.
        checkpoint: path of the checkpoint of these weights.
        figures: `verification_figures`, for the model card.
        pairs: `{name: Pairs}` to prove it on; None reads those of the settings.
    """
    if settings.export.export_classes and model.trainer.group.size > 1:
        # The class weights of the other workers come only when all ask for them.
        logging.warning(
            "The export gets no signature `classify`: the classes are on several "
            "workers. python -m plsc_tf.export --flagfile=%s makes one that has it.",
            files.join(settings.checkpoints.model_save_dir, "flags.cfg"),
        )
        settings = settings.replace(export_classes=0)
    return exporting.export(settings, model, checkpoint, figures, pairs=pairs)


def table(settings, results):
    """The table that a run ends with.

    Args:
        settings: the `Settings` of the run.
        results: what `plsc_tf.jobs.train.train` returns.
    """
    save_dir = settings.checkpoints.model_save_dir
    rows = [("steps", results["steps"]), ("loss", results["loss"])]
    for name in ("training_accuracy", "training_top5_accuracy"):
        if name in results:
            rows.append((name, results[name]))
    if results["images_per_second"]:
        rows.append(("images/s", speed(results)))
    for name, figures in results["verification"].items():
        rows.append((f"{name}: verification accuracy", _plus_minus(figures)))
        if name in results.get("raw_pixels", {}):
            figures = results["raw_pixels"][name]
            rows.append((f"{name}: comparing raw pixels", _plus_minus(figures)))
    for name, value in results.get("test", {}).items():
        rows.append((f"test {name}", value))
    rows += [
        *_saved(results),
        ("flags", files.join(save_dir, "flags.cfg")),
        ("results", files.join(save_dir, "results.json")),
    ]
    page = files.join(save_dir, "report.html")
    if settings.logging.run_report and files.exists(page) and not files.is_dir(page):
        rows.append(("report", page))
    if results["export_dir"]:
        rows.append(("SavedModel", results["export_dir"]))
    command = next_command(settings, results)
    if command:
        rows.append(("next, try", command))
    return report.format_table(rows)


def speed(results):
    """Images per second as text, with the steps that it is the mean of after a resume.

    Args:
        results: what `plsc_tf.jobs.train.train` returns, with `images_per_second`.
    """
    text = f"{results['images_per_second']:.5g}"
    # Earlier versions do not say.
    first, last = results.get("images_per_second_steps") or (2, None)
    if first <= 2:
        return text
    steps = f"steps {first} to {last}" if first < last else f"step {first} alone"
    return f"{text} ({steps}, since the resume)"


def next_command(settings, results):
    """The command to try next with the results of a run; "" if there is none.

    Args:
        settings: the `Settings` of the run.
        results: what `plsc_tf.jobs.train.train` returns.
    """
    # No command can load a network of a script.
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


def _saved(results):
    yield "checkpoint", results["checkpoint_dir"] or "none: no save has succeeded"
    if "unsaved_steps" in results:
        yield "NOT SAVED", f"the last {results['unsaved_steps']} steps; see the errors"


def _plus_minus(figures):
    return f"{figures['accuracy']:.4f} ± {figures['std']:.4f}"
