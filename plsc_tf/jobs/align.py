"""`python -m plsc_tf.align`: finds the faces in photographs and cuts them out."""

import collections
import contextlib
import dataclasses
import hashlib
import json
import os
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import tensorflow as tf
from PIL import Image, ImageOps

from plsc_tf.data import contact_sheet, images
from plsc_tf.data.alignment import (
    cut_out,
    find_detector,
    open_photo,
    sharpness,
    transforms,
)
from plsc_tf.jobs.embed import image_list
from plsc_tf.progress import Progress
from plsc_tf.requirements import require
from plsc_tf.storage import files, outputs
from plsc_tf.storage.writer_lock import WriterLock

# Photographs in memory at a time; pixels of a face; photographs of each result on the
# contact sheet.
_BATCH, _SIDE, _SHOWN = 16, 112, 10
# The results of photographs, in the order of the table and the sheet.
_RESULTS = "aligned", "several faces", "no face", "small", "blurred", "unreadable"


def align(settings):
    """Cuts the faces out of photographs, or resumes an earlier call.

    Args:
        settings: the `Settings`. The group `alignment` says which faces, `embedding`
            names the photographs, `conversion` the output.

    Returns:
        The rows of a table.

    Raises:
        FileExistsError: the output exists, and no such call began it.
        FileNotFoundError: the folder, list or landmarks do not exist.
        ImportError: the detector does not exist.
        ValueError: options contradict each other or those of the earlier call.
    """
    options, given = settings.alignment, settings.embedding
    folder = settings.conversion.output_dir.rstrip("/")
    rule = "output_dir must name a local folder for the faces"
    require(folder and files.is_local(folder), rule, output_dir=repr(folder))
    listed = image_list.list_images(given.images, given.image_dir, given.landmarks)
    names, paths, points = listed
    # They would be found as photographs.
    place = os.path.abspath(given.images)
    inside = os.path.commonpath([place, os.path.abspath(folder)]) == place
    require(not inside, "output_dir must not be in the folder of the photographs")
    facts = {**dataclasses.asdict(options), "landmarks": given.landmarks}
    facts["photographs"] = hashlib.sha256(json.dumps(names).encode()).hexdigest()
    report, most = f"{folder}.jsonl", settings.server.max_megapixels
    if not files.exists(report):
        outputs.require_absent(folder, "output_dir")
    with WriterLock("Wait until it ends, or stop it.").acquire(folder):
        done = _begin_report(report, facts)
        aligner = _Aligner(options, folder, most, points)
        if done < len(names):
            _write(report, names, paths, aligner, done)
    return _summarize(report, folder, dict(zip(names, paths, strict=True)), most)


def _begin_report(path, facts):
    """Returns how many photographs the report has; begins it with the facts."""
    if not files.exists(path):
        files.write(path, json.dumps(facts).encode() + b"\n")
    entries = _read_report(path)
    rule = f"{path} is of a call with other photographs or options"
    advice = "Repeat that call, or choose another output_dir"
    require(next(entries, None) == facts, rule, advice)
    return sum(1 for _ in entries)


def _read_report(path):
    """Yields the facts and the entries; removes a last line that is not complete."""
    whole = 0
    with open(path, "r+b") as file:
        for line in file:
            if not line.endswith(b"\n"):
                file.truncate(whole)
                return
            whole += len(line)
            yield json.loads(line)


def _write(report, names, paths, aligner, done):
    """Writes the faces, and a line of the report about each photograph."""
    progress = Progress("aligning", len(names), "photographs")
    progress.add_earlier(done)
    with (
        open(report, "ab") as file,
        ThreadPoolExecutor() as pool,
        contextlib.closing(progress),
    ):
        for start in range(done, len(names), _BATCH):
            batch = slice(start, start + _BATCH)
            photos = list(pool.map(aligner.read, paths[batch]))
            faces = aligner.find(photos, batch)
            entries = pool.map(aligner.cut, names[batch], photos, faces)
            # After a kill, faces without a line here are written again.
            file.writelines(json.dumps(entry).encode() + b"\n" for entry in entries)
            file.flush()
            progress.add(len(photos))


class _Aligner:
    """Reads photographs, finds the faces, and cuts them out.

    Args:
        options: the group `alignment` of the settings.
        folder: folder of the faces.
        most: largest photograph, in megapixels.
        points: `[photographs, 5, 2]`, one face each; None finds the faces.
    """

    def __init__(self, options, folder, most, points):
        self._options, self._folder, self._most = options, folder, most
        self._points = points
        self._detect = find_detector(options.detector) if points is None else None

    def read(self, path):
        """Returns a photograph, or a text that says why it is unreadable."""
        try:
            # Landmarks are those of the stored pixels.
            return open_photo(path, self._most, upright=self._points is None)
        except ValueError as error:
            return str(error)

    def find(self, photos, batch):
        """Returns the points of the faces in each readable photograph of a batch."""
        if self._points is not None:
            return self._points[batch, np.newaxis]
        good = [photo for photo in photos if not isinstance(photo, str)]
        found = list(self._detect(good)) if good else []
        rule = "The detector must return the faces of each photograph"
        require(len(found) == len(good), rule, photographs=len(good), lists=len(found))
        faces = iter(found)
        return [() if isinstance(photo, str) else next(faces) for photo in photos]

    def cut(self, name, photo, points):
        """Writes the faces of a photograph; returns its entry of the report."""
        if isinstance(photo, str):
            return {"image": name, "result": "unreadable", "reason": photo}
        if not len(points):
            return {"image": name, "result": "no face"}
        points = np.asarray(points, np.float64)
        back = transforms(points, (_SIDE, _SIDE))
        # The side, in pixels of the photograph, of the square that becomes the face.
        sides = _SIDE * np.hypot(back[:, 0], back[:, 1])
        away = np.mean(points, axis=1) - np.array(photo.shape[1::-1]) / 2
        central = self._options.faces == "central"
        order = np.argsort(np.linalg.norm(away, axis=1) if central else -sides)
        if self._options.faces != "all":
            order = order[:1]
        faces = []
        for k in order.tolist():
            pixels = cut_out(photo, tf.constant(back[k]), (_SIDE, _SIDE)).numpy()
            face = {"points": points[k].tolist(), "side": sides[k].item()}
            face["sharpness"] = sharpness(pixels)
            if face["side"] < self._options.min_face_size:
                face["dropped"] = "small"
            elif face["sharpness"] < self._options.min_sharpness:
                face["dropped"] = "blurred"
            else:
                face["file"] = _save(self._folder, name, len(faces), pixels)
            faces.append(face)
        result = "several faces" if len(points) > len(order) else "aligned"
        if not any("file" in face for face in faces):
            result = faces[0]["dropped"]
        return {"image": name, "result": result, "faces": faces}


def _save(folder, name, number, pixels):
    """Writes a face; returns its path in the folder, that of the photograph's first."""
    jpeg = name.lower().endswith((".jpg", ".jpeg"))
    if number or not (jpeg or name.lower().endswith(".png")):
        name = f"{name}-{number + 1}{'.jpg' if jpeg else '.png'}"
    options = {"quality": 95, "subsampling": 0} if jpeg else {}
    path = os.path.join(folder, name)
    files.make_dirs(os.path.dirname(path))
    files.replace(path, images.encode(pixels, "JPEG" if jpeg else "PNG", **options))
    return name


def _summarize(report, folder, paths, most):
    """Draws the contact sheet; returns the rows of the table."""
    counts, shown = collections.Counter(), collections.defaultdict(list)
    entries = _read_report(report)
    next(entries)
    for entry in entries:
        result, name = entry["result"], entry["image"]
        written = [face["file"] for face in entry.get("faces", ()) if "file" in face]
        counts[result] += 1
        counts["faces"] += len(written)
        if len(shown[result]) < _SHOWN and result != "unreadable":
            is_plain = result == "aligned"
            path = os.path.join(folder, written[0]) if is_plain else paths[name]
            photo = Image.fromarray(open_photo(path, most))
            shown[result].append(np.asarray(ImageOps.pad(photo, (_SIDE, _SIDE))))
    rows = [("faces", f"{counts['faces']:,} in {folder}"), ("report", report)]
    if pictures := [(result, shown[result]) for result in _RESULTS if shown[result]]:
        contact_sheet.draw(f"{folder}.png", pictures)
        rows.append(("contact sheet", f"{folder}.png"))
    return rows + [(key, f"{counts[key]:,}") for key in _RESULTS if counts[key]]
