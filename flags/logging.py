"""Defines the options for progress, logs and the report of a run."""

from plsc_tf.flags.option import Count, OptionGroup, Positive, option, option_if

_charts = option_if("tensorboard or tracker=tensorboard")
_profiler = option_if("hooks=ProfilerHook")


class Logging(OptionGroup):
    """Options for progress, logs and the report of a run."""

    log_loss_every_n_iters: Positive = option(
        10, "steps between progress lines", applies="hooks=LoggingTensorHook"
    )
    profile_every_n_iters: Count = _profiler(
        0, "steps between profiles for TensorBoard; 0: none (FastNN)"
    )
    profile_at_task: Count = option(
        0,
        "index of the worker that writes profiles; 0: the chief (FastNN)",
        applies="profile_every_n_iters and hooks=ProfilerHook",
    )
    log_device_placement: bool = option(False, "log each operation's device (FastNN)")
    print_model_statistics: bool = option(False, "print layers and variables (FastNN)")
    hooks: tuple[str, ...] = option(
        ("StopAtStepHook", "ProfilerHook", "LoggingTensorHook", "CheckpointSaverHook"),
        "FastNN's four, unless left out, and your own Keras callbacks, module:Callback",
    )
    check_shape: bool = option(False, "print each layer's shapes (Paddle course)")
    check_content: bool = option(False, "print each layer's values (Paddle course)")
    tensorboard: bool = option(True, "write logs for TensorBoard into tensorboard/")
    visualdl: bool = option(False, "write curves for VisualDL into visualdl/")
    tracker: tuple[str, ...] = option(
        (), "send settings, figures and report", choices="wandb mlflow tensorboard"
    )
    angles_every_n_iters: Count = _charts(
        0, "steps between histograms of angles to class centers; 0: none"
    )
    images_every_n_iters: Count = _charts(
        0, "steps between logs of the network's input images; 0: none"
    )
    projector: bool = option(False, "write data for TensorBoard's projector at the end")
    save_losses: bool = option(False, "write each step's exact loss to losses.txt")
    run_report: bool = option(True, "at the end, write loss.png and report.html")
