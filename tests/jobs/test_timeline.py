"""What a training asks of TensorFlow's allocator, and what that makes of it."""

import pytest

from plsc_tf.heads import memory
from plsc_tf.heads.memory import HeadLoad
from plsc_tf.jobs.memory_plan import activations, planner, timeline
from plsc_tf.parallel.allocator import MIB, RegionAllocator


def load(**changes):
    return HeadLoad(
        **{
            "num_classes": 1000,
            "embedding_size": 8,
            "replicas": 2,
            "global_batch": 10,
            "row_bytes": 32,
            "slot_bytes": 32,
            **changes,
        }
    )


def test_regions_double_and_stay():
    allocator = RegionAllocator()
    allocator.allocate("a", 3 * MIB)  # one region of 4 MiB, of which 1 is left over
    assert allocator.touched == 3 * MIB
    allocator.allocate("b", 3 * MIB)  # a second one of 4 MiB
    allocator.allocate("c", 5 * MIB)  # and one of 8 MiB
    assert allocator.touched == 11 * MIB
    for key in "abc":
        allocator.release(key)
    # There are 4 + 4 + 8 MiB, but not in one piece: a region of 16 MiB.
    allocator.allocate("d", 9 * MIB)
    assert allocator.touched == 20 * MIB


def test_a_small_tensor_in_its_middle_spoils_a_region():
    allocator = RegionAllocator(first_region=16 * MIB)
    for key in "abc":
        allocator.allocate(key, 4 * MIB)
    allocator.release("a")
    allocator.release("c")
    allocator.allocate("d", 7 * MIB)  # 4 and 8 MiB are free: the second one's beginning
    assert allocator.touched == 15 * MIB
    allocator.release("d")
    allocator.release("b")
    # Free neighbours are one chunk again.
    allocator.allocate("e", 15 * MIB)
    assert allocator.touched == 15 * MIB


def test_a_chunk_is_given_whole_unless_twice_as_large():
    allocator = RegionAllocator(first_region=8 * MIB)
    allocator.allocate("a", 5 * MIB)  # all 8 MiB, of which 5 are written to
    allocator.allocate("b", MIB)
    assert allocator.touched == 6 * MIB
    # Its pages are in the second region, so this one finds no place in the first.
    allocator.release("a")
    allocator.allocate("c", 4 * MIB)
    allocator.allocate("d", 4 * MIB)
    assert allocator.touched == 9 * MIB


def test_small_tensors_are_counted_at_their_most():
    allocator = RegionAllocator()
    allocator.allocate("a", 1000)
    allocator.allocate("b", 2000)
    allocator.release("a")
    allocator.allocate("c", 500)
    assert allocator.touched == 3000


def test_a_renamed_tensor_frees_the_other():
    allocator = RegionAllocator(first_region=8 * MIB)
    allocator.allocate("old", 2 * MIB)
    allocator.allocate("new", 2 * MIB)
    allocator.rename("new", "old")
    allocator.allocate("next", 2 * MIB)  # where the old one was
    assert allocator.touched == 4 * MIB
    allocator.release("old")
    allocator.release("next")
    allocator.allocate("all", 8 * MIB)
    assert allocator.touched == 8 * MIB


def head_only(**changes):
    """A `Backbone` without weights or activations."""
    empty = activations.Activations(bytes=0, operations=0, unknown=0)
    return planner.Backbone(
        **{
            "weights": 0,
            "slots": 0,
            "statistics": 0,
            "variables": (),
            "passes": empty,
            "traced_images": 1,
            "image": 0,
            **changes,
        }
    )


@pytest.mark.parametrize("replicas", [1, 2, 4])
def test_the_fullest_moment_of_a_head_by_hand(replicas):
    # Tiles of 1000 of 3000 classes; 1 MiB of weights, and of products, per tile.
    head = load(
        num_classes=3000 * replicas,
        replicas=replicas,
        embedding_size=1,
        global_batch=replicas,
        row_bytes=1000,
        slot_bytes=1000,
        tile_rows=1000,
        logits_bytes=0,
    )
    found = timeline.fullest(head, head_only(), "CPU", "momentum", 0)
    assert found.live["head weights"] == 3000 * 1000
    assert found.live["head slots"] == 3000 * 1000
    held = memory.held(head)
    # A plain second pass: six tensors of products, the gradient, and three new values.
    assert held["tile"] == 6 * 1000 * 4 * replicas + (3 + 1) * 1000 * 1000
    if replicas == 1:
        assert found.live["tile"] == held["tile"]
    else:  # What one replica frees may be late for the other.
        assert 0.99 * held["tile"] < found.live["tile"] < 1.5 * held["tile"]
    assert found.touched >= sum(found.live.values())


def test_a_head_that_is_gathered_by_rows_is_largest_while_it_is_made():
    head = load(num_classes=200_000, replicas=1, row_bytes=1000, sample_rate=0.1)
    # 200 MB of zeros in one region of 256 MiB and their copy in another, which before
    # held a part of 65,536 rows.
    found = timeline.fullest(head, head_only(), "CPU", "momentum", 0)
    assert found.made == 2 * 200_000 * 1000
    # Of numpy the first part, the next one, and its tensor.
    assert memory.drawn(head) == 3 * 65_536 * 1000
    assert memory.drawn(load(num_classes=3000, replicas=1)) == 3000 * 32


def test_a_gpu_is_one_region():
    head = load(num_classes=100_000, row_bytes=1000, slot_bytes=1000)
    shared = timeline.fullest(head, head_only(), "CPU", "adam", 0)
    own = timeline.fullest(head, head_only(), "GPU", "adam", 10**9)
    assert own.live["head weights"] == shared.live["head weights"] == 50_000_000
    # No holes at the ends of regions; freed tiles leave a few.
    assert sum(own.live.values()) <= own.touched < 1.1 * sum(own.live.values())


def test_slots_move_through_memory_only_where_updates_replace_them():
    weight = 40 * MIB
    backbone = head_only(weights=weight, slots=weight, variables=(weight,))
    head = load(replicas=1)
    moving = timeline.fullest(head, backbone, "CPU", "momentum", 0)
    staying = timeline.fullest(head, backbone, "CPU", "adam", 0)
    assert moving.live["backbone slots"] == staying.live["backbone slots"] == weight
    assert moving.touched > staying.touched
