"""`python -m plsc_tf.evaluate`: runs the requested evaluations."""

import contextlib
import functools
import os
import re

import numpy as np
from absl import logging

from plsc_tf.checkpoints import manifest, reader
from plsc_tf.checkpoints.rows import StoredRows
from plsc_tf.data.image_limit import read_image
from plsc_tf.data.paths import NO_FILE
from plsc_tf.evaluation import card, closed_set, leaks, set_charts, set_report
from plsc_tf.evaluation.report import Options, short_name
from plsc_tf.evaluation.verification import score_pairs
from plsc_tf.jobs import trained, workers
from plsc_tf.jobs.builders import data
from plsc_tf.jobs.evaluate import all_pairs, protocols, provenance
from plsc_tf.jobs.evaluate.embeddings import Saved, of_export, of_model
from plsc_tf.jobs.parts import NONE, TEST_SPLIT, Parts
from plsc_tf.jobs.training_data import TrainingData
from plsc_tf.options import effects
from plsc_tf.options.settings import Settings
from plsc_tf.requirements import require, require_package
from plsc_tf.serving.evaluation_card import EvaluationCard
from plsc_tf.serving.exported import open_model
from plsc_tf.storage import files


def evaluate(settings: Settings, parts: Parts = NONE) -> list[tuple] | None:
    """Evaluates a trained model or saved embeddings.

    Writes the card and the charts if the settings request them. In a cluster, all
    workers compute embeddings, and the chief does everything else.

    Args:
        settings: `checkpoint_dir` or `model_save_dir` names the model; `scoring`
            names comparisons in addition to `val_targets`.
        parts: the `Parts` of a run whose backbone was created in Python; its pairs
            replace `val_targets`.

    Returns:
        Table rows; None on workers other than the chief.

    Raises:
        FileNotFoundError: a checkpoint, list or data set does not exist.
        ValueError: the settings contradict each other, or a file is invalid.
    """
    scoring, targets = settings.scoring, settings.evaluation.val_targets
    both = scoring.embeddings and targets and "val_targets" in settings.given
    rule = "For saved embeddings, use pair_lists instead of val_targets"
    require(not both, rule, val_targets=",".join(targets))
    _check_files(scoring)
    if scoring.embeddings:
        workers.require_one_process(settings, "The comparison of saved embeddings")
        evaluation, rows = _Evaluation(settings), [("embeddings", scoring.embeddings)]
        if scoring.protocol:
            reports, missing = all_pairs.run(scoring)
            evaluation.reports += reports
            if missing:
                missed = f"counted; missing: {', '.join(missing)}"
                return [*rows, (f"shard {scoring.shard}", missed)]
        if scoring.has_lists:
            evaluation.add_lists(Saved(scoring.embeddings))
        if scoring.card_dir:
            checksum = files.checksum(scoring.embeddings, "sha256")["sha256"]
            evaluation.model = {"embeddings": scoring.embeddings, "sha256": checksum}
        return [*rows, *evaluation.write()]
    if settings.embedding.saved_model:
        workers.require_one_process(settings, "The evaluation of an exported model")
        return _evaluate_export(_Evaluation(settings), settings)
    with workers.joined(settings) as joined:
        if not (is_chief := joined.group.is_chief):
            settings = settings.replace(card_dir="", plot_dir="")
        evaluation = _Evaluation(settings)
        checkpoint = _evaluate_model(evaluation, settings, parts, joined)
        rows = [("checkpoint", checkpoint), *evaluation.write()] if is_chief else None
        joined.group.gather("the chief has finished", None)
        return rows


def _check_files(scoring):
    """Checks that lists and folders exist; makes those of the results."""
    for folder in filter(None, (scoring.card_dir, scoring.plot_dir)):
        files.make_dirs(folder)
        writable = not files.is_local(folder) or os.access(folder, os.W_OK)
        rule = "Files cannot be written into this folder, or it is a link"
        # A stranger's run could bring a link to the folder of other results.
        fits = writable and not os.path.islink(os.path.abspath(files.canonical(folder)))
        require(fits, rule, folder=folder)
    for path in *scoring.pair_lists, scoring.gallery, scoring.probes, scoring.groups:
        if path not in ("", "folders", protocols.OWN) and not files.exists(path):
            raise FileNotFoundError(f"The list {path!r} does not exist.")
    folders = [("template_dirs", path, "meta") for path in scoring.template_dirs]
    if tinyface := scoring.tinyface_dir:
        folders += [("tinyface_dir", tinyface, part) for part in protocols.TINYFACE]
    for option, path, part in folders:
        if not files.is_dir(files.join(path, part)):
            raise FileNotFoundError(f"{option}={path!r} must contain a {part} folder.")


class _Evaluation:
    """Collects and writes the reports on all sets.

    Attributes:
        options: the report's `Options`.
        only_lists: whether lists replace the sets that a training compares.
        reports: list of `SetReport`.
        images: {set: (`provenance.fingerprints` of its images, their names)}.
        model: facts about the model, for the card.
        data: facts about the training data, for the card.
        class_rows: `StoredRows` of the training classes; None if they are not known.

    Raises:
        FileNotFoundError: a card to compare with does not exist.
        ValueError: it is not a card of this version.
    """

    def __init__(self, settings):
        self.scoring, self.image_dir = settings.scoring, settings.embedding.image_dir
        drawn = self.scoring.card_dir or self.scoring.plot_dir
        samples = self.scoring.bootstrap_samples if drawn else 0
        seed, far = settings.training.seed, self.scoring.card_far
        calibrate, prior = self.scoring.calibrate, self.scoring.calibration_prior
        if calibrate:
            require_package("sklearn", "calibration", "calibrate")
        self.options = Options(samples, seed, far, calibrate, prior)
        self.flip = settings.embedding.flip
        self.only_lists = self.scoring.has_lists and "val_targets" not in settings.given
        self._given = provenance.options(settings)
        self._others = [EvaluationCard.read(x, True) for x in self.scoring.compare]
        self.images, self.reports, self.model, self.data = {}, [], {}, {}
        self.class_rows = None

    def add(self, report):
        """Adds a report, under a name that neither others nor the training set have."""
        taken = {"training set", *(one.name for one in self.reports)}
        report.name = data.free_name(report.name, taken)
        self.reports.append(report)

    def add_lists(self, source, with_fingerprints=False):
        """Runs the requested protocols on a source's embeddings.

        Args:
            source: `Pictures` or `Saved`.
            with_fingerprints: whether to collect fingerprints of listed images for the
                card.
        """
        scoring, options = self.scoring, self.options
        for path in scoring.pair_lists:
            folder = self.image_dir or files.parent(path)
            given = path, source, folder, options, scoring.groups
            report, listed, scores, people = protocols.pair_list(*given)
            self.add(report)
            self._add_leaks(report, scores, people)
            if scoring.card_dir:
                located = [files.join(folder, name) for name in listed]
                if with_fingerprints:
                    prints = provenance.fingerprints(map(read_image, located))
                    self.images[report.name] = prints, listed
                # A card could name the folder of all images, or a link to it.
                own = os.path.dirname(os.path.realpath(path))
                shown = own if scoring.reproduce else folder
                read = functools.partial(_read, located, shown)
                provenance.add_worst(report, scores, scores.sides, listed, read)
        for folder in scoring.template_dirs:
            for report in protocols.templates(folder, source, options):
                self.add(report)
        if scoring.tinyface_dir:
            self.add(protocols.tinyface(scoring.tinyface_dir, source, options))
        if scoring.gallery:
            lists = scoring.gallery, scoring.probes
            self.add(protocols.search(*lists, source, self.image_dir, options))

    def _add_leaks(self, report, scores, people):
        """Adds the people of the training set."""
        if rows := self.class_rows:
            pieces = rows.pieces(*rows.local_range())
            known = [n for n, one in report.figures.items() if one.value is not None]
            report.leaks = leaks.find(scores, people.sides, pieces, known)

    def add_pairs(self, name, pairs, scores):
        """Adds the report on a verification set."""
        both = np.stack([pairs.left, pairs.right])
        people = protocols.people_of(pairs.files, both, pairs.same, self.scoring.groups)
        report = set_report.of_pairs(name, scores, people, self.options)
        self.add(report)
        if self.scoring.card_dir:
            report.sha256 = provenance.set_checksum(pairs)
            report.counts["pictures"] = len(pairs.images)
            prints = provenance.fingerprints(pairs.images)
            self.images[report.name] = prints, pairs.files
            shown = [provenance.short_name(path) for path in pairs.files]
            shown = shown or range(len(pairs.images))
            provenance.add_worst(report, scores, both, shown, pairs.images.__getitem__)
        self._add_leaks(report, scores, people)

    def add_sets(self, embed, sets, source):
        """Adds the reports on verification sets, and on the requested protocols.

        Args:
            embed: function from images to embeddings.
            sets: {name: `Pairs`}.
            source: `Pictures`.
        """
        sizes = {"batch_size": source.batch_size, "image_size": source.image_size}
        for name, pairs in sets.items():
            scores = score_pairs(embed, pairs, **sizes, flip=self.flip)
            self.add_pairs(name, pairs, scores)
        self.add_lists(source, with_fingerprints=True)

    def add_origins(self, model, training_data):
        """Adds facts about a `Trained` model and its data, and images that sets share.

        Args:
            model: the model.
            training_data: its `TrainingData`.
        """
        self.model = provenance.of_model(model)
        self.data = provenance.of_data(model)
        compared = training_data if self.scoring.card_duplicates else None
        shared = provenance.overlaps(self.images, compared)
        for report in self.reports:
            report.duplicates = shared.get(report.name, {})
            if count := report.duplicates.get("training set", {}).get("same_pixels"):
                text = f"{count} images of {report.name} are also training images"
                logging.warning("%s: its results are biased.", text)

    def _compare(self, report):
        """Adds the entries of the same set in other cards to a report."""
        for other in self._others:
            entry = other.content["sets"].get(report.name, {})
            if entry.get("sha256") == report.sha256:
                report.compared[files.parent(other.path) or other.path] = entry
            else:
                message = "%s has no set %s with the same contents."
                logging.warning(message, other.path, report.name)

    def write(self):
        """Writes the card and the charts; returns table rows."""
        rows = [row for report in self.reports for row in self._rows(report)]
        for report in self.reports:
            self._compare(report)
        if folder := self.scoring.card_dir:
            content = card.build(self.model, self.data, self.reports, self.options)
            content["options"] = self._given
            as_json, page = (files.join(folder, f"card.{x}") for x in ("json", "html"))
            files.replace(as_json, card.to_json(content))
            files.replace(page, card.to_html(content, self.reports))
            rows += [("card", page), ("card as JSON", as_json)]
        if folder := self.scoring.plot_dir:
            rows.append(("charts", folder))
            names: list[str] = []
            for report in self.reports:
                # A file's name has at most 255 bytes, four for a character.
                short = re.sub(r"[^\w.-]", "_", report.name[:50])
                names.append(data.free_name(short, names))
                for kind, chart in set_charts.all_of(report).items():
                    path = files.join(folder, f"{names[-1]}_{kind}")
                    files.replace(f"{path}.svg", chart.svg().encode())
                    files.replace(f"{path}.png", chart.png())
        return rows

    def _rows(self, report):
        of_all = report.kind == "all pairs"
        for name, figure in report.figures.items():
            text = str(figure)
            if name == "best_threshold":
                text = f"{text} as squared distance, {figure.as_cosine()} as cosine"
            if of_all and figure.value is not None and figure.note:
                text = f"{text} ({figure.note})"
            yield f"{report.name}: {short_name(name)}", text
        if (self.scoring.card_dir or of_all) and report.threshold:
            text = "n/a ({note})"
            if report.threshold["cosine"] is not None:
                text = "{cosine:.5f}, squared distance {squared_l2:.5f}"
            text = text.format(**report.threshold)
            yield f"{report.name}: cosine threshold at {report.rate}", text
        yield from _rows_of_people(report)
        for name, count in report.counts.items():
            yield f"{report.name}: {name.replace('pictures', 'images')}", count


def _rows_of_people(report):
    """Yields table rows on people of the training set and on groups."""
    if report.leaks:
        text = "{found} of {identities} (estimate of all: {estimate:.0f})"
        text = text.format(**report.leaks)
        yield f"{report.name}: identities that are probably training classes", text
    for name, value in report.leaks.get("figures", {}).items():
        yield f"{report.name} without them: {short_name(name)}", f"{value:.5f}"
    for error, found in report.groups.items():
        for group, one in found["groups"].items():
            text = "n/a ({note})" if one["value"] is None else "{value:.5f}"
            yield f"{report.name}: {error.upper()} of {group}", text.format(**one)


def _evaluate_model(evaluation, settings, parts, joined):
    """Evaluates a trained model on verification sets, the test split and lists.

    Returns:
        The path of the model's checkpoint.
    """
    with_head = TEST_SPLIT in settings.evaluation.val_targets
    settings = settings.replace(with_test=True)
    loaded = trained.load(settings, with_head, parts, joined.strategy)
    model, settings = loaded.model, loaded.settings
    model.trainer.group, model.trainer.votes = joined.group, joined.votes
    if evaluation.only_lists:
        settings = settings.replace(val_targets=())
    test = data.load_test(settings)
    facts = {"examples": bool(settings.scoring.card_dir)}
    content = manifest.read(loaded.checkpoint)
    training_data = TrainingData(settings, content["state"])
    if settings.scoring.card_dir and settings.scoring.card_duplicates:
        if weight := content["arrays"].get("weight"):
            names = [part["file"] for part in weight["parts"]]
            reader.verify(loaded.checkpoint, content, names)
            evaluation.class_rows = StoredRows(loaded.checkpoint, weight)
    if test is not None:
        training_data.require_labels()
        # The labels of class folders depend on the names of all of them.
        named = hasattr(test.source, "class_names")
        if named and (reason := training_data.class_names()[1]):
            logging.warning("The labels of the test split may be wrong: %s", reason)
        facts = effects.data_facts(test.source.used_fields)
    effects.log_unused(settings, facts)
    if test is not None:
        ranks, labels = closed_set.ranks(model, test)
        evaluation.add(set_report.of_classes("test", ranks, labels, evaluation.options))
    pairs = data.load_pairs(settings, parts.pairs)
    evaluation.add_sets(model.embed, pairs, of_model(model, settings))
    if settings.scoring.card_dir:
        evaluation.add_origins(loaded, training_data)
    return loaded.checkpoint


def _evaluate_export(evaluation, settings):
    """Evaluates an export or an ONNX file; returns table rows."""
    targets = () if evaluation.only_lists else settings.evaluation.val_targets
    rule = "The test split needs class weights, which an export does not have"
    require(TEST_SPLIT not in targets, rule, val_targets=",".join(targets))
    model = open_model(settings.embedding.saved_model)
    frame, shape = model.frame, (3, *model.frame.image_size)
    settings = settings.replace(with_test=True, val_targets=targets, image_shape=shape)
    settings = settings.replace(preprocessing_name=frame.name)
    pairs, source = data.load_pairs(settings), of_export(model, settings)
    evaluation.add_sets(model.embed, pairs, source)
    evaluation.model = {"saved_model": model.path, "sha256": model.fingerprint}
    return [("model", model.path), *evaluation.write()]


def _read(paths, folder, row):
    """Returns an image's bytes; None if its name isn't that of a file in the folder.

    Who made the list can make any file the worst error, and cards are published.
    """
    place, inside = (os.path.realpath(files.canonical(x)) for x in (paths[row], folder))
    is_inside = place.startswith(os.path.join(inside, ""))
    with contextlib.suppress(*NO_FILE, ValueError):
        # Names on other stores look like relative ones.
        if is_inside and files.is_local(paths[row]) == files.is_local(folder):
            return read_image(paths[row])
    return None
