"""Options of the small run with everything on."""

import importlib.util

from tests.jobs.tiny_run import TINY

# Those of the installed libraries.
TRACKERS = tuple(name for name in ("mlflow", "wandb") if importlib.util.find_spec(name))
PASSWORD = "open-sesame-17"
OPTIONS = {
    **TINY,
    "tensorboard": True,
    "tracker": TRACKERS,
    "run_report": True,
    "calc_acc": True,
    "with_test": True,
    "fs_ugi": f"joe,{PASSWORD}",
    "log_loss_every_n_iters": 1,
    "save_losses": True,
    "visualdl": True,
    "angles_every_n_iters": 4,
    "images_every_n_iters": 5,
    "profile_every_n_iters": 3,
    "projector": True,
    "check_shape": True,
    "check_content": True,
    "print_model_statistics": True,
    "log_device_placement": True,
    "tf32": True,
}
