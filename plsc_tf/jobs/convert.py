"""Converts a data set to shards, and verification pairs to a .bin file."""

import dataclasses
import glob
import itertools

import tensorflow as tf

from plsc_tf.data import contact_sheet, load, paths
from plsc_tf.data.conversion import inputs, run
from plsc_tf.data.conversion.shards import MANIFEST
from plsc_tf.data.image_limit import checked
from plsc_tf.data.pairs import load_pairs, write_bin
from plsc_tf.data.readers.base64_text import listed_files
from plsc_tf.data.readers.layouts import DataRequest
from plsc_tf.jobs import origins
from plsc_tf.jobs.builders.data import data_request
from plsc_tf.options import effects
from plsc_tf.requirements import require
from plsc_tf.storage import outputs

_PREVIEWED = 4


def convert(settings):
    """Converts a data set to shards, writes verification pairs, or draws a preview.

    Args:
        settings: the `Settings`. The group `dataset` selects the input, `conversion`
            the output.

    Returns:
        The rows of a table that describes the files written.

    Raises:
        FileExistsError: the output exists and differs.
        FileNotFoundError: the data set does not exist.
        StorageError: the disk is full; after freeing space, repeat the call to resume.
        ValueError: options or records are invalid; the message gives files and
            positions.
    """
    options, rows = settings.conversion, []
    if options.preview:
        rows.append(("preview", _draw_preview(settings)))
        if not (options.output_dir or options.nranks):
            return rows
    if options.pairs:
        return rows + _write_pairs(options, settings.embedding.image_dir)
    plan = _make_plan(settings)
    source, facts = _open_input(settings)
    source.max_megapixels = settings.server.max_megapixels
    effects.log_unused(settings, facts)
    content, existed = run.convert(source, plan)
    place = options.data_dir or origins.place_of(settings.dataset)
    origins.write_statement(plan.output_dir, place, settings.provenance)
    return _table(plan.output_dir, content, existed) + rows


def _write_pairs(options, image_dir):
    """Writes verification pairs to a .bin file; returns the rows of a table."""
    rule = f"Set output_dir, the folder for the .bin file of {options.pairs}"
    require(options.output_dir, rule)
    pairs = load_pairs(options.pairs, image_dir or None)
    path = paths.join(options.output_dir, f"{pairs.name}.bin")
    size = write_bin(path, pairs)
    return [
        ("written", path),
        ("pairs", f"{len(pairs):,}, {int(pairs.same.sum()):,} of the same person"),
        ("images", f"{len(pairs.images):,}, {size / 1e6:,.1f} MB"),
        ("verify with", f"--val_targets={path}"),
    ]


def _make_plan(settings):
    """Returns the `ConversionPlan` that the settings describe."""
    options = settings.conversion
    output_dir = options.output_dir
    if options.nranks and not output_dir:
        output_dir = paths.join(options.data_dir, f"shuffled_{options.nranks}")
    return run.ConversionPlan(
        output_dir,
        output_format="base64" if options.nranks else options.output_format,
        num_shards=options.nranks or options.num_shards,
        pad=bool(options.nranks) or options.pad_shards,
        shuffle=options.shuffle,
        seed=settings.training.seed,
        memory_mb=options.memory_mb,
    )


def _open_input(settings):
    """Returns the input and facts about it; reads whole files as bytes if possible."""
    classes = settings.if_given("num_classes")
    labels = {"labels_offset": settings.dataset.labels_offset, "num_classes": classes}
    facts = effects.data_facts({"labels_offset"})
    name, request = _request(settings)
    if (layout := load.find_layout(name, request)).form:
        return inputs.FilesInput(layout.form, layout.files, **labels), facts
    identity = {"dataset_name": name, **dataclasses.asdict(request)}
    source = load.open_source(name, request)
    facts = effects.data_facts(source.used_fields)
    facts["files"] = not facts.get("uncounted", False)
    return inputs.SourceInput(source, identity), facts


def _draw_preview(settings):
    """Draws a contact sheet of the first images; returns its path."""
    options = settings.conversion
    # It may be a picture of the user's.
    outputs.require_absent(options.preview, "preview")
    source = load.open_source(*_request(settings))
    first = itertools.islice(source.records(), _PREVIEWED)
    most = settings.server.max_megapixels
    images = [checked(tf.convert_to_tensor(record.image), most) for record in first]
    size, seed = settings.preprocessing.image_size, settings.training.seed
    contact_sheet.draw_ops(options.preview, images, image_size=size, seed=seed)
    return options.preview


def _request(settings):
    """Returns the name of the data set and the `DataRequest`."""
    options, changes = settings.conversion, {"held_back": 0.0}
    if options.nranks:
        parts = listed_files(options.data_dir, options.file_list, "data_dir")
        return "base64_text", DataRequest(train_files=map(glob.escape, parts))
    if settings.dataset.dataset_name != "mock":
        changes["num_classes"] = settings.if_given("num_classes")
    request = data_request(settings, options.split, **changes)
    return settings.dataset.dataset_name, request


def _table(output_dir, content, existed):
    shards = content["shards"]
    counts = " or ".join(f"{n:,}" for n in sorted({s["count"] for s in shards}))
    megabytes = sum(shard["bytes"] for shard in shards) / 1e6
    return [
        ("written", f"{output_dir}{' (already done)' if existed else ''}"),
        ("format", content["format"]),
        ("records", f"{content['num_examples']:,}"),
        ("padding", f"{content['padding']:,}"),
        ("shards", f"{len(shards)} of {counts} records, {megabytes:,.1f} MB"),
        ("checksums", paths.join(output_dir, MANIFEST)),
    ]
