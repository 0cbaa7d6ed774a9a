"""Lists, chooses and removes the checkpoints in a run's folder."""

import functools
import os
import re
from typing import Any

from absl import logging

from plsc_tf.checkpoints import manifest, reader, writer
from plsc_tf.checkpoints.manifest import DamagedCheckpointError
from plsc_tf.parallel.group import SingleWorker
from plsc_tf.requirements import require
from plsc_tf.storage import files, local, writer_lock
from plsc_tf.storage.paths import WRITING, local_path

NAMES = re.compile(r"\d+|step_\d+")
REMOVING = ".removing"
# Remains of an interrupted save or removal.
INTERRUPTED = re.compile(
    rf"({NAMES.pattern})({re.escape(WRITING)}\w+|{re.escape(REMOVING)})"
)
DAMAGED = ".damaged"
# What is not a checkpoint, or not any longer.
REMAINS = (f"*{WRITING}*", f"*{REMOVING}", f"*{DAMAGED}-*", writer_lock.PATTERN)
# A file in PLSC's checkpoints, whose folders are also named 0, 1, ….
PLSC_META = "meta.json"


def find_all(directory: str) -> list[tuple[int, str]]:
    """Returns the checkpoints in a run's folder: [(global step, path)], oldest first.

    Of two checkpoints at the same global step, the one of the finished epoch comes
    last. Only the manifests are read; checkpoints with an unreadable manifest are
    omitted.

    Args:
        directory: the run's folder; doesn't need to exist.

    Raises:
        OSError: the folder cannot be reached; it is never treated as empty.
    """
    return _look(directory)[0]


def is_run(directory: str) -> bool:
    """Returns whether a folder contains checkpoints, which may be damaged."""
    checkpoints, problems = _look(directory)
    names = (files.join(problem.path, manifest.NAME) for problem in problems)
    return bool(checkpoints) or any(map(files.exists, names))


def newest(
    directory: str, *, on_damaged: str = "stop", group: Any = None
) -> str | None:
    """Returns the newest intact checkpoint of a run.

    Args:
        directory: the run's folder; doesn't need to exist.
        on_damaged: "stop", or "previous" to rename damaged checkpoints and use the
            newest intact one.
        group: the `Group` of workers, all of which must call this function, or None in
            a single process. The chief checks the files.

    Returns:
        the checkpoint's path, or None if there is no checkpoint.

    Raises:
        DamagedCheckpointError: with "stop", the newest checkpoint is damaged; the
            message names the file and the newest intact checkpoint. With either value,
            all checkpoints are damaged.
    """
    group = group or SingleWorker()
    choose = functools.partial(_newest, directory, on_damaged)
    function = choose if group.is_chief else None
    return writer.agree(group, "choose a checkpoint", function)[0]


def _newest(directory, on_damaged):
    checkpoints, problems = _look(directory)
    for _, intact in reversed(checkpoints):
        try:
            content = manifest.read(intact)
            _check_name(intact, content)
            reader.verify(intact, content)
            break
        except DamagedCheckpointError as error:
            problems.append(error)
    else:
        intact = None
    # If all were renamed, the next start would find an empty folder and start over.
    if problems and (on_damaged == "stop" or intact is None):
        raise _advice(problems, intact)
    for problem in problems:
        aside = _set_aside(problem.path)
        logging.warning("%s It was renamed to %s, not deleted.", problem, aside)
    return intact


def resolve(path: str) -> str:
    """Returns a checkpoint folder unchanged; for a run's folder, its newest checkpoint.

    Raises:
        DamagedCheckpointError: the folder contains only damaged checkpoints.
        FileNotFoundError: the path is neither.
        ValueError: the path is both; or see `files.prepare`.
        StorageError: see `files.prepare`.
    """
    files.prepare(path)
    names = files.list_dir(path) if files.is_dir(path) else []
    if manifest.NAME in names and not any(map(NAMES.fullmatch, names)):
        return path
    checkpoints, problems = _look(path)
    if problems and not checkpoints:
        raise problems[0]
    for problem in problems:
        logging.warning("%s The newest of the others is used.", problem)
    if not checkpoints:
        raise FileNotFoundError(
            f"checkpoint_dir '{path}' is not a checkpoint (it has no {manifest.NAME}) "
            "and contains none. Set it to the model_save_dir of a run, which contains "
            "checkpoints such as 0, 1, … or step_1000, or to one of these."
        )
    return checkpoints[-1][1]


def prune(directory: str, keep: int, run: str | None = None) -> None:
    """Removes all but the newest `keep` checkpoints of a run, and its best one.

    If the newest contain only weights, the newest that training can resume from is
    kept, too.

    Args:
        directory: the run's folder.
        keep: number of checkpoints to keep; 0 or less keeps all.
        run: the run's name, as stored in the checkpoints' states; other runs'
            checkpoints are kept.
    """
    paths = [path for _, path in find_all(directory)] if keep > 0 else []
    own, resumable = {}, []
    for path in paths:
        content = manifest.read(path)
        state = content["state"]
        if state.get("run") == run:  # a state may take much memory
            own[path] = (state.get("best") or {}).get("epoch")
            if content["kind"] == "training":
                resumable.append(path)
    bests = [best for best in own.values() if best is not None]
    # If the best epoch could not be saved, the best one before it is kept.
    kept = [path for best in bests for path in own if files.name(path) == str(best)]
    for path in list(own)[:-keep]:
        if path not in kept[-1:] + resumable[-1:]:
            remove(path)
            logging.info("Removed the old checkpoint %s", path)


def remove(path: str) -> None:
    """Removes a checkpoint.

    If the removal is interrupted, the remains cannot be mistaken for a checkpoint.
    """
    if files.atomic_rename(path):
        before, path = path, f"{path}{REMOVING}"
        files.rename(before, path)
    else:
        files.remove(files.join(path, manifest.NAME))
    files.remove_tree(path)


def sweep(directory: str) -> None:
    """Removes the remains of interrupted saves and removals from a run's folder."""
    if not files.is_dir(directory):
        return
    for name in files.list_dir(directory):
        path = files.join(directory, name)
        # Where a rename is not atomic, a save has its final name from the beginning.
        if INTERRUPTED.fullmatch(name) or (
            NAMES.fullmatch(name)
            and not files.atomic_rename(path)
            and files.is_dir(files.join(path, "rows"))
            and not files.exists(files.join(path, manifest.NAME))
        ):
            logging.info("Removing the incomplete %s of %s", name, directory)
            files.remove_tree(path)


def _look(directory):
    """Returns ([(global step, path)], oldest first; errors of damaged checkpoints)."""
    if not files.is_dir(directory):
        return [], []
    listed = files.list_dir(directory)
    # Otherwise, training and export could use different checkpoints.
    rule = f"A run is not a checkpoint: remove {manifest.NAME} from {directory}"
    require(manifest.NAME not in listed, rule)
    places, problems, seen = [], [], set()
    # A large manifest could be read once for each of many links. These come last.
    paths = (files.join(directory, name) for name in listed if NAMES.fullmatch(name))
    found = [(path, files.join(path, manifest.NAME)) for path in paths]
    for path, file in sorted(found, key=lambda pair: any(map(os.path.islink, pair))):
        version = local.version(local_path(file))
        if version in seen or not files.is_dir(path):
            continue
        seen |= {version} - {None}
        try:
            state = manifest.read(path)["state"]
            places.append((state["global_step"], state.get("epoch", 0), path))
        except FileNotFoundError:
            problem = f"{manifest.NAME} is missing"
            if files.exists(files.join(path, PLSC_META)):
                problem += (
                    f" ({PLSC_META} is PLSC's: python -m plsc_tf.import_checkpoint "
                    "reads such checkpoints, and model_save_dir must be another folder)"
                )
            if files.atomic_rename(path):
                problems.append(DamagedCheckpointError(path, problem))
        except DamagedCheckpointError as error:
            problems.append(error)
    return [(step, path) for step, _, path in sorted(places)], problems


def _check_name(path, content):
    """Raises an error if the state's step or epoch differs from the folder's name."""
    name, state = files.name(path), content["state"]
    if name.startswith("step_"):
        fits = int(name.removeprefix("step_")) == state["global_step"]
    else:
        fits = state.get("epoch") in (None, int(name) + 1)
    if not fits:
        place = f"step {state['global_step']}, epoch {state.get('epoch')}"
        raise DamagedCheckpointError(path, f"its files belong to {place}")


def _advice(problems, intact):
    """Returns the error that stops a run, including advice."""
    listed = "; ".join(error.problem for error in problems[1:])
    first = problems[0]
    advice = "No other checkpoint of this run is intact: --restart starts over"
    if intact is not None:
        advice = f"{intact} is intact: --on_damaged_checkpoint=previous resumes from "
        advice += "it and renames the damaged one"
    also = f" (and in others: {listed})" if listed else ""
    return DamagedCheckpointError(first.path, f"{first.problem}{also}. {advice}")


def _set_aside(path):
    number = 1
    while files.exists(f"{path}{DAMAGED}-{number}"):
        number += 1
    files.rename(path, f"{path}{DAMAGED}-{number}")
    return f"{path}{DAMAGED}-{number}"
