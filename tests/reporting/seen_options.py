"""Options of the small run with everything on."""

import importlib.util

from tests.jobs.tiny_run import TINY

# Those of the installed libraries.
TRACKERS = tuple(name for name in ("mlflow", "wandb") if importlib.util.find_spec(name))
PASSWORD = "open-sesame-17"
ON = (
    *("tensorboard", "run_report", "calc_acc", "with_test", "save_losses", "visualdl"),
    *("projector", "check_shape", "check_content", "print_model_statistics"),
    *("log_device_placement", "tf32"),
)
OPTIONS = {
    **TINY,
    **dict.fromkeys(ON, True),
    "tracker": TRACKERS,
    "fs_ugi": f"joe,{PASSWORD}",
    "log_loss_every_n_iters": 1,
    "angles_every_n_iters": 4,
    "images_every_n_iters": 5,
    "profile_every_n_iters": 3,
}
