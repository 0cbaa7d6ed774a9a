"""Checks a data set and writes what the settings ask for."""

import contextlib

from plsc_tf.data import load, paths
from plsc_tf.data.checks import doctor, report
from plsc_tf.data.request import DataRequest
from plsc_tf.options import effects
from plsc_tf.options.settings import ALL
from plsc_tf.progress import Progress
from plsc_tf.storage import files


def check(settings, groups=ALL):
    """Checks the data set of the settings and writes what they ask for.

    Args:
        settings: the `Settings`; `dataset` says what to check, `evaluation` names the
            verification sets, `checking` says where to write.
        groups: the options of the command, see `plsc_tf.options.settings.select`.

    Returns:
        (the `CheckResult`, the rows of a table).

    Raises:
        FileNotFoundError: there is no such data set.
        ValueError: settings that do not go together.
    """
    given = settings.checking
    report.check_outputs(given.report, given.cleaned_list)
    request = _request(settings)
    if given.cleaned_list:
        listing, _ = doctor.open_listing(settings.dataset.dataset_name, request)
        if listing.folder is None:
            raise ValueError(
                "cleaned_list is a list of files, but the pictures of "
                f"{listing.name!r} are no files of their own. Leave it out."
            )
    options = doctor.CheckOptions(
        val_targets=_targets(settings, request),
        near=given.near_duplicates,
        threads=given.check_threads,
    )
    with contextlib.closing(Progress("checking", None, "pictures")) as progress:
        result = doctor.check(
            settings.dataset.dataset_name, request, options, progress.at
        )
    effects.tell(settings, effects.of_data(result.listing.heeds), groups)
    rows = report.rows(result)
    if given.report:
        report.write_report(given.report, result)
        rows.append(("report", given.report))
    if given.cleaned_list:
        count = report.write_cleaned_list(given.cleaned_list, result)
        rows.append(
            (
                "cleaned list",
                f"{given.cleaned_list}: {count:,} pictures below "
                f"{result.listing.folder}",
            )
        )
    return result, rows


def _request(settings):
    """What is asked of the data set; num_classes only where the user gave it."""
    dataset = settings.dataset
    return DataRequest(
        dataset_dir=dataset.dataset_dir,
        split=settings.checking.check_split,
        train_files=dataset.train_files,
        num_classes=settings.if_given("num_classes"),
        labels_offset=dataset.labels_offset,
        min_images_per_class=dataset.min_images_per_class,
    )


def _targets(settings, request):
    """The verification sets; the default ones only where they are."""
    load.find(settings.dataset.dataset_name)
    targets = settings.evaluation.val_targets
    if settings.asked("val_targets"):
        return tuple(target for target in targets if target != "test")
    return tuple(
        target
        for target in targets
        if files.exists(paths.join(request.dataset_dir, f"{target}.bin"))
    )
