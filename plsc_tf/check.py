r"""Checks a data set: labels, pictures, duplicates, leaks into verification sets.

    python -m plsc_tf.check --dataset_name=image_list --dataset_dir=train_data
    python -m plsc_tf.check --dataset_name=ms1m --dataset_dir=train_data \
        --val_targets=lfw,agedb_30 --report=check.json --cleaned_list=cleaned.txt

The exit status is 0 when the set is sound, 1 when there are errors, 2 when it could not
be checked. Nothing of the data set is changed.
"""

import contextlib
import sys

from plsc_tf.options import cli, effects

GROUPS = (
    "checking",
    "dataset",
    "no num_sample_per_epoch",
    "no held_back",
    "val_targets",
)


def main(settings):
    """Checks as the settings say, prints a table and ends with the exit status."""
    try:
        cli.check_dataset_dir(settings)
    except FileNotFoundError as error:
        _give_up(error)
    from plsc_tf.evaluation.report import format_table

    try:
        result, rows = check(settings)
    except _cannot() as error:
        _give_up(error)
    sys.stdout.write(f"\n{format_table(rows)}\n")
    sys.exit(0 if result.sound else 1)


def _give_up(error):
    sys.stderr.write(f"plsc_tf: error: the data set cannot be checked: {error}\n")
    sys.exit(2)


def check(settings):
    """Checks the data set of the settings and writes what they ask for.

    Args:
        settings: the `Settings`; `dataset` says what to check, `evaluation` names the
            verification sets, `checking` says where to write.

    Returns:
        (the `CheckResult`, the rows of a table).

    Raises:
        FileNotFoundError: there is no such data set.
        ValueError: settings that do not go together.
    """
    from plsc_tf.data.checks import doctor, report
    from plsc_tf.progress import Progress

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
    effects.tell(settings, effects.of_data(result.listing.heeds), GROUPS)
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
    from plsc_tf.data.request import DataRequest

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
    from plsc_tf.data import load, paths
    from plsc_tf.storage import files

    load.find(settings.dataset.dataset_name)
    targets = settings.evaluation.val_targets
    if settings.asked("val_targets"):
        return tuple(target for target in targets if target != "test")
    return tuple(
        target
        for target in targets
        if files.exists(paths.join(request.dataset_dir, f"{target}.bin"))
    )


def _cannot():
    """What stands in the way of a check, as opposed to what it finds."""
    import tensorflow as tf

    return ValueError, OSError, tf.errors.OpError


if __name__ == "__main__":
    cli.main(main, groups=GROUPS, doc=__doc__)
