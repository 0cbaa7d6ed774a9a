"""A training of several workers that loses one, is started again, and compared."""

import json
import os
import re
import shutil
import signal
import time

from benchmarks import outcomes
from benchmarks.killed_run import POLL_S, KilledRun

# In which all other workers must have ended.
LIMIT_S = 60.0
# In every fifth run, the worker is stopped instead of killed.
STOPPED = 5
_RESTARTED = "Restart 1 of 1."
_ERROR = re.compile(r"^plsc_tf: error: |^[\d:]+ ERROR ")
_BLAMED = re.compile(r"Worker (\d+) \(")
_KILLED = re.compile(r"Worker (\d+) did not end. Killing it.")


class LostWorkerRun(KilledRun):
    """A training run that loses a worker and is started again by its launcher.

    Args:
        case, run_dir, reference, index: of `KilledRun`.

    Attributes:
        figures: those of `KilledRun`, and `ended_in_time`, whether all others ended by
            themselves, in time, with an error that names the lost worker; `stops`,
            whether it was stopped; `of_the_chief`; `longest_s`, the seconds until the
            launcher started all again.
        events: what happened, a list of short phrases.
    """

    def __init__(self, case, run_dir, reference, index):
        super().__init__(case, run_dir, reference, index)
        self._victim = int(self._random.integers(case.num_workers))
        self._stop = index % STOPPED == STOPPED - 1
        self.figures |= {"ended_in_time": False, "stops": self._stop}
        self.figures |= {"of_the_chief": self._victim == 0, "longest_s": 0.0}

    def play(self):
        """Trains, loses the worker and compares."""
        lost = False
        while not lost:
            with self._case.start(self._run_dir, self._stop) as launcher:
                lost = self._lose_worker(launcher)
                while not launcher.ended():
                    time.sleep(POLL_S)
            if launcher.status:
                self._fail(f"status {launcher.status}")
                return
            if not lost:
                # Too fast for the moment: once more from the beginning.
                shutil.rmtree(self._run_dir)
                shutil.rmtree(f"{self._run_dir}.logs")
                os.remove(f"{self._run_dir}.log")
        self._check_start()
        self._compare()

    def _lose_worker(self, launcher):
        """Kills or stops it and watches the others; returns False if it was too late.

        Args:
            launcher: the `Training` of the launcher.
        """
        # The folder is made once all have joined and tried each other.
        while not os.path.isdir(self._run_dir) and not launcher.ended():
            time.sleep(POLL_S)
        moment = self._draw_moment()
        while not moment.due() and not launcher.ended():
            time.sleep(POLL_S)
        workers = worker_processes(launcher.pid)
        complete = max(self._reference.losses) in outcomes.losses(self._run_dir)
        if len(workers) < self._case.num_workers or (self._stop and complete):
            return False
        os.kill(workers[self._victim], signal.SIGSTOP if self._stop else signal.SIGKILL)
        struck_s = time.monotonic()
        how = "stopped" if self._stop else "killed"
        self._note_kill(f"worker {self._victim} {how}", moment)
        while _RESTARTED not in self._log() and not launcher.ended():
            time.sleep(POLL_S)
        self._judge(time.monotonic() - struck_s, complete)
        self._note_start()
        return True

    def _judge(self, seconds, complete):
        """Records how the others ended, and when all were started again."""
        log, problems = self._log(), []
        if _RESTARTED not in log:
            problems.append("they were not started again")
        if seconds > LIMIT_S:
            problems.append(f"it took {seconds:.0f} s")
        killed = set(map(int, _KILLED.findall(log))) - {self._victim}
        problems += [f"the launcher had to kill worker {index}" for index in killed]
        for index in set(range(self._case.num_workers)) - {self._victim}:
            text = outcomes.read(f"{self._run_dir}.logs/worker-{index}.log")
            if problem := wrong_end(text, self._victim, complete):
                problems.append(f"worker {index} {problem}")
        self.figures |= {"ended_in_time": not problems, "longest_s": seconds}
        failure = f"NOT IN TIME: {'; '.join(problems)}; {self._run_dir}"
        self.events.append(failure if problems else f"restarted after {seconds:.1f} s")

    def _log(self):
        return outcomes.read(f"{self._run_dir}.log")


def worker_processes(launcher):
    """The running workers of a launcher: `{index in the cluster: process}`.

    Args:
        launcher: its process.
    """
    found = {}
    for pid in outcomes.read(f"/proc/{launcher}/task/{launcher}/children").split():
        for entry in outcomes.read(f"/proc/{pid}/environ").split("\0"):
            if entry.startswith("TF_CONFIG="):
                config = json.loads(entry.removeprefix("TF_CONFIG="))
                found[config["task"]["index"]] = int(pid)
    return found


def wrong_end(text, victim, complete):
    """What is wrong with how a worker ended when another was lost; empty: nothing.

    Args:
        text: its log, of all attempts.
        victim: index of the lost worker.
        complete: whether all steps had been done then, so that it may have ended well.
    """
    first = text.partition(", attempt 2, ")[0]
    errors = [line for line in first.splitlines() if _ERROR.match(line)]
    if complete and not errors:
        return ""
    blamed = {int(m[1]) for line in errors if (m := _BLAMED.search(line))}
    if blamed == {victim}:
        return ""
    end = "\n".join(first.splitlines()[-5:])
    return f"does not name worker {victim}; its log ends:\n{end}"
