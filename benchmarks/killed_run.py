"""A training that is killed at random moments, resumed, and compared."""

import os
import shutil
import time

import numpy as np

from benchmarks import outcomes
from benchmarks.kill_moments import Moment

POLL_S = 0.001


def undisturbed(case, run_dir):
    """The `Outcome` of a training that is left alone.

    Args:
        case: the `KillCase`.
        run_dir: the training's folder.

    Raises:
        RuntimeError: it ended with another exit status than 0.
    """
    saved, begun_s = set(), None
    with case.start(run_dir) as training:
        while not training.ended():
            time.sleep(POLL_S)
            saved.update(outcomes.checkpoints(run_dir))
            if begun_s is None and os.path.isdir(run_dir):
                begun_s = time.monotonic()
    if training.status:
        raise RuntimeError(
            f"An undisturbed training ended with status {training.status}:\n"
            f"{outcomes.log_end(run_dir)}"
        )
    outcome = outcomes.Outcome.read(run_dir)
    outcome.seconds, outcome.saves = time.monotonic() - begun_s, len(saved)
    return outcome


class KilledRun:
    """A training that is killed and resumed until it has ended, and then compared.

    Args:
        case: the `KillCase`.
        run_dir: the training's folder, which is removed if all went well.
        reference: `Outcome` of an undisturbed run.
        index: number of the run.

    Attributes:
        figures: `resumed`, whether every process went on from the newest whole
            checkpoint; `exact`, whether what it left is what the undisturbed run left;
            `kills`; `kills_in_saves`, how many of them left an unfinished checkpoint.
        events: what happened, a list of short phrases.
    """

    def __init__(self, case, run_dir, reference, index):
        self.figures = {"resumed": True, "exact": False, "kills": 0}
        self.figures["kills_in_saves"] = 0
        self.events = []
        self._case = case
        self._run_dir = run_dir
        self._reference = reference
        self._random = np.random.default_rng([case.seed, index])
        self._newest = 0
        self._lines = 0

    def play(self):
        """Trains, kills, resumes and compares."""
        wanted, ended = self._random.integers(1, self._case.most_kills + 1), False
        while not ended:
            self._note_start()
            with self._case.start(self._run_dir) as training:
                moment = None
                if self.figures["kills"] < wanted:
                    moment = self._draw_moment()
                while not training.ended():
                    time.sleep(POLL_S)
                    if moment and moment.due():
                        training.kill()
            self._check_start()
            if training.killed:
                self._note_kill("killed", moment)
            elif training.status:
                self._fail(f"status {training.status}")
                return
            elif self.figures["kills"]:
                ended = True
            else:
                # Too fast for the kill: once more from the beginning.
                shutil.rmtree(self._run_dir)
        self._compare()

    def _draw_moment(self):
        return Moment(self._random, self._run_dir, self._reference)

    def _note_start(self):
        """Notes what a process that starts now will find."""
        self._newest = outcomes.newest_step(self._run_dir)
        self._lines = len(outcomes.lines(self._run_dir))

    def _check_start(self):
        """Looks whether the process that ended began where it should."""
        added = outcomes.lines(self._run_dir)[self._lines :]
        first = int(added[0].split()[0]) if added else self._newest + 1
        if first != self._newest + 1:
            self.figures["resumed"] = False
            self.events.append(
                f"BEGAN WITH STEP {first} after a checkpoint of step {self._newest}"
            )

    def _note_kill(self, how, moment):
        saving = bool(outcomes.unfinished(self._run_dir))
        self.figures["kills"] += 1
        self.figures["kills_in_saves"] += saving
        lines = outcomes.lines(self._run_dir)
        step = lines[-1].split()[0] if lines else "0"
        where = f"{moment.kind}{', in a save' if saving else ''}"
        self.events.append(f"{how} at step {step} ({where})")

    def _compare(self):
        if leftovers := outcomes.unfinished(self._run_dir):
            self._fail(f"leftovers {leftovers}")
            return
        found = outcomes.Outcome.read(self._run_dir)
        if problem := self._reference.differs(found):
            self._fail(f"differs in {problem}")
            return
        self.figures["exact"] = True
        self.events.append("exact")
        if all(self.figures[name] for name in self._case.promises):
            shutil.rmtree(self._run_dir)

    def _fail(self, problem):
        self.events.append(f"NOT EXACT: {problem}; {self._run_dir}")
        self.events.append(f"the end of its log:\n{outcomes.log_end(self._run_dir)}")
