"""Makes shards of a data set, and files of verification pairs."""

import dataclasses
import itertools
import os

from plsc_tf.data import contact_sheet, load, paths
from plsc_tf.data.conversion import run
from plsc_tf.data.conversion.inputs import Base64Input, RecordInput, SourceInput
from plsc_tf.data.conversion.run import Plan
from plsc_tf.data.conversion.verification import write_bin
from plsc_tf.data.pairs import load_pairs
from plsc_tf.data.readers.base64_text import base64_files, listed_files
from plsc_tf.data.request import DataRequest
from plsc_tf.options import effects
from plsc_tf.options.settings import ALL
from plsc_tf.storage import files

_PREVIEWED = 4


def convert(settings, groups=ALL):
    """Makes shards of a data set.

    Args:
        settings: the `Settings`; `dataset` says what to read, `conversion` what to
            write.
        groups: the options of the command, see `plsc_tf.options.settings.select`.

    Returns:
        the rows of a table: what was written.

    Raises:
        FileExistsError: the output is there already and is another one.
        FileNotFoundError: there is no such data set.
        StorageError: the disk is full; the same call goes on once there is room.
        ValueError: options or records are wrong; files and positions are named.
    """
    given, rows = settings.conversion, []
    if given.preview:
        rows.append(("preview", _draw_preview(settings)))
        if not (given.output_dir or given.is_plsc):
            return rows
    if given.pairs:
        return rows + _write_pairs(given)
    plan = _make_plan(settings)
    manifest, already = run.convert(_open_input(settings, groups), plan)
    return _table(plan.output_dir, manifest, already) + rows


def _write_pairs(given):
    """Writes a .bin of verification pairs; returns the rows of a table."""
    if not given.output_dir:
        raise ValueError(f"Give output_dir, the folder for the .bin of {given.pairs}.")
    pairs = load_pairs(given.pairs, given.pairs_dir or None)
    path = paths.join(given.output_dir, f"{pairs.name}.bin")
    size = write_bin(path, pairs)
    return [
        ("written", path),
        ("pairs", f"{len(pairs):,}, {int(pairs.same.sum()):,} of one person"),
        ("pictures", f"{len(pairs.images):,}, {size / 1e6:,.1f} MB"),
        ("verify with", f"--val_targets={path}"),
    ]


def _make_plan(settings):
    """Returns the `Plan` that the settings describe."""
    given = settings.conversion
    shared = {
        "shuffle": given.shuffle,
        "seed": settings.training.seed,
        "memory_mb": given.memory_mb,
    }
    if given.is_plsc:
        default = paths.join(given.data_dir, f"shuffled_{given.nranks}")
        return Plan(
            given.output_dir or default,
            output_format="base64",
            num_shards=given.nranks,
            pad=True,
            **shared,
        )
    return Plan(
        given.output_dir,
        output_format=given.output_format,
        num_shards=given.num_shards,
        pad=given.pad_shards,
        **shared,
    )


def _open_input(settings, groups):
    """Returns what is to be converted, read in the fastest way there is for it."""
    dataset = settings.dataset
    labels = {
        "labels_offset": dataset.labels_offset,
        "num_classes": settings.if_given("num_classes"),
    }
    given = settings.conversion
    facts = effects.of_data({"labels_offset"})
    if given.is_plsc:
        effects.tell(settings, facts, groups)
        return Base64Input(_part_files(given.data_dir, given.file_list), **labels)
    module = load.find(dataset.dataset_name)
    name = module.__name__.removeprefix("plsc_tf.datasets.")
    if name == "base64_text":
        if dataset.train_files:
            files = paths.expand(dataset.train_files, dataset.dataset_dir)
        else:
            files = listed_files(dataset.dataset_dir)
        effects.tell(settings, facts, groups)
        return Base64Input(files, **labels)
    if dataset.train_files and load.takes_records(module):
        files = paths.expand(dataset.train_files, dataset.dataset_dir)
        effects.tell(settings, facts, groups)
        return RecordInput(files, **labels)
    request = _request(settings)
    identity = {"dataset_name": dataset.dataset_name, **dataclasses.asdict(request)}
    source = load.open_source(dataset.dataset_name, request)
    facts = effects.of_data(source.heeds)
    facts["files"] = not facts.get("uncounted", False)
    effects.tell(settings, facts, groups)
    return SourceInput(source, identity)


def _draw_preview(settings):
    """Draws the contact sheet of the first pictures; returns its path."""
    given = settings.conversion
    if given.is_plsc:
        source = base64_files(_part_files(given.data_dir, given.file_list))
    else:
        source = load.open_source(settings.dataset.dataset_name, _request(settings))
    first = itertools.islice(source.records(), _PREVIEWED)
    contact_sheet.draw_ops(
        given.preview,
        [record.image for record in first],
        image_size=settings.preprocessing.image_size,
        seed=settings.training.seed,
    )
    return given.preview


def _request(settings):
    dataset = settings.dataset
    drawn = dataset.dataset_name == "mock"
    return DataRequest(
        dataset_dir=dataset.dataset_dir,
        split=settings.conversion.split,
        train_files=dataset.train_files,
        num_classes=dataset.num_classes if drawn else settings.if_given("num_classes"),
        num_examples=dataset.num_sample_per_epoch if drawn else None,
        image_size=settings.preprocessing.image_size,
        labels_offset=dataset.labels_offset,
        min_images_per_class=dataset.min_images_per_class,
        seed=settings.training.seed,
    )


def _part_files(folder, file_list):
    """The part files that a list names, below their folder.

    The list is looked for in the folder, as in PLSC, then in the working directory.
    """
    paths.require_folder(folder, "data_dir")
    below = file_list if "://" in file_list else paths.join(folder, file_list)
    try:
        names = paths.read_names(below if files.exists(below) else file_list)
    except FileNotFoundError as error:
        raise FileNotFoundError(
            f"There is no file_list {below!r}, nor {file_list!r} in the working "
            f"directory. {paths.found(folder)} It names the part files, one per line."
        ) from error
    return paths.expand(names, folder, "file_list")


def _table(output_dir, manifest, already):
    labels, shards = manifest["labels"], manifest["shards"]
    counts = sorted({shard["count"] for shard in shards})
    per_class = labels["images_per_class"]
    return [
        ("written", f"{output_dir}{' (already done)' if already else ''}"),
        ("format", manifest["format"]),
        ("records", f"{manifest['num_examples']:,}"),
        ("padding", f"{manifest['padding']:,}"),
        (
            "shards",
            f"{len(shards)} of {' or '.join(f'{count:,}' for count in counts)} "
            f"records, {sum(shard['bytes'] for shard in shards) / 1e6:,.1f} MB",
        ),
        (
            "classes",
            f"{labels['classes_with_images']:,} with images, labels "
            f"{labels['smallest']} ... {labels['largest']}",
        ),
        (
            "images per class",
            f"{per_class['smallest']:,} ... {per_class['largest']:,}, median "
            f"{per_class['median']:g}",
        ),
        ("checksums", os.path.join(output_dir, "manifest.json")),
    ]
