"""Counting all pairs of embeddings, next to the bare matrix product.

Simulated embeddings are counted, and multiplied without counting, by turns. The last
line printed is one JSON object; benchmarks/README.md says what its figures mean.

    python -m benchmarks.all_pairs                         # 200,000 rows, and 20,000
"""

import numpy as np

from benchmarks import children, machine, options
from plsc_tf.flags.option import OptionGroup, option

# The rows of issue 24: MFR-Ongoing's multi-racial set.
MFR = 1_624_305
# Rows that are simulated and multiplied at a time, and parts by turns.
PART, BLOCK, SHARDS = 2048, 16384, 8


class AllPairsCase(OptionGroup):
    """Embeddings, and what to do with them."""

    rows: int = option(200_000, "number of embeddings", lower=100)
    size: int = option(512, "length of the embeddings", lower=1)
    groups: int = option(4, "number of groups", lower=1)
    checked: int = option(20_000, "rows to compare with brute force", lower=0)
    seed: int = option(0, "random seed")
    folder: str = option("", "folder for the embeddings; empty: the temporary folder")


def main(case):
    """Measures one case and prints it; returns 1 if a promise is broken."""
    needed = 1.1 * 4 * case.rows * case.size
    with (
        machine.scratch(
            "all_pairs", case.folder, needed, f"rows={case.rows}"
        ) as folder,
        machine.report(case) as figures,
    ):
        if case.checked:
            figures["checked"] = children.call(check, case, folder)
        figures |= children.call(measure, case, folder)
    equal = not case.checked or figures["checked"]["wrong_pairs_float32"] == 0
    return int(not equal or figures["ratio_cpu"] < 0.8)  # noqa: PLR2004 - the promise


def simulate(case, count, path):
    """Writes rows around people's centers, seven each; returns people and groups."""
    rng, shape = np.random.default_rng(case.seed), (count, case.size)
    people = rng.permutation(np.arange(count) // 7)
    centers = rng.normal(size=(people.max() + 1, case.size)).astype(np.float32)
    rows = np.lib.format.open_memmap(path, "w+", np.float32, shape)
    for start in range(0, count, BLOCK):
        own = centers[people[start : start + BLOCK]]
        rows[start : start + BLOCK] = own + rng.normal(size=own.shape)
    return people, np.arange(people.max() + 1) % case.groups


def check(case, folder):
    """Compares the counts at thresholds with brute force in float32 and float64."""
    from plsc_tf.evaluation import all_pairs, roc

    people, groups = simulate(case, case.checked, f"{folder}/checked.npy")
    rows = np.load(f"{folder}/checked.npy")
    counter = all_pairs.PairCounter(rows, people, groups)
    counter.run(f"{folder}/counts.npy")
    counts = counter.load(f"{folder}/counts.npy")[0].sum(axis=0)
    curve, rates = all_pairs.curve(counts), [10.0**-power for power in range(1, 9)]
    rates = [rate for rate in rates if roc.supports(rate, curve.num_different)]
    cosines = [1 - curve.threshold(r) / 2 for r in rates]
    ours = np.array([all_pairs.errors(counts, cosine)[0] for cosine in cosines])
    figures, unit = {"rates": rates}, rows.astype(np.float64)
    unit /= np.linalg.norm(unit, axis=1, keepdims=True)
    for dtype in (np.float32, np.float64):
        typed, theirs = unit.astype(dtype), np.zeros_like(ours)
        for row in range(0, len(rows), 1000):
            scores = typed[row : row + 1000] @ typed.T
            later = np.arange(len(rows)) > np.arange(row, row + len(scores))[:, None]
            same = people[row : row + 1000, None] == people
            for place, cosine in enumerate(cosines):
                accepted = scores >= cosine
                theirs[place] += (accepted & later & ~same).sum(), 0
                theirs[place] += 0, (~accepted & later & same).sum()
        wrong = np.abs(ours - theirs)
        figures[f"wrong_pairs_{dtype.__name__}"] = int(wrong.sum())
    figures["pairs"] = len(rows) * (len(rows) - 1) // 2
    return figures


def measure(case, folder):
    """Counts the pairs of a file in shards, and multiplies as many rows by turns."""
    from plsc_tf.evaluation import all_pairs

    path, watch = f"{folder}/faces.npy", machine.Stopwatch()
    people, groups = simulate(case, case.rows, path)
    rows, before = np.load(path, mmap_mode="r"), machine.reset_peak_rss()
    rng = np.random.default_rng(case.seed)
    left, right = (rng.normal(size=(n, case.size)).astype("f") for n in (PART, BLOCK))
    products = int(np.ceil(case.rows**2 / 2 / SHARDS / PART / BLOCK))
    with watch.time("setup"):
        counter = all_pairs.PairCounter(rows, people, groups)
    for shard in range(1, SHARDS + 1):
        with watch.time("count"):
            counter.run(f"{folder}/{shard}.npy", (shard, SHARDS))
        with watch.time("product"):
            for _ in range(products):
                left @ right.T
    peak, (wall, cpu) = (
        machine.peak_rss(),
        [
            {name: sum(times) for name, times in each.items()}
            for each in (watch.seconds, watch.cpu_seconds)
        ],
    )
    pairs, multiplied = (
        case.rows * (case.rows - 1) / 2,
        SHARDS * products * PART * BLOCK,
    )
    return {
        "count_s": wall["count"],
        "pairs_per_s": pairs / wall["count"],
        "products_per_s": multiplied / wall["product"],
        "ratio": pairs / wall["count"] / (multiplied / wall["product"]),
        "ratio_cpu": pairs / cpu["count"] / (multiplied / cpu["product"]),
        "hours_for_mfr": MFR**2 / 2 / pairs * wall["count"] / 3600,
        "setup_s": watch.seconds["setup"][0],
        "peak_rss_gb": peak / machine.GB,
        "rss_before_gb": before / machine.GB,
    }


if __name__ == "__main__":
    options.run(main, AllPairsCase, __doc__)
