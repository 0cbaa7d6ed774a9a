"""Published figures of the GPUs for which `--dry_run` plans without having one.

The peaks, the bandwidth of the memory and the links are those of NVIDIA's datasheets
(V100, A100, H100 and H200 in their SXM form) and of its Ada whitepaper (RTX 4090).
Peaks are for dense matrices and float32 sums; newer datasheets print twice as much, for
sparse matrices. V100s have no TF32, and compute bfloat16 as float32.
"""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Gpu:
    """Figures of a GPU.

    Attributes:
        name: the name that TensorFlow reports.
        mib: MiB that TensorFlow can allocate: its memory without the CUDA context and
            the 1.0 to 1.8 GiB that TensorFlow leaves to cuDNN, cuBLAS and NCCL's
            buffers (`MinSystemMemory` in its gpu_device.cc).
        float32, tf32, float16, bfloat16: TFLOPS of products with such operands.
        bandwidth: GB/s of the memory.
        link: GB/s in each direction to the other GPUs of the machine.
    """

    name: str
    mib: int
    float32: float
    tf32: float
    float16: float
    bfloat16: float
    bandwidth: float
    link: float


# TensorFlow logs the memory ("Created device ... with 30976 MB memory"): these are the
# values of such logs in public repositories. The L40S's is computed as the L4's: the
# driver's 46068 MiB less TensorFlow's 1536 MiB and 930 MiB for the context. The links
# are PCIe 4.0 x16 for L4, L40S and RTX 4090, and NVLink for the others.
GPUS = {
    "V100-32": Gpu("Tesla V100-SXM2-32GB", 30976, 15.7, 15.7, 125, 15.7, 900, 150),
    "A100-40": Gpu("NVIDIA A100-SXM4-40GB", 38341, 19.5, 156, 312, 312, 1555, 300),
    "A100-80": Gpu("NVIDIA A100-SXM4-80GB", 79188, 19.5, 156, 312, 312, 2039, 300),
    "L4": Gpu("NVIDIA L4", 20581, 30.3, 60, 121, 121, 300, 32),
    "L40S": Gpu("NVIDIA L40S", 43600, 91.6, 183, 362, 362, 864, 32),
    "H100": Gpu("NVIDIA H100 80GB HBM3", 78763, 67, 494, 989, 989, 3350, 450),
    "H200": Gpu("NVIDIA H200", 138533, 67, 494, 989, 989, 4800, 450),
    "RTX4090": Gpu("NVIDIA GeForce RTX 4090", 22100, 82.6, 82.6, 165, 165, 1008, 32),
}
