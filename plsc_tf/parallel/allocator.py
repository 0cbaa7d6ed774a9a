"""What TensorFlow's allocator makes of a sequence of requests."""

import bisect

MIB = 1 << 20
FIRST_REGION = 2 * MIB
ALIGNMENT = 256
# A free chunk is cut when it is twice as large as asked for, or larger by so much.
LARGEST_REST = 128 * MIB
# On CPUs smaller requests go to the C library.
SMALL = 256 << 10


class RegionAllocator:
    """TensorFlow's best-fit allocator with coalescing, without the memory itself.

    It asks the system for regions, each twice as large as the one before, and never
    returns them. A request gets the smallest free chunk that is large enough, whole
    or cut; neighbours of one region are joined when they are freed. So a region may
    be unfit for a large tensor for the sake of one small tensor in its middle.

    Source: `tsl/framework/bfc_allocator.cc`, `tensorflow/core/common_runtime/
    mkl_cpu_allocator.h` of TensorFlow 2.17.

    Args:
        first_region: bytes of the first region.

    Attributes:
        touched: bytes of pages that were ever written to, and so are resident.
    """

    def __init__(self, first_region=FIRST_REGION):
        self.touched = 0
        self._next_region = first_region
        self._bottom = 0
        self._free = []  # (size, start), ascending
        self._sizes = {}  # of every chunk by its start
        self._is_free = set()
        self._ends = {}  # start of every chunk by its end
        self._written = {}  # [low, high) of every region by its low
        self._region = {}  # low of the region by a chunk's start
        self._live = {}
        self._small = self._most_small = 0

    def allocate(self, key, size):
        """Takes memory for a tensor of so many bytes; `release(key)` frees it."""
        if size < SMALL:
            self._small += size
            if self._small > self._most_small:
                self.touched += self._small - self._most_small
                self._most_small = self._small
            self._live[key] = (None, size)
            return
        wanted = -(-size // ALIGNMENT) * ALIGNMENT
        place = bisect.bisect_left(self._free, (wanted,))
        if place == len(self._free):
            self._extend(wanted)
            place = bisect.bisect_left(self._free, (wanted,))
        found, start = self._free.pop(place)
        self._is_free.remove(start)
        if found >= 2 * wanted or found - wanted >= LARGEST_REST:
            self._put(start, wanted, self._region[start])
            self._add_free(start + wanted, found - wanted, self._region[start])
        low = self._region[start]
        end = start + wanted
        if end > self._written[low]:
            self.touched += end - self._written[low]
            self._written[low] = end
        self._live[key] = (start, size)

    def release(self, key):
        """Frees a tensor; one that is not there is none."""
        start, size = self._live.pop(key, (None, 0))
        if start is None:
            self._small -= size
            return
        low, size = self._region[start], self._sizes[start]
        after = start + size
        if after in self._is_free:
            size += self._take(after)
        before = self._ends.get(start)
        if before in self._is_free:
            del self._sizes[start], self._region[start]
            start, size = before, size + self._take(before)
        self._add_free(start, size, low)

    def rename(self, old, new):
        """The tensor `old` goes by the name of `new`, whose own memory is freed."""
        self.release(new)
        self._live[new] = self._live.pop(old)

    def _extend(self, wanted):
        if wanted > self._next_region:
            while wanted > self._next_region:
                self._next_region *= 2
            size = self._next_region
        else:
            size = self._next_region
            self._next_region *= 2
        # Linux maps downwards, with a gap: regions are never neighbours.
        start = self._bottom - ALIGNMENT - size
        self._bottom = start
        self._written[start] = start
        self._add_free(start, size, start)

    def _put(self, start, size, low):
        self._sizes[start], self._region[start] = size, low
        self._ends[start + size] = start

    def _add_free(self, start, size, low):
        self._put(start, size, low)
        self._is_free.add(start)
        bisect.insort(self._free, (size, start))

    def _take(self, start):
        """Removes a free chunk; returns its size."""
        size = self._sizes.pop(start)
        del self._region[start]
        self._is_free.remove(start)
        del self._free[bisect.bisect_left(self._free, (size, start))]
        return size
