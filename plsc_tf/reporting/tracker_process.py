"""Process that passes a run's figures to MLflow or Weights & Biases.

`plsc_tf.reporting.trackers` starts this file as a script, which therefore imports
nothing of plsc_tf. Each line on stdin is a JSON list, a method of a class below and its
arguments; each answer is a JSON object with the method's "value" or its "error".
"""

import contextlib
import json
import os
import re
import signal
import sys

# Seconds for ending a run whose training process no longer exists.
END_LIMIT_S = 30


class MLflow:
    """Logs to the server and experiment of MLflow's environment variables."""

    def start(self, run, folder, params):
        """Starts a run; returns its id.

        Args:
            run: id of the run to continue; None for a new one.
            folder: the run's folder, after which a new run is named.
            params: {name: text}; those that a resume changed become tags, because
                MLflow does not change parameters.
        """
        import mlflow

        self._mlflow = mlflow
        active = mlflow.start_run(run_id=run, run_name=os.path.basename(folder))
        known = {**params, **active.data.params}
        mlflow.log_params({n: v for n, v in known.items() if v == params.get(n)})
        changed = {n: v for n, v in params.items() if known[n] != v}
        mlflow.set_tags({f"resumed/{name}": text for name, text in changed.items()})
        return active.info.run_id

    def log(self, step, values):
        """Logs {name: number} of a step."""
        allowed = {re.sub(r"[^\w. :/-]|\.\.", "_", n): v for n, v in values.items()}
        self._mlflow.log_metrics(allowed, step=step)

    def artifacts(self, kind, folder):
        """Uploads the files of a folder."""
        self._mlflow.log_artifacts(folder)

    def end(self, finished):
        """Ends the run as finished or failed."""
        self._mlflow.end_run("FINISHED" if finished else "FAILED")


class WandB:
    """Logs to the project of W&B's environment variables and login."""

    def start(self, run, folder, params):
        """Starts a run; returns its id.

        Args:
            run, params: as for `MLflow`.
            folder: as for `MLflow`; if it is local, W&B makes its own folder in it.
        """
        import wandb

        # The metadata include the command line, which may contain a password.
        settings = wandb.Settings(console="off", x_disable_meta=True)
        settings.x_stats_pid = os.getppid()  # the training's load, not this process's
        local = folder if os.path.isdir(folder) else None
        names = {"id": run, "name": os.path.basename(folder), "dir": local}
        self._run = wandb.init(**names, resume="allow", settings=settings)
        self._run.config.update(params, allow_val_change=True)
        # W&B's own steps never decrease, so it would drop the steps that are repeated.
        self._run.define_metric("*", step_metric="step")
        return self._run.id

    def log(self, step, values):
        """Logs {name: number} of a step."""
        self._run.log({**values, "step": step})

    def artifacts(self, kind, folder):
        """Uploads the files of a folder as one artifact, <kind>-<id of the run>."""
        self._run.log_artifact(folder, name=f"{kind}-{self._run.id}", type=kind)

    def end(self, finished):
        """Ends the run as finished or failed."""
        self._run.finish(exit_code=0 if finished else 1)


TRACKERS = {"mlflow": MLflow, "wandb": WandB}


def main(tracker):
    """Answers stdin's calls; after "end", the training process kills this one.

    After an error, or if the training process no longer exists, the run ends as failed.
    """
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # for libraries that print
    for line in sys.stdin:
        method, *arguments = json.loads(line)
        try:
            answer = {"value": getattr(tracker, method)(*arguments)}
        except Exception as error:  # noqa: BLE001 - the training process reports it
            answer = {"error": f"{type(error).__name__}: {error}"}
        answers.write(f"{json.dumps(answer)}\n")
        if "error" in answer:
            break
    signal.alarm(END_LIMIT_S)  # libraries may wait for a server forever
    with contextlib.suppress(Exception):
        tracker.end(False)


if __name__ == "__main__":
    main(TRACKERS[sys.argv[1]]())
