"""The error of a group that has lost a worker."""

# Exit status of a process that ends because another worker was lost.
LOST_STATUS = 76
# Exit status of a training that ended, but could not save its last weights (EX_IOERR of
# sysexits.h).
NOT_SAVED_STATUS = 74
# Exit status of all workers when training makes no progress.
STALL_STATUS = 75


class WorkerLostError(RuntimeError):
    """A worker of the group failed, has gone or is silent.

    Attributes:
        index: which worker was lost.
        exit_status: of the workers that end for that reason.
    """

    def __init__(self, message, index, exit_status=LOST_STATUS):
        super().__init__(message)
        self.index = index
        self.exit_status = exit_status


def silence(silence_s):
    """What is said of a worker that is silent."""
    return f"was silent for {silence_s:g} s (stopped, or its machine is gone)"


def describe_loss(names, index, what, activities):
    """One sentence: who was lost, how, and what everybody was doing.

    Args:
        names: what workers are called, in order of index.
        index: who was lost.
        what: what happened to it.
        activities: what each worker said last that it does.
    """
    others = {
        activity: [i for i, other in enumerate(activities) if other == activity]
        for i, activity in enumerate(activities)
        if i != index
    }
    if len(others) == 1:
        elsewhere = next(iter(others))
    else:
        elsewhere = "; ".join(
            f"{activity} ({', '.join(str(i) for i in who if i != index)})"
            for activity, who in others.items()
        )
    return (
        f"{names[index]} {what}. It was last in: {activities[index]}; the others are "
        f"in: {elsewhere}."
    )
