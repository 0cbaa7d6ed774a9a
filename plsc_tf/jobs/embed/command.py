"""`python -m plsc_tf.embed`: writes the embeddings and names of images."""

from collections.abc import Iterable, Sequence
from tempfile import TemporaryFile

import numpy as np
from absl import logging

from plsc_tf.data.detection import FaceFinder
from plsc_tf.evaluation.verification import unit
from plsc_tf.jobs import trained, workers
from plsc_tf.jobs.embed import image_list
from plsc_tf.jobs.evaluate.embeddings import of_export, of_model
from plsc_tf.options.settings import Settings
from plsc_tf.progress import Progress
from plsc_tf.requirements import require
from plsc_tf.serving.exported import open_model
from plsc_tf.storage import arrays, files, outputs

# Maximum number of unreadable images to name in the log.
_NAMED = 10


def embed(settings: Settings) -> list[tuple]:
    """Embeds images with a trained or an exported model.

    Args:
        settings: `embedding` names the images and the output; `checkpoint_dir`,
            `model_save_dir` or `saved_model` names the model.

    Returns:
        Table rows.

    Raises:
        FileExistsError: the output already exists.
        FileNotFoundError: the model, folder or list does not exist.
        ImportError: the detector does not exist.
        ValueError: an image cannot be read or has no face, and skip_bad_records is not
            set, or options contradict each other.
    """
    options, server = settings.embedding, settings.server
    rule = "output must name the .npy file to write, as in --output=faces.npy"
    require(options.output, rule, output="''")
    advice = "Each machine needs a part of the list and an output of its own"
    workers.require_one_process(settings, "embed", advice)
    listed = options.images, options.image_dir, options.landmarks
    names, paths, points = image_list.list_images(*listed)
    check_names(names)
    if server.detect:
        points = FaceFinder(server.detect, server.max_megapixels)
    names_path = f"{options.output.removesuffix('.npy')}.txt"
    for path in (options.output, names_path):
        outputs.require_absent(path)
    if options.saved_model:
        model = open_model(options.saved_model, rates=options.min_quality > 0)
        source, row = of_export(model, settings), ("model", model.path)
        rate = model.rate if model.rates else None
    else:
        loaded, rate = trained.load(settings), None
        source = of_model(loaded.model, loaded.settings)
        row = "checkpoint", loaded.checkpoint
    skipped = {} if settings.preprocessing.skip_bad_records else None
    blocks = _embedded(source, rate, options, (names, paths, points), skipped)
    count, size = write_rows(options.output, names_path, blocks)
    table = [
        row,
        ("embeddings", options.output),
        ("names", names_path),
        ("images", f"{count:,}"),
        ("embedding size", size),
        ("image size", "{} x {}".format(*source.image_size)),
        ("mirror images added", "yes" if source.flip else "no"),
        ("aligned by five points", "no" if points is None else "yes"),
        ("qualities", f"in {names_path}" if rate else "no"),
    ]
    counts = {"skipped, unreadable": len(skipped or ())}
    counts["dropped, low quality"] = len(paths) - count - len(skipped or ())
    return table + [(name, f"{count:,}") for name, count in counts.items() if count]


def _embedded(source, rate, options, images, skipped):
    """Yields (lines, embeddings) of the images that are readable and good enough.

    A line has an image's name. With `rate`, a tab and the quality follow.
    """
    names, paths, points = images
    advice = "Replace or remove it, or skip such images: --skip_bad_records."
    batches = source.rows(paths, points, skipped, advice)
    progress = Progress("embedding", len(paths), "images")
    for rows, embeddings, norms in progress.over(batches, lambda batch: len(batch[0])):
        lines = [names[row] for row in rows]
        if rate:
            qualities = rate(norms)
            good = np.flatnonzero(qualities >= options.min_quality)
            lines = [f"{lines[k]}\t{qualities[k]:.4f}" for k in good]
            embeddings = embeddings[good]
        else:  # `evaluation.lists` expects a tab after a name that contains spaces
            lines = [f"{name}\t" if len(name.split()) > 1 else name for name in lines]
        yield lines, unit(embeddings) if options.normalize else embeddings
    for path in list(skipped or ())[:_NAMED]:
        logging.warning("Skipped %s: %s", path, skipped[path])


def write_rows(
    path: str, lines_path: str, blocks: Iterable[tuple[Sequence[str], np.ndarray]]
) -> tuple[int, int]:
    """Writes rows to a .npy file and their lines to a text file, when all are there.

    Rows are appended to a temporary file, next to the output if that is local. It is
    not memory-mapped because a full disk would then kill the process instead of raising
    an error.

    Args:
        path: path of the .npy file.
        lines_path: path of the text file.
        blocks: (lines, rows `[lines, size]`) pairs.

    Returns:
        (number of rows, size).

    Raises:
        FileExistsError: one of the two files already exists.
        ValueError: there are no rows.
    """
    folder, lines, size = files.parent(path), [], 0
    files.make_dirs(folder)
    with TemporaryFile(dir=folder if files.is_local(folder) else None) as file:
        for more, rows in blocks:
            lines += more
            size = rows.shape[1]
            file.write(np.ascontiguousarray(rows, "<f4"))
        require(lines, "None of the images could be read, or is good enough")

        def content():
            yield arrays.npy_header((len(lines), size), "<f4")
            file.seek(0)
            while chunk := file.read(files.CHUNK_BYTES):
                yield chunk

        # The rows may fill the disk, and the names must not remain without them. An
        # existing .npy file means that both are complete.
        temporary = files.temporary_name(path)
        files.write(temporary, content)
        outputs.create(lines_path, "".join(f"{line}\n" for line in lines).encode())
        files.rename(temporary, path)
    return len(lines), size


def check_names(names: Iterable[str]) -> None:
    """Checks that every name can be a line of a list, before any work is done.

    Raises:
        ValueError: a name contains a tab or a newline, or is not valid UTF-8.
    """
    for name in names:
        one_line = len(f"{name}.".splitlines()) == 1 and "\t" not in name
        fits = one_line and name.encode(errors="replace").decode() == name
        rule = f"Rename {name!r}: names must be UTF-8 without tabs and line breaks"
        require(fits, rule)
