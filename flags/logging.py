"""Defines the options for progress, logs and the report of a run."""

from plsc_tf.flags.option import OptionGroup, option


class Logging(OptionGroup):
    """Options for progress, logs and the report of a run."""

    log_loss_every_n_iters: int = option(
        10,
        "steps between two progress lines (FastNN)",
        lower=1,
        applies="hooks=LoggingTensorHook",
    )
    profile_every_n_iters: int = option(
        0,
        "steps between two traces for TensorBoard's profiler; 0: none (FastNN)",
        lower=0,
        applies="hooks=ProfilerHook",
    )
    profile_at_task: int = option(
        0,
        "index of the worker that writes traces; 0: the chief (FastNN)",
        lower=0,
        applies="profile_every_n_iters and hooks=ProfilerHook",
    )
    log_device_placement: bool = option(
        False, "log the device that holds or computes each tensor (FastNN)"
    )
    print_model_statistics: bool = option(
        False, "print tables of the layers and of the trainable variables (FastNN)"
    )
    hooks: tuple[str, ...] = option(
        ("StopAtStepHook", "ProfilerHook", "LoggingTensorHook", "CheckpointSaverHook"),
        "callbacks: FastNN's four by name (leave one out to turn it off), and your "
        "own Keras callbacks by dotted path, my.module:Callback (FastNN)",
    )
    check_shape: bool = option(
        False, "print the shapes of each layer once (Paddle course)"
    )
    check_content: bool = option(
        False, "print the values of each layer once (Paddle course)"
    )
    tensorboard: bool = option(True, "write logs for TensorBoard into tensorboard/")
    visualdl: bool = option(False, "write logs for VisualDL into visualdl/")
    metrics_files: bool = option(
        True, "write metrics.jsonl and metrics.csv, with a row for each progress line"
    )
    angles_every_n_iters: int = option(
        0,
        "steps between two histograms of the angles to class centers; 0: none",
        lower=0,
        applies="tensorboard or visualdl",
    )
    images_every_n_iters: int = option(
        0,
        "steps between two logs of input images, as the network receives them; 0: none",
        lower=0,
        applies="tensorboard or visualdl",
    )
    projector: bool = option(
        False, "at the end, write embeddings and images for TensorBoard's projector"
    )
    save_losses: bool = option(
        False, "write the exact loss of every step into losses.txt"
    )
    run_report: bool = option(True, "at the end, write loss.png and report.html")
