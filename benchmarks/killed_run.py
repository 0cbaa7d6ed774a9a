"""One training that is killed and resumed."""

import os
import shutil

import numpy as np

from benchmarks import kill_moments, outcomes


class UnbrokenRun:
    """A training run that is left alone.

    Args:
        start: starts the `Training` in a folder.
        run_dir: the training's folder.

    Attributes:
        outcome: its `Outcome`, once it has been played.
    """

    def __init__(self, start, run_dir):
        self.outcome = None
        self._start = start
        self._run_dir = run_dir

    def play(self):
        """Trains; yields while it waits.

        Raises:
            RuntimeError: with another exit status than 0.
        """
        saved, begins_s = set(), None
        with self._start(self._run_dir) as training:
            while not training.ended():
                yield
                saved.update(kill_moments.checkpoints(self._run_dir))
                if begins_s is None and os.path.isdir(self._run_dir):
                    begins_s = training.age_s
        if training.status:
            raise RuntimeError(
                f"An undisturbed training ended with status {training.status}:\n"
                f"{outcomes.log_end(self._run_dir)}"
            )
        self.outcome = outcomes.Outcome.read(self._run_dir)
        self.outcome.seconds, self.outcome.saves = training.seconds, len(saved)
        self.outcome.begins_s = begins_s


class ComparedRun:
    """A run that is disturbed, and compared with an undisturbed one at its end.

    Args:
        run_dir: the training's folder.
        reference: `Outcome` of an undisturbed run.
        seed: of what happens to it.

    Attributes:
        resumed: whether every process went on from the newest whole checkpoint.
        exact: whether what it left is what the undisturbed run left.
        events: what happened, a list of short phrases.
    """

    def __init__(self, run_dir, reference, seed):
        self.resumed = True
        self.exact = False
        self.events = []
        self._run_dir = run_dir
        self._reference = reference
        self._random = np.random.default_rng(seed)
        self._newest = 0
        self._lines = 0

    def _watch_for(self, training, seconds):
        """Draws a moment of a training and returns what waits for it."""
        moment = kill_moments.draw(
            self._random,
            steps=len(self._reference.losses),
            saves=self._reference.saves,
            seconds=seconds,
        )
        last = max(self._reference.losses)
        return kill_moments.Watch(moment, self._run_dir, last, training)

    def _note_start(self):
        """Notes what a process that starts now will find."""
        self._newest = outcomes.newest_step(self._run_dir)
        self._lines = len(outcomes.lines(self._run_dir))

    def _check_start(self):
        """Looks whether the process that ended began where it should."""
        added = outcomes.lines(self._run_dir)[self._lines :]
        if problem := wrong_start(added, self._newest):
            self.resumed = False
            self.events.append(problem)

    def _where(self, moment, saving):
        """Step and moment of a kill, in words."""
        lines = outcomes.lines(self._run_dir)
        step = lines[-1].split()[0] if lines else "0"
        return f"at step {step} ({moment.kind}{', in a save' if saving else ''})"

    def _compare(self):
        leftovers = [
            name
            for name in os.listdir(self._run_dir)
            if kill_moments.CHECKPOINT.match(name)
            and not kill_moments.CHECKPOINT.fullmatch(name)
        ]
        if leftovers:
            self._fail(f"leftovers {leftovers}")
            return
        found = outcomes.Outcome.read(self._run_dir)
        if problem := self._reference.differs(found):
            self._fail(f"differs in {problem}")
        else:
            self.exact = True
            self.events.append("exact")

    def _fail(self, problem):
        self.events.append(f"NOT EXACT: {problem}; {self._run_dir}")
        self.events.append(f"the end of its log:\n{outcomes.log_end(self._run_dir)}")


class KilledRun(ComparedRun):
    """A run that is killed at random moments and resumed until it has ended.

    Args:
        case: the `KillCase`.
        run_dir: the training's folder.
        reference: `Outcome` of an undisturbed run.
        seed: of the moments.

    Attributes:
        kills: how often it was killed.
        kills_in_saves: how often while a checkpoint was being written.
    """

    def __init__(self, case, run_dir, reference, seed):
        super().__init__(run_dir, reference, seed)
        self.kills = 0
        self.kills_in_saves = 0
        self._case = case
        self._wanted = int(self._random.integers(1, case.most_kills + 1))

    @property
    def well(self):
        """Whether all is as it should be."""
        return self.resumed and self.exact

    def play(self):
        """Trains, kills, resumes and compares; yields while it waits."""
        while True:
            self._note_start()
            with self._case.start(self._run_dir) as training:
                watch = None
                if self.kills < self._wanted:
                    watch = self._watch_for(training, self._reference.seconds)
                while not training.ended():
                    yield
                    if watch and watch.due():
                        training.kill()
            self._check_start()
            if training.killed:
                self._count_kill(watch.moment)
            elif training.status:
                self._fail(f"status {training.status}")
                return
            elif self.kills:
                break
            else:
                # Too fast for the kill: once more from the beginning.
                shutil.rmtree(self._run_dir)
        self._compare()
        if self.well:
            shutil.rmtree(self._run_dir)

    def _count_kill(self, moment):
        self.kills += 1
        saving = bool(kill_moments.unfinished(self._run_dir))
        self.kills_in_saves += saving
        self.events.append(f"killed {self._where(moment, saving)}")


def wrong_start(lines, newest):
    """What is wrong with where a process began; empty: nothing.

    Args:
        lines: those that it added to the losses file.
        newest: step of the newest whole checkpoint before it; 0: there was none.
    """
    first = int(lines[0].split()[0]) if lines else newest + 1
    if first == newest + 1:
        return ""
    return f"BEGAN WITH STEP {first} after a checkpoint of step {newest}"
