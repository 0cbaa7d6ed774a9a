"""`python -m plsc_tf.embed`: writes the embeddings and names of images."""

from collections.abc import Iterable, Iterator, Sequence
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
from plsc_tf.storage import files, outputs
from plsc_tf.storage.arrays import npy_header

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
    workers.require_one_process(
        settings,
        "embed",
        "Several machines each need their own part of the list and their own output.",
    )
    names, paths, points = image_list.list_images(
        options.images, options.image_dir, options.landmarks
    )
    check_names(names)
    if server.detect:
        points = FaceFinder(server.detect, server.max_megapixels)
    output = RowsFile(options.output)
    load = _exported_model if options.saved_model else _trained_model
    kind, path, source, rate = load(settings)
    skipped = {} if settings.preprocessing.skip_bad_records else None
    with output:
        rows, qualities = _write(output, source, rate, options, paths, points, skipped)
        output.finish([names[row] for row in rows], qualities)
    table = [
        (kind, path),
        ("embeddings", output.path),
        ("names", output.names_path),
        ("images", f"{len(rows):,}"),
        ("embedding size", output.shape[1]),
        ("image size", "{} x {}".format(*source.image_size)),
        ("mirror images added", "yes" if source.flip else "no"),
        ("aligned by five points", "no" if points is None else "yes"),
        ("qualities", f"in {output.names_path}" if rate else "no"),
    ]
    counts = {"skipped, unreadable": len(skipped or ())}
    counts["dropped, low quality"] = len(paths) - len(rows) - len(skipped or ())
    return table + [(name, f"{count:,}") for name, count in counts.items() if count]


def _trained_model(settings):
    """Loads a checkpoint; returns (kind, path, `Pictures`, None)."""
    loaded = trained.load(settings)
    batch_size = settings.evaluation.test_batch_size
    source = of_model(loaded.model, loaded.settings, batch_size)
    return "checkpoint", loaded.checkpoint, source, None


def _exported_model(settings):
    """Loads an exported model; returns (kind, path, `Pictures`, `rate` or None)."""
    options = settings.embedding
    model = open_model(options.saved_model, rates=options.min_quality > 0)
    source = of_export(model, settings)
    return "model", model.path, source, model.rate if model.rates else None


def _write(  # noqa: PLR0913 - all that embed has found out
    output, source, rate, options, paths, points, skipped
):
    """Embeds all images.

    Returns:
        (indices of the images that are readable and good enough, their qualities; []
        without `rate`).
    """
    chosen, qualities = [], []
    advice = "Replace or remove it, or skip such images: --skip_bad_records."
    batches = source.rows(paths, points, skipped, advice)
    progress = Progress("embedding", len(paths), "images")
    over = progress.over(batches, lambda batch: len(batch[0]))
    for rows, embeddings, norms in over:
        if rate:
            found = rate(norms)
            good = found >= options.min_quality
            rows, embeddings = rows[good], embeddings[good]
            qualities += found[good].tolist()
        output.add(unit(embeddings) if options.normalize else embeddings)
        chosen += rows.tolist()
    for path in list(skipped or ())[:_NAMED]:
        logging.warning("Skipped %s: %s", path, skipped[path])
    return chosen, qualities


class RowsFile:
    """Writes float32 `[rows, size]` to a .npy file, and the rows' names to a .txt file.

    Rows are appended to a temporary file, next to the output if that is local. It is
    not memory-mapped because a full disk would then kill the process instead of raising
    an error.

    Args:
        path: path of the .npy file; the .txt file has the same name.

    Attributes:
        path: path of the .npy file.
        names_path: path of the .txt file.
        shape: (rows, size) written so far.

    Raises:
        FileExistsError: one of the two files already exists.
    """

    def __init__(self, path: str):
        self.path = path
        self.names_path = f"{path.removesuffix('.npy')}.txt"
        self.shape = (0, 0)
        for existing in (self.path, self.names_path):
            outputs.require_absent(existing)

    def __enter__(self):
        """Creates the temporary file."""
        folder = files.parent(self.path)
        files.make_dirs(folder)
        self._file = TemporaryFile(dir=folder if files.is_local(folder) else None)
        return self

    def __exit__(self, *error):
        """Removes the temporary file."""
        self._file.close()

    def add(self, rows: np.ndarray) -> None:
        """Appends rows `[n, size]`."""
        self.shape = (self.shape[0] + len(rows), rows.shape[1])
        self._file.write(np.ascontiguousarray(rows, "<f4"))

    def finish(self, names: Sequence[str], qualities: Sequence[float] = ()) -> None:
        """Writes both files, which appear only when they are complete.

        Args:
            names: the rows' names, in order.
            qualities: the images' qualities, which follow their names and a tab.

        Raises:
            ValueError: no rows were added.
        """
        require(self.shape[0], "None of the images could be read, or is good enough")
        # `evaluation.lists` expects a tab after a name that contains spaces.
        lines = [f"{n}\t\n" if len(n.split()) > 1 else f"{n}\n" for n in names]
        if qualities:
            both = zip(names, qualities, strict=True)
            lines = [f"{name}\t{quality:.4f}\n" for name, quality in both]
        # The rows may fill the disk, and the names must not remain without them. An
        # existing .npy file means that both are complete.
        temporary = f"{self.path}.writing-new"
        files.write(temporary, self._content)
        outputs.create(self.names_path, "".join(lines).encode())
        files.rename(temporary, self.path)

    def _content(self) -> Iterator[bytes]:
        yield npy_header(self.shape, "<f4")
        self._file.seek(0)
        while chunk := self._file.read(files.CHUNK_BYTES):
            yield chunk


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
