"""`python -m plsc_tf.align`: finds the faces in photographs and cuts them out."""

import collections
import dataclasses
import functools
import hashlib
import json
import os
import posixpath
import re

import numpy as np
from PIL import Image, ImageOps

from plsc_tf.data import contact_sheet, detection, images
from plsc_tf.data.alignment import cut_faces, sharpness
from plsc_tf.data.image_limit import read_image
from plsc_tf.jobs import origins
from plsc_tf.jobs.embed import image_list
from plsc_tf.progress import Progress
from plsc_tf.requirements import require
from plsc_tf.serving.exported import open_model
from plsc_tf.storage import files, local, outputs
from plsc_tf.storage.paths import leads_outside
from plsc_tf.storage.writer_lock import WriterLock

# Pixels of a face; photographs of each result on the contact sheet.
_SIDE, _SHOWN = 112, 10
# The results of photographs, in the order of the table and the sheet.
_RESULTS = "aligned", "several faces", "no face", "small", "blurred", "low quality"
_RESULTS += ("unreadable",)
# The name of a face that does not have that of its photograph, see `_save`.
_FACE = re.compile(r"(.+)-\d+\.(?:jpg|png)", re.DOTALL).fullmatch


def align(settings):
    """Cuts the faces out of photographs, or resumes an earlier call.

    Args:
        settings: the `Settings`. The group `alignment` says which faces, `embedding`
            names the photographs, `conversion` the output.

    Returns:
        The rows of a table.

    Raises:
        FileExistsError: the output exists, and no such call began it.
        FileNotFoundError: the folder, list, landmarks or model do not exist.
        ImportError: the detector does not exist.
        ValueError: options contradict each other or those of the earlier call, or the
            model does not know the quality of images.
    """
    options, given = settings.alignment, settings.embedding
    folder = settings.conversion.output_dir.rstrip("/")
    rule = "output_dir must name a local folder for the faces"
    require(folder and files.is_local(folder), rule, output_dir=repr(folder))
    listed = image_list.list_images(given.images, given.image_dir, given.landmarks)
    names, paths, points = listed
    # A list may come from a stranger, and faces are written under its names.
    wrong = [n for n in names if leads_outside(n) or posixpath.normpath(n) != n]
    rule = "Names in images must be relative, without '..', './' and '//'"
    require(not wrong, rule, names=wrong[:3])
    known = set(names)
    taken = [name for name in names if (face := _FACE(name)) and face[1] in known]
    rule = "A photograph must not have the name of a face of another one. Rename it"
    require(not taken, rule, names=taken[:3])
    # They would be found as photographs.
    place = os.path.abspath(given.images)
    inside = os.path.commonpath([place, os.path.abspath(folder)]) == place
    require(not inside, "output_dir must not be in the folder of the photographs")
    facts = {**dataclasses.asdict(options), "landmarks": given.landmarks}
    facts["points"] = given.landmarks and files.checksum(given.landmarks)
    facts["max_megapixels"] = settings.server.max_megapixels
    model = given.saved_model and open_model(given.saved_model, rates=True)
    facts |= {"model": model and model.fingerprint, "min_quality": given.min_quality}
    facts["folders"] = [given.images, given.image_dir]
    facts["photographs"] = hashlib.sha256(json.dumps(names).encode()).hexdigest()
    report, most = f"{folder}.jsonl", settings.server.max_megapixels
    if not files.exists(report):
        outputs.require_absent(folder, "output_dir")
        outputs.require_absent(f"{folder}.png")
    outputs.require_own(folder)
    finder = detection.FaceFinder(options.detector, most, points, options.min_face_size)
    with WriterLock("Wait until it ends, or stop it.").acquire(folder):
        facts["mark"] = outputs.mark(folder)
        if (done := _begin_report(report, facts)) < len(names):
            cut = functools.partial(_cut, settings, folder, names, model)
            _write(report, finder.map(cut, paths, done), done, len(names))
    places = filter(None, (given.images, given.image_dir))
    origins.write_statement(folder, origins.narrowest(places))
    return _summarize(report, folder, dict(zip(names, paths, strict=True)), most)


def _begin_report(path, facts):
    """Returns how many photographs the report has; begins it with the facts."""
    if not files.exists(path):
        with open(path, "xb") as file:
            file.write(json.dumps(facts).encode() + b"\n")
    outputs.require_own(path)
    entries = _read_report(path)
    rule = f"{path} is of a call with other photographs or options, or a copy"
    advice = "Repeat that call, or choose another output_dir"
    require(next(entries, None) == facts, rule, advice)
    return sum(1 for _ in entries)


def _read_report(path):
    """Yields the facts and the entries; removes a last line that is not complete."""
    whole = 0
    with open(path, "r+b", opener=local.without_links) as file:
        for line in file:
            if not line.endswith(b"\n"):
                if whole:  # else, it is another program's file
                    file.truncate(whole)
                return
            whole += len(line)
            yield json.loads(line)


def _write(report, entries, done, total):
    """Writes a line of the report about each photograph, after its faces."""
    progress = Progress("aligning", total, "photographs", done)
    with open(report, "ab", opener=local.without_links) as file:
        # After a kill, faces without a line here are written again.
        for entry in progress.over(entries):
            file.write(json.dumps(entry).encode() + b"\n")
            file.flush()


def _cut(settings, folder, names, model, index, photo, points):  # noqa: PLR0913
    """Writes the faces of a photograph; returns its entry of the report."""
    options, name, faces = settings.alignment, names[index], []
    if isinstance(photo, str):
        return {"image": name, "result": "unreadable", "reason": photo}
    if not len(points):
        return {"image": name, "result": "no face"}
    most = None if options.faces == "all" else 1
    central, size = options.faces == "central", (_SIDE, _SIDE)
    for one in cut_faces(photo, points, size, central, most):
        side = (one.box[2] - one.box[0]).item()
        face = {"points": one.points.tolist(), "side": side}
        face["sharpness"] = sharpness(one.pixels)
        if model:
            face["quality"] = model.quality_of(one.pixels)
        if side < options.min_face_size:
            face["dropped"] = "small"
        elif face["sharpness"] < options.min_sharpness:
            face["dropped"] = "blurred"
        elif face.get("quality", 1) < settings.embedding.min_quality:
            face["dropped"] = "low quality"
        else:
            face["file"] = _save(folder, name, len(faces), one.pixels)
        faces.append(face)
    result = "several faces" if len(points) > len(faces) else "aligned"
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
            photo = Image.fromarray(detection.open_photo(read_image(path), most))
            shown[result].append(np.asarray(ImageOps.pad(photo, (_SIDE, _SIDE))))
    rows = [("faces", f"{counts['faces']:,} in {folder}"), ("report", report)]
    if pictures := [(result, shown[result]) for result in _RESULTS if shown[result]]:
        contact_sheet.draw(f"{folder}.png", pictures)
        rows.append(("contact sheet", f"{folder}.png"))
    return rows + [(key, f"{counts[key]:,}") for key in _RESULTS if counts[key]]
