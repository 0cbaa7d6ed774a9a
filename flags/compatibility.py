"""Options of FastNN and MindSpore that have no meaning here.

A hyper-parameter file that has them works as it is; the log says of each what takes its
place.
"""

import dataclasses

from plsc_tf.flags.option import OptionGroup, option

_PAISOAR = "PAISoar is not used: all GPUs of a machine train together by themselves"
_TRANSPORT = "TensorFlow chooses how workers talk; see communication"


@dataclasses.dataclass(frozen=True)
class Compatibility(OptionGroup):
    """Accepted, so that files of other systems work; without effect."""

    enable_paisoar: bool = option(
        True,
        "FastNN's distributed runtime (FastNN enable_paisoar, also as its sample file "
        "spells it)",
        aliases=("enable_paisora",),
        saved=False,
        unused=f"{_PAISOAR} (num_replicas)",
    )
    protocol: str = option(
        "grpc",
        "how FastNN's workers talk, grpc or grpc+verbs (FastNN protocol)",
        saved=False,
        unused=_TRANSPORT,
    )
    rdma_driver_config: str = option(
        "",
        "PAISoar's network driver (FastNN rdma_driver_config)",
        saved=False,
        unused=_TRANSPORT,
    )
    communication_policy: str = option(
        "nccl_fullring",
        "PAISoar's way of summing gradients (FastNN communication_policy)",
        saved=False,
        unused="communication=nccl or ring chooses it here",
    )
    tensor_fusion_max_bytes: int = option(
        8388608,
        "bytes of gradients that PAISoar sums at once (FastNN tensor_fusion_max_bytes)",
        lower=0,
        saved=False,
        unused="gradient_bucket_mb chooses it here",
    )
    num_loss_chunks: int = option(
        1,
        "parts that PAISoar cuts the loss into (FastNN num_loss_chunks)",
        lower=1,
        saved=False,
        unused="gradient_accumulation_steps cuts a batch into parts here",
    )
    drop_overflow_update: bool = option(
        True,
        "whether a step that overflows is left out (MindSpore FixedLossScaleManager "
        "drop_overflow_update)",
        saved=False,
        unused="a step that is not finite is never applied; on_nonfinite says what "
        "follows",
    )
    ps_hosts: tuple[str, ...] = option(
        (),
        "parameter servers (FastNN ps_hosts)",
        saved=False,
        unused="there are no parameter servers: each worker holds its share of the "
        "classes",
    )
    inter_op_parallelism_threads: int = option(
        256,
        "operations at a time (FastNN inter_op_parallelism_threads)",
        lower=0,
        saved=False,
        unused="TensorFlow suits it to the machine; TF_NUM_INTEROP_THREADS in the "
        "environment changes it",
    )
    intra_op_parallelism_threads: int = option(
        96,
        "threads of an operation (FastNN intra_op_parallelism_threads)",
        lower=0,
        saved=False,
        unused="TensorFlow suits it to the machine; TF_NUM_INTRAOP_THREADS in the "
        "environment changes it",
    )
