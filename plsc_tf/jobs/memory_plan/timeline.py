"""What a training asks of the allocator from its start through its first steps.

The head's weights are made, then step follows step: forward pass, head, backward pass,
sum of the gradients, update. What a device holds at its fullest moment, and what the
allocator adds to it, is found by going through that.
"""

import collections
import dataclasses
import itertools
import random

from plsc_tf.heads import memory
from plsc_tf.parallel.allocator import RegionAllocator

# After so many steps hardly any page is touched for the first time.
STEPS = 8
# What runs beside each other takes another order in every step. So many orders are
# gone through, the first of them that of the graph, and the fullest counts.
ORDERS = 5
# In the others so large a share of these tensors is freed late: of a backward pass's,
# where one operation may run beside another, and where replicas do.
LATE = 0.5
BESIDE = ("activations",)
DRIFTING = ("tile", "gradients", "new values")
# More replicas of one process are like so many.
MOST_REPLICAS = 4
# Optimizers whose update hands the memory of the new value to the slot, which so moves
# through the regions from step to step; the others add to their slots in place.
MOVING = {"momentum", "sgd", "rmsprop"}


@dataclasses.dataclass(frozen=True)
class Fullest:
    """A device at its fullest moment.

    Attributes:
        live: `{what: bytes}` of the tensors.
        touched: bytes that the allocator has taken and used, ever.
        made: the same when the weights have just been made.
    """

    live: dict
    touched: int
    made: int


def fullest(load, backbone, kind, optimizer, device_bytes):
    """The `Fullest` of a training.

    Args:
        load: the `HeadLoad`.
        backbone: the `Backbone`.
        kind: "CPU", where all replicas are in one process, or "GPU".
        optimizer: its name.
        device_bytes: of a device.
    """
    replicas = min(load.replicas, MOST_REPLICAS) if kind == "CPU" else 1
    # On a GPU one region is all of its memory.
    regions = {} if kind == "CPU" else {"first_region": device_bytes}
    start = list(_made(load, backbone))
    # Replicas of one process share the sum of their gradients, the first one's.
    steps = [
        list(_step(load, backbone, optimizer, keeps_sum=replica == 0))
        for replica in range(replicas)
    ]
    # One replica's head and update are a chain of operations.
    late = BESIDE if replicas == 1 else (*BESIDE, *DRIFTING)
    runs = []
    for order in range(ORDERS):
        run = _Run(RegionAllocator(**regions), late=late if order else (), seed=order)
        run.start(start[:2], replicas)
        made = run.allocator.touched
        run.start(start[2:], replicas)
        for _ in range(STEPS):
            run.step(steps)
        runs.append(run)
    run = max(runs, key=lambda run: run.allocator.touched)
    live = {what: size // replicas for what, size in run.fullest.items()}
    return Fullest(live, run.allocator.touched // replicas, made // replicas)


class _Run:
    """Goes through the events of all replicas.

    Args:
        allocator: the `RegionAllocator`.
        late: items of which some tensors are freed a little later than they might be,
            as happens when operations run beside each other.
        seed: of which these are.
    """

    def __init__(self, allocator, *, late=(), seed=0):
        self.allocator = allocator
        self.fullest = {}
        self._most = self._now = 0
        self._live = collections.Counter()
        self._sizes = {}
        self._late = late
        self._random = random.Random(seed)
        self._waiting = []

    def start(self, lists, replicas):
        """Lists of events, each of which one replica after the other goes through."""
        for events in lists:
            for replica, event in itertools.product(range(replicas), events):
                self.do(replica, event)

    def step(self, steps):
        """All replicas' events, in turn."""
        for events in itertools.zip_longest(*steps):
            for replica, event in enumerate(events):
                if event is not None:
                    self.do(replica, event)

    def do(self, replica, event):
        """One event (what, key, bytes), (what, key, None) or (what, key, new key)."""
        what, key, size = event
        key = (replica, what, key)
        if isinstance(size, int):
            if key in self._waiting:
                self._waiting.remove(key)
                self._release(key)
            self.allocator.allocate(key, size)
            self._add(what, size)
            self._sizes[key] = size
        elif size is None:
            if what in self._late and self._random.random() < LATE:
                self._waiting.append(key)
                return
            self._release(key)
        else:
            # The other tensor's memory is freed, and this one takes its name.
            self.allocator.rename(key, (replica, *size))
            self._add(what, -self._sizes.pop(key))
        for key in self._waiting[:]:
            # Replicas drift apart further than operations of one of them.
            if key[1] in BESIDE or self._random.random() < LATE:
                self._waiting.remove(key)
                self._release(key)

    def _release(self, key):
        self.allocator.release(key)
        self._add(key[1], -self._sizes.pop(key, 0))

    def _add(self, what, size):
        self._live[what] += size
        self._now += size
        if self._now > self._most:
            self._most = self._now
            self.fullest = dict(self._live)


def _made(load, backbone):
    """Lists of the events of a start: of weights (two) and of slots (two)."""
    weights = [
        ("backbone weights", number, size)
        for number, size in enumerate(backbone.variables)
    ]
    slots = [
        ("backbone slots", (number, slot), size)
        for slot in range(_slots(backbone))
        for number, size in enumerate(backbone.variables)
    ]
    statistics = ("batch-norm statistics", 0, 2 * backbone.statistics)
    if backbone.frozen:
        weights.append(("backbone weights", "frozen", backbone.frozen))
    yield [statistics, *weights]
    yield list(memory.making(load))
    yield slots
    yield list(memory.making_slots(load))


def _slots(backbone):
    return round(backbone.slots / backbone.weights) if backbone.weights else 0


def _step(load, backbone, optimizer, *, keeps_sum):
    """The events of one step of a replica."""
    yield "images", 0, load.own_batch * backbone.image
    images = load.own_batch // load.parts
    # A third part is like the second.
    for part in range(min(load.parts, 2)):
        yield from _pass(backbone, backbone.passes.forward, part, images)
        yield from memory.first_pass(load, part)
        yield from _pass(backbone, backbone.passes.backward, part, images)
        if not load.sharded:
            yield from memory.whole_gradient(load, part)
        if part:
            # The sum takes the place of what it adds to.
            yield from _own_gradients(backbone, 0)
    last = min(load.parts, 2) - 1
    sizes = list(backbone.variables)
    if not load.sharded:
        sizes.append(load.rows * load.row_bytes)
    if load.replicas > 1:
        # Packed into one piece for the exchange.
        yield "gradients", "sum", sum(sizes)
        yield from _own_gradients(backbone, last)
        if not keeps_sum:
            yield "gradients", "sum", None
    # One truth value for each number: whether it is finite.
    for number, size in enumerate(sizes):
        yield "new values", ("finite", number), size // memory.FLOAT
    for number in range(len(sizes)):
        yield "new values", ("finite", number), None
    yield from _update(
        load, backbone, sizes, (last, "head"), moving=optimizer in MOVING
    )
    yield "gradients", "sum", None
    yield from _own_gradients(backbone, last)
    if load.sharded:
        yield from memory.second_pass(load, parts=last + 1)
    yield "images", 0, None


def _pass(backbone, requests, part, images):
    for key, size in requests:
        what = "activations"
        if key in backbone.passes.gradients:
            what = "gradients"
        elif size is not None:
            size = size * images // backbone.traced_images
        yield what, (part, key), size


def _own_gradients(backbone, part):
    """A replica's own gradients are freed."""
    for key in (*backbone.passes.gradients, "head"):
        yield "gradients", (part, key), None


def _update(load, backbone, sizes, own, *, moving):
    """New values are made beside the old ones, for one weight after the other.

    Args:
        load: the `HeadLoad`.
        backbone: the `Backbone`.
        sizes: bytes of the weights.
        own: key of the head's own gradient, which only one replica still has.
        moving: whether the slot takes the memory of its new value.
    """
    for number, size in enumerate(sizes):
        is_head = number == len(backbone.variables)
        yield "new values", "decayed", size
        if load.replicas > 1:
            # The sum of the gradients is read by others too: no adding in place.
            yield "new values", "gradient", size
            yield "new values", "decayed", None
        yield "new values", "new", size
        yield "new values", "decayed", None
        yield "new values", "gradient", None
        if is_head:
            yield "gradients", own, None
        yield "new values", "change", size
        slot, has_slot = ("backbone slots", (number, 0)), _slots(backbone)
        if is_head:
            slot, has_slot = ("head slots", (0, 0)), load.slot_bytes
        if moving and has_slot:
            yield "new values", "new", slot
        else:
            yield "new values", "new", None
        yield "new values", "change", None
