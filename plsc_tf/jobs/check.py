"""Checks a data set and writes a report and a cleaned list of images."""

import functools

from plsc_tf.data import paths
from plsc_tf.data.checks import check as data_check, listings, report
from plsc_tf.jobs.builders.data import data_request
from plsc_tf.options import effects
from plsc_tf.serving.exported import open_model
from plsc_tf.storage import files


def check(settings):
    """Checks the data set and writes the output files named in the settings.

    Args:
        settings: the `Settings`. The group `dataset` selects the data, `evaluation`
            the verification sets, and `checking` the output files.

    Returns:
        (the `CheckResult`, the rows of a summary table).

    Raises:
        FileNotFoundError: the data set or the model does not exist.
        ValueError: the settings contradict each other, or the model does not know the
            quality of images.
    """
    given = settings.checking
    report.check_output(given.report, "report")
    name, classes = settings.dataset.dataset_name, settings.if_given("num_classes")
    changes = {"num_classes": classes, "num_examples": None, "held_back": 0.0}
    request = data_request(settings, settings.conversion.split, **changes)
    listing = functools.partial(listings.open_listing, name, request)
    report.check_output(given.cleaned_list, "cleaned_list", listing)
    targets = [name for name in settings.evaluation.val_targets if name != "test"]
    if "val_targets" not in settings.given:  # default sets need not exist
        place = functools.partial(paths.join, request.dataset_dir)
        targets = [name for name in targets if files.exists(place(f"{name}.bin"))]
    options = {"near": given.near_duplicates, "judge": _judge(settings.embedding)}
    options["max_megapixels"] = settings.server.max_megapixels
    result = data_check.check(name, request, val_targets=tuple(targets), **options)
    effects.log_unused(settings, effects.data_facts(result.listing.used_fields))
    rows = report.rows(result.report)
    if given.report:
        report.write_report(given.report, result.report)
        rows.append(("report", given.report))
    if given.cleaned_list:
        path, listing = given.cleaned_list, result.listing
        count = report.write_cleaned_list(path, listing, result.table)
        rows.append(("cleaned list", f"{path}: {count:,} images in {listing.folder}"))
    return result, rows


def _judge(options):
    """Returns `judge` of `examine`, or None if no quality is demanded."""
    if not options.min_quality:
        return None
    model = open_model(options.saved_model, rates=True)

    def judge(pixels):
        quality = model.quality_of(pixels)
        return f"quality {quality}" if quality < options.min_quality else ""

    return judge
