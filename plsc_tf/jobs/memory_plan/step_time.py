"""Computes a lower bound of a training step's time on a GPU with published figures."""

from plsc_tf.heads import memory

# Shares of the published figures that real kernels reach at best. Products in float32
# without tensor cores count fully, because Winograd's convolutions multiply less.
TENSOR_CORES, COPIES = 0.5, 0.8
# Share of the backward pass in the backbone's time.
BACKWARD = 2 / 3
ASSUMPTIONS = (
    f"tensor cores reach {TENSOR_CORES:.0%} of their peak, memory and links "
    f"{COPIES:.0%} of their bandwidth; norms, activation functions and additions take "
    "no time of their own; the sum of the gradients hides behind the backward pass; "
    "images are ready; all GPUs are in one machine"
)


def bound(job) -> dict[str, float]:
    """Computes the least seconds of a step.

    Args:
        job: the `plsc_tf.jobs.memory_plan.planner.Job`, with `devices.gpu`.

    Returns:
        dict of seconds: "backbone", "head", "update" of the replicated weights,
        "collectives", "hidden" behind the backward pass, and "step".
    """
    gpu, head, backbone = job.devices.gpu, job.head, job.backbone
    tf32 = job.settings.performance.tf32 is not False

    def seconds(flops, moved, dtype):
        kind = "tf32" if tf32 and dtype == "float32" else dtype
        peak = max(gpu.float32, TENSOR_CORES * getattr(gpu, kind))
        return max(flops / (1e12 * peak), moved / (COPIES * 1e9 * gpu.bandwidth))

    sent = {one.name: one.sent / (COPIES * 1e9 * gpu.link) for one in job.collectives()}
    passes = sum(seconds(*kernel) for kernel in backbone.kernels)
    found = {
        "backbone": head.own_batch / backbone.traced_images * passes,
        "head": seconds(*memory.work(head), job.settings.head.head_dtype),
        # Reads the gradients; reads and writes weights and slots.
        "update": seconds(0, 3 * backbone.weights + 2 * backbone.slots, "float32"),
        "collectives": sum(sent.values()),
    }
    hidden = min(sent["gradients of mirrored weights"], BACKWARD * found["backbone"])
    return {**found, "hidden": hidden, "step": sum(found.values()) - hidden}
