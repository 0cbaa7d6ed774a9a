"""`python -m plsc_tf.evaluate`: all that the settings ask for, in one table."""

import functools
import os
import re

from absl import logging

from plsc_tf.data import load as data_load
from plsc_tf.evaluation import card, closed_set, names, reports
from plsc_tf.evaluation.bootstrap import Resampling
from plsc_tf.evaluation.verification import score_pairs
from plsc_tf.jobs import trained, workers
from plsc_tf.jobs.builders import preprocessing, recipe
from plsc_tf.jobs.evaluate import protocols, provenance, worst
from plsc_tf.jobs.evaluate.embeddings import Pictures, Saved
from plsc_tf.jobs.parts import NONE
from plsc_tf.options import effects
from plsc_tf.parallel import cluster as clusters
from plsc_tf.storage import files


def evaluate(settings, parts=NONE):
    """Evaluates a trained model or saved embeddings.

    Writes the card and the charts where the settings say. The workers of a cluster
    share the embedding; all else is the chief's.

    Args:
        settings: `checkpoint_dir` or `model_save_dir` name the model, `scoring` what
            to compare beside `val_targets`.
        parts: the `Parts` of the training, where its backbone was given in Python;
            its pairs stand in the place of `val_targets`.

    Returns:
        Rows of a table; None on the workers of a cluster that are not its chief.

    Raises:
        FileNotFoundError: a checkpoint, a list or a set is not there.
        ValueError: settings that do not go together, or files that are not what they
            should be.
    """
    asked = settings.scoring
    _check(settings)
    if asked.embeddings:
        if clusters.resolve(settings.cluster, os.environ) is not None:
            raise ValueError(
                "Saved embeddings are compared by one process: leave the launcher out."
            )
        return _finish(settings, _OfEmbeddings(settings))
    with workers.joined(settings) as joined:
        rows = None
        if joined.group.is_chief:
            rows = _finish(settings, _OfModel(settings, parts, joined))
        else:
            _OfModel(settings.replace(card_dir="", plot_dir=""), parts, joined)
        joined.group.gather("the chief has finished", None)
        return rows


def _check(settings):
    """Errors that need no model to be found."""
    asked, targets = settings.scoring, settings.evaluation.val_targets
    if asked.embeddings and targets and settings.asked("val_targets"):
        raise ValueError(
            "Saved embeddings hold no pictures: give pair_lists instead of "
            f"val_targets. Received: val_targets={','.join(targets)}."
        )
    if bool(asked.gallery) != bool(asked.probes):
        raise ValueError(
            "gallery and probes go together: who is known and who is looked for. "
            f"Received: gallery={asked.gallery!r}, probes={asked.probes!r}."
        )
    lists = asked.has_lists
    if asked.embeddings and not lists:
        raise ValueError(
            "Saved embeddings are compared by pair_lists, template_dirs, tinyface_dir, "
            "or gallery and probes. Received: none of them."
        )
    if asked.embedding_names and not asked.embeddings:
        raise ValueError(
            "embedding_names names the rows of embeddings. Received: embeddings=''."
        )
    _check_files(asked)


def _check_files(asked):
    for path in (*asked.pair_lists, asked.gallery, asked.probes):
        if path and not files.exists(path):
            raise FileNotFoundError(f"There is no list {path!r}.")
    for part in protocols.TINYFACE if asked.tinyface_dir else ():
        if not files.is_dir(files.join(asked.tinyface_dir, part)):
            raise FileNotFoundError(
                f"tinyface_dir expects {', '.join(protocols.TINYFACE)} in the folder. "
                f"Received: tinyface_dir={asked.tinyface_dir!r}, without {part}."
            )
    for path in asked.template_dirs:
        if not files.is_dir(files.join(path, "meta")):
            raise FileNotFoundError(
                f"template_dirs expects folders with meta/ in them. Received: {path!r}."
            )


class _Evaluation:
    """Collects the reports of all sets that are asked for."""

    def __init__(self, settings):
        asked = settings.scoring
        samples = asked.bootstrap_samples if asked.card_dir else 0
        self.resampling = Resampling(samples, settings.training.seed)
        self.options = reports.Options(self.resampling, asked.card_far)
        self.fingerprints = provenance.Fingerprints()
        self.head_rows, self.reports = [], []
        self.model, self.data = {}, {}

    def add(self, report):
        """Adds a report; its name must be its own."""
        taken = [one.name for one in self.reports]
        if report.name in taken:
            report.name = f"{report.name} {taken.count(report.name) + 1}"
        self.reports.append(report)

    def protocols(self, settings, source, with_fingerprints):
        """Runs what is given as lists."""
        asked = settings.scoring
        for path in asked.pair_lists:
            folder = asked.picture_dir or files.parent(path)
            report, listed, left, right, scores = protocols.pair_list(
                path, source, folder, self.options
            )
            self.add(report)
            if asked.card_dir:
                located = [files.join(folder, name) for name in listed]
                read = functools.partial(_read, located)
                if with_fingerprints:
                    self.fingerprints.add(report.name, map(files.read, located), listed)
                worst.add(report, scores, left, right, listed.__getitem__, read)
        for folder in asked.template_dirs:
            for report in protocols.templates(
                folder, source, self.options, asked.detector_scores
            ):
                self.add(report)
        if asked.tinyface_dir:
            self.add(protocols.tinyface(asked.tinyface_dir, source, self.options))
        if asked.gallery:
            self.add(
                protocols.search(
                    asked.gallery,
                    asked.probes,
                    source,
                    asked.picture_dir,
                    self.options,
                )
            )


class _OfEmbeddings(_Evaluation):
    """Saved embeddings: no model is needed."""

    def __init__(self, settings):
        super().__init__(settings)
        asked = settings.scoring
        source = Saved(asked.embeddings, asked.embedding_names)
        self.head_rows = [("embeddings", asked.embeddings)]
        if asked.card_dir:
            self.model = {
                "embeddings": asked.embeddings,
                "sha256": files.checksum(asked.embeddings)[1],
            }
        self.protocols(settings, source, with_fingerprints=False)


class _OfModel(_Evaluation):
    """A trained model, on verification sets, its own classes, and lists."""

    def __init__(self, settings, parts, joined):
        super().__init__(settings)
        asked = settings.scoring
        targets = settings.evaluation.val_targets
        lists = asked.has_lists
        chosen = settings.asked("val_targets")
        settings = settings.replace(with_test=True)
        with_head = recipe.TEST_SPLIT in targets
        found = trained.load(settings, with_head, parts, joined.strategy)
        found.model.trainer.join(joined.group, joined.votes)
        settings = found.settings
        if lists and not chosen:
            settings = settings.replace(val_targets=())
        self.head_rows = [("checkpoint", found.checkpoint)]
        self._test(found.model, settings)
        for name, pairs in recipe.load_pairs(settings, parts.pairs).items():
            self._verify(found.model, settings, name, pairs)
        module = data_load.find(settings.dataset.dataset_name)
        flip = data_load.suitable_preprocessing(module) != "none"
        size = settings.evaluation.test_batch_size
        embed = functools.partial(found.model.embed, batch_size=size)
        source = Pictures(embed, preprocessing.framing(settings), size, flip)
        self.protocols(settings, source, with_fingerprints=True)
        if asked.card_dir:
            self._tell_origins(found, settings)

    def _test(self, model, settings):
        test = recipe.load_test(settings)
        facts = {"examples": bool(settings.scoring.card_dir)}
        if test is not None:
            facts = effects.of_data(test.source.heeds)
        effects.tell(settings, facts)
        if test is not None:
            ranks, labels = closed_set.ranks(model, test)
            self.add(reports.of_classes("test", ranks, labels, self.options))

    def _verify(self, model, settings, name, pairs):
        scores = score_pairs(
            model.embed,
            pairs,
            batch_size=settings.evaluation.test_batch_size,
            image_size=model.image_size,
        )
        listed = pairs.files if pairs.path.endswith(".txt") else ()
        identities = protocols.pair_identities(
            listed, pairs.left, pairs.right, pairs.same
        )
        report = reports.of_pairs(name, scores, identities, self.options)
        if settings.scoring.card_dir:
            report.sha256 = provenance.set_checksum(pairs)
            report.counts["pictures"] = len(pairs.images)
            self.fingerprints.add(name, pairs.images, pairs.files)

            def picture_name(row):
                return worst.short_name(pairs.files[row]) if pairs.files else str(row)

            worst.add(
                report,
                scores,
                pairs.left,
                pairs.right,
                picture_name,
                pairs.images.__getitem__,
            )
        self.add(report)

    def _tell_origins(self, found, settings):
        self.model = provenance.of_model(found)
        self.data = provenance.of_data(found.run)
        shared = self.fingerprints.overlaps(found.run, settings.scoring.card_duplicates)
        for report in self.reports:
            report.duplicates = shared.get(report.name, {})
            for other, one in report.duplicates.items():
                if one.get("same_pixels") and other == "training set":
                    logging.warning(
                        "%d pictures of %s are in the training set: its figures are "
                        "too good.",
                        one["same_pixels"],
                        report.name,
                    )


def _finish(settings, done):
    """Writes what is asked for; returns the table."""
    asked, rows = settings.scoring, [*done.head_rows]
    for report in done.reports:
        rows += _rows(report, with_threshold=bool(asked.card_dir))
    if asked.plot_dir:
        rows.append(("charts", _write_charts(asked.plot_dir, done.reports)))
    if asked.card_dir:
        content = card.build(done.model, done.data, done.reports, done.resampling)
        files.make_dirs(asked.card_dir)
        as_json = files.join(asked.card_dir, "card.json")
        files.replace(as_json, card.to_json(content))
        page = files.join(asked.card_dir, "card.html")
        files.replace(page, card.to_html(content, done.reports))
        rows += [("card", page), ("card as JSON", as_json)]
    return rows


def _read(paths, row):
    """The bytes of an image, None where the names are of no files, as numbers are."""
    path = paths[row]
    return files.read(path) if files.exists(path) and not files.is_dir(path) else None


def _rows(report, with_threshold):
    rows = []
    for name, figure in report.figures.items():
        text = str(figure)
        if name == "best_threshold":
            text = f"{text} as squared distance, {figure.as_cosine()} as cosine"
        rows.append((f"{report.name}: {names.short(name)}", text))
    if with_threshold and report.threshold:
        rate = report.threshold.get("far", report.threshold.get("fpir"))
        kind = "FAR" if "far" in report.threshold else "FPIR"
        text = f"n/a ({report.threshold.get('note', '')})"
        if report.threshold["cosine"] is not None:
            text = "{cosine:.5f}, squared distance {squared_l2:.5f}"
            text = text.format(**report.threshold)
        what = f"cosine threshold at {kind}={rate:g}"
        rows.append((f"{report.name}: {what}", text))
    return rows + [(f"{report.name}: {what}", n) for what, n in report.counts.items()]


def _write_charts(folder, written):
    files.make_dirs(folder)
    for report in written:
        for kind, chart in zip(report.curves, report.charts, strict=True):
            name = re.sub(r"[^\w.-]", "_", f"{report.name}_{kind}.svg")
            files.replace(files.join(folder, name), chart.svg().encode())
    return folder
