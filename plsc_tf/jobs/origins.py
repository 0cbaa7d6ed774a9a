"""Where data and models come from, and which use their licenses permit.

An origin is a dict of texts: its "kind" (data set or model) and "name", the "contents"
(digest of the data that was read) and what is stated. A checkpoint lists the origins of
everything that it was made of.
"""

import json
import re
import tomllib
from collections.abc import Iterable, Sequence
from typing import Any

from absl import logging

from plsc_tf.checkpoints import catalog, manifest
from plsc_tf.data import paths
from plsc_tf.jobs.run_report import PASSWORD
from plsc_tf.requirements import prefix_errors, require
from plsc_tf.serving import versions
from plsc_tf.storage import files, zips

NAME = "DATASET.toml"
_KEYS = ("name", "license", "source", "sha256")
_SHOWN = ("kind", *_KEYS, "use")
# From the least to the most restrictive use that licenses permit.
USES = ("commercial", "unknown", "non-commercial")
# SPDX identifiers in lower case; the last is for licenses that SPDX does not list.
_COMMERCIAL = frozenset(
    "0bsd apache-2.0 bsd-2-clause bsd-3-clause cc0-1.0 cc-by-2.0 cc-by-3.0 cc-by-4.0 "
    "cc-by-sa-3.0 cc-by-sa-4.0 cdla-permissive-1.0 cdla-permissive-2.0 isc mit mit-0 "
    "odbl-1.0 odc-by-1.0 pddl-1.0 unlicense zlib licenseref-commercial".split()
)
_LICENSES = {"commercial": "LicenseRef-commercial", "non-commercial": "non-commercial"}
_NOT_COMMERCIAL = re.compile(r"\bnc\b|non[ -]?commercial|research|academic|education")
# A key of many parts takes memory and time that grow with the square of its length.
_MOST_BYTES, _MOST_CHARACTERS = 1 << 13, 1 << 18


def read_statement(place: str, options: Any = None) -> dict[str, str]:
    """Returns what a DATASET.toml and the options state about data or a model.

    Args:
        place: the folder of the data, or a file in the folder of the DATASET.toml. No
            file is read if the place is "" or does not exist.
        options: the option group `provenance`, which overrides the file, or None.

    Raises:
        ValueError: the file is not as described.
    """
    content, path = b"", NAME
    if place and files.exists(place):
        path = files.join(place if files.is_dir(place) else files.parent(place), NAME)
        # The user's own file takes precedence over one that came with the archive.
        if not files.exists(path):
            path = files.join(zips.address(place), NAME)
        content = files.read_limited(path, _MOST_BYTES) if files.exists(path) else b""
    with prefix_errors(f"{path} must be a TOML file", RecursionError):
        stated = tomllib.loads(content.decode())
    stated |= {key: text for key in _KEYS if (text := getattr(options, key, ""))}
    rule = f"{path} may state {', '.join(_KEYS)}, each as a line of text, no password"
    for key, text in stated.items():
        fits = key in _KEYS and isinstance(text, str) and text.isprintable()
        require(fits and not PASSWORD.search(text), rule, key=repr(key))
    return stated


def write_statement(folder: str, place: str, options: Any = None) -> None:
    """Writes what is stated about the data in `place` into the folder of its copy."""
    path, stated = files.join(folder, NAME), read_statement(place, options)
    if stated and not files.exists(path):
        # The JSON of printable text is TOML, too.
        texts = {k: json.dumps(v, ensure_ascii=False) for k, v in stated.items()}
        files.write(path, "".join(f"{k} = {v}\n" for k, v in texts.items()).encode())


def merge(*lists: Iterable[dict]) -> list[dict]:
    """Returns the origins of what was made of several parts, each once.

    Raises:
        ValueError: they are too long for the manifest of a checkpoint.
    """
    found = {json.dumps(one, sort_keys=True): one for part in lists for one in part}
    rule = f"All origins may have {_MOST_CHARACTERS:,} characters together"
    require(sum(map(len, found)) <= _MOST_CHARACTERS, rule)
    return list(found.values())


def use_of(origin: dict) -> str:
    """Returns the use that an origin's license permits, one of `USES`."""
    text = origin.get("license", "").strip().lower()
    if _NOT_COMMERCIAL.search(text):
        return "non-commercial"
    return "commercial" if text in _COMMERCIAL else "unknown"


def facts(origins: Sequence[dict]) -> dict[str, str]:
    """Returns {"permitted_use": what all of them permit, "origins": text} for cards."""
    known = [{**one, "use": use_of(one)} for one in origins]
    texts = [", ".join(f"{k}: {one[k]}" for k in _SHOWN if k in one) for one in known]
    use = max((one["use"] for one in known), key=USES.index, default="unknown")
    return {"permitted_use": use, "origins": "; ".join(texts) or "unknown"}


def checked_facts(settings, origins: Sequence[dict]) -> dict[str, str]:
    """Returns the `facts`, if all origins permit what require_license asks for.

    Raises:
        ValueError: one does not, or is not known to.
    """
    found, wanted = facts(origins), settings.provenance.require_license
    refused = facts([one for one in origins if use_of(one) != wanted])
    rule = f"require_license={wanted}: every origin must be known to permit this use"
    advice = f"State the license in {NAME} beside the data, or with --license"
    require(wanted in ("any", found["permitted_use"]), rule, advice, **refused)
    return found


def of_checkpoint(path: str) -> list[dict]:
    """Returns the origins of a checkpoint; one that lists none is an unknown model."""
    stored = manifest.read(path)["state"].get("origins")
    return merge(stored or [{"kind": "model", "name": files.name(path)}])


def find_exports(path: str) -> dict[int, str]:
    """Returns the exports in a teacher's folder; none if it has a checkpoint.

    An export is a program; a checkpoint must not bring one along.
    """
    if files.exists(files.join(path, manifest.NAME)) or catalog.is_run(path):
        return {}
    models = versions.find_models(path, "teacher")
    # A damaged checkpoint may lack its manifest.
    names = filter(catalog.NAMES.fullmatch, files.list_dir(path))
    return models if {*names} <= {*map(files.name, models.values())} else {}


def of_teacher(path: str) -> list[dict]:
    """Returns the origins of a teacher; an export or a file is a model of its own."""
    files.prepare(path)
    stated, exports = {}, files.is_dir(path) and find_exports(path)
    if exports:
        use = versions.read_card(exports[max(exports)]).get("permitted_use")
        if use in _LICENSES:
            stated["license"] = _LICENSES[use]
    elif files.is_dir(path):
        return of_checkpoint(catalog.resolve(path))
    return [{"kind": "model", "name": files.name(path)} | stated | read_statement(path)]


def of_edit(path: str, class_images: str) -> list[dict]:
    """Returns the origins of a checkpoint and of the added classes' folder, if any."""
    added = {"kind": "data set", "name": files.name(class_images)}
    added |= read_statement(class_images)
    return merge(of_checkpoint(path), [added] if class_images else [])


def place_of(dataset) -> str:
    """Returns the folder of the data, of several the one with the narrowest license.

    Args:
        dataset: the option group `dataset`.
    """
    places = [dataset.dataset_dir]
    if dataset.train_files:
        places = paths.expand(dataset.train_files, dataset.dataset_dir)
        places = {files.parent(path) or "." for path in places}
    return narrowest(places)


def narrowest(places: Iterable[str]) -> str:
    """Returns the place whose statement permits the least; see `read_statement`."""
    return max(places, key=lambda one: USES.index(use_of(read_statement(one))))


def of_run(settings, source, checkpoint: str | None, own: bool) -> list[dict]:
    """Returns and logs the origins of a run: data, what it starts from, and teacher.

    Args:
        settings: the `Settings`.
        source: the `Source` of the training data.
        checkpoint: folder of the checkpoint to resume from, or None.
        own: whether the source was made in Python, so `dataset_dir` does not name it.

    Raises:
        ValueError: they do not permit what `require_license` asks for.
    """
    dataset, contents, before = settings.dataset, source.contents(), []
    place = "" if own or dataset.dataset_name == "mock" else place_of(dataset)
    # The name of a source may be a path, which an export must not publish.
    data = {"kind": "data set", "name": files.name(source.name)}
    data |= read_statement(place, settings.provenance) | {"contents": contents}
    if start := checkpoint or settings.checkpoints.checkpoint_dir:
        before = of_checkpoint(catalog.resolve(start))
    if checkpoint and before and before[0].get("contents") == contents:
        before = before[1:]  # the run's own data may have got a license since
    teacher = settings.distillation.teacher
    found = merge([data], before, of_teacher(teacher) if teacher else [])
    logging.info("Permitted use: %s. %s", *checked_facts(settings, found).values())
    return found
