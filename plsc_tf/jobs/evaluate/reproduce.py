"""`python -m plsc_tf.evaluate --reproduce=card.json`: repeats an evaluation."""

import os
import tempfile

from plsc_tf.jobs import trained
from plsc_tf.jobs.evaluate.command import evaluate
from plsc_tf.jobs.evaluate.provenance import REPEATED
from plsc_tf.options.settings import Settings, select
from plsc_tf.requirements import listed, require
from plsc_tf.serving.evaluation_card import EvaluationCard
from plsc_tf.storage import files

# More draws of a card than users need are made only on request.
_MOST_DRAWS = 10_000
# Options that name what is evaluated.
_MODELS = {"checkpoint_dir", "model_save_dir", "saved_model", "embeddings"}
# Facts that may differ in a repetition.
_PLACES = ("checkpoint", "embeddings", "saved_model", "dataset_dir", "plsc_tf")


def reproduce(settings: Settings) -> list[tuple] | None:
    """Repeats the evaluation of a card, and compares all figures and checksums.

    Args:
        settings: `scoring.reproduce` is the path of the card. Other options that the
            user set replace the card's, such as folders that have moved.

    Returns:
        Table rows; None on workers other than the chief.

    Raises:
        FileNotFoundError: the card, the model or data does not exist.
        ValueError: a figure or a checksum differs; the file is not a card of this
            version, or has no options; or it names Python code or an export that
            `settings` do not.
    """
    path, own = settings.scoring.reproduce, settings.as_dict()
    card = EvaluationCard.read(path, whole=True).content
    kept, rule = settings.scoring.card_dir, "card_dir must not be the card's own folder"
    folders = map(os.path.realpath, (kept, files.parent(path)))
    require(not kept or len({*folders}) > 1, rule, card_dir=kept)
    advice = "Write it anew: an earlier version did not store the options"
    require(card.get("options"), f"{path} must have options", advice)
    stored, names = card["options"], [one.name for one in select(REPEATED)]
    values = {name: stored[name] for name in names if stored.get(name) is not None}
    if checkpoint := card["model"].get("checkpoint"):
        values["checkpoint_dir"] = checkpoint
    if settings.given & _MODELS:  # the card may have a model of another kind
        values = {name: v for name, v in values.items() if name not in _MODELS}
    # A file cannot choose code to run.
    trained.run_settings(f"{path}: options", values, settings)
    export = values.get("saved_model", "")
    known = export in ("", own["saved_model"]) or export.endswith(".onnx")
    rule = f"{path} names an export, which is a program, {export}"
    require(known, rule, f"If you trust it, pass it too: --saved_model={export}")
    samples = values.get("bootstrap_samples", 0)
    rule = f"{path} asks for many draws, which take long"
    many = samples > _MOST_DRAWS and "bootstrap_samples" not in settings.given
    require(not many, rule, f"To do so, set --bootstrap_samples={samples}")
    values |= {name: own[name] for name in settings.given - {"reproduce"}}
    with tempfile.TemporaryDirectory() as scratch:
        folder = kept or scratch
        repeated = Settings.from_values(**values | {"card_dir": folder})
        if evaluate(repeated.replace(reproduce=path)) is None:
            return None
        again = EvaluationCard.read(files.join(folder, "card.json")).content
    before, after = _measured(card), _measured(again)
    # An earlier version may have written fewer facts about the model.
    names = dict.fromkeys([*before, *(name for name in after if name[0] == "set")])
    changes = [
        f"{' '.join(name)} was {before.get(name)!s:.99} and is {after.get(name)!s:.99}"
        for name in names
        if before.get(name, ...) != after.get(name, ...)
    ]
    rule = f"{len(changes)} of {len(names)} results in {path} differ"
    require(not changes, f"{rule}: {listed(changes, 10, '; ')}")
    used = [(name, value) for name, value in again["model"].items() if name in _PLACES]
    return [("card", path), *used, ("reproduced", f"yes, all {len(before):,} results")]


def _measured(card):
    """Returns {names: value} of what a repetition must give again."""
    # Names are tuples, so that no fact of a forged card can hide another one.
    found = {("sets", "order"): [*card["sets"]]}  # the first one's threshold is served
    for part in ("model", "data", "bootstrap"):
        # Of places and versions, only that they are given.
        found |= {(part, k): k in _PLACES or v for k, v in card[part].items()}
    for name, entry in card["sets"].items():
        facts, figures = {**entry, "figures": None}, entry["figures"].items()
        found |= {("set", name, key): value for key, value in facts.items()}
        found |= {("set", name, "figure", key): value for key, value in figures}
    return found
