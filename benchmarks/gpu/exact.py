"""Step F: heads and losses compute what the tests' float64 oracle computes."""


def heads(*, losses, samplings, replicas, gpu_mb=8000):
    """Runs cases of the matrix of heads, with TF32 off.

    Two replicas are two logical GPUs on one; without a GPU, logical CPU devices.

    Args:
        losses: names of `tests.conformance.head_case.LOSSES`; empty: all.
        samplings: names of its `SAMPLINGS`.
        replicas: numbers of replicas.
        gpu_mb: megabytes of each logical GPU.

    Raises:
        ArithmeticError: a case differs from the oracle.
    """
    import tensorflow as tf

    from tests.conformance import head_matrix

    tf.config.experimental.enable_tensor_float_32_execution(False)
    gpus = tf.config.list_physical_devices("GPU")
    if gpus:
        logical = tf.config.LogicalDeviceConfiguration(memory_limit=gpu_mb)
        logical = [logical] * max(replicas)
        tf.config.set_logical_device_configuration(gpus[0], logical)
    faults, cases = {}, list(_cases(losses, samplings, replicas))
    for case in cases:
        try:
            head_matrix.check(case)
        except AssertionError as error:
            faults[str(case)] = str(error).strip().splitlines()[:8]
    if faults:
        raise ArithmeticError(f"{len(faults)} of {len(cases)} cases differ: {faults}")
    return {"replicas": str(replicas), "cases": len(cases), "equal": len(cases)}


def _cases(losses, samplings, replicas):
    """Yields cases of the matrix; the optimizers take turns."""
    from tests.conformance import head_case, head_matrix

    number = 0
    for loss in losses or head_case.LOSSES:
        for sampling in samplings:
            if loss in head_case.SMOOTHED and sampling != "all":
                continue
            for count in replicas:
                optimizer = head_matrix.rotate(head_case.OPTIMIZERS, number)
                number += 1
                yield head_case.Case(
                    loss, count, sampling=sampling, optimizer=optimizer, ranks=True
                )
