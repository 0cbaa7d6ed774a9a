"""What every classification head is to the training step."""

import keras
import numpy as np
import tensorflow as tf

from plsc_tf import initializers
from plsc_tf.heads.initial import BLOCK_ROWS, rows_of
from plsc_tf.heads.margins import ARCFACE, MarginLoss, require
from plsc_tf.heads.passes import Passes
from plsc_tf.heads.products import DTYPES
from plsc_tf.heads.second_pass import SecondPass
from plsc_tf.heads.tiled_softmax import TiledSoftmax
from plsc_tf.heads.tiles import read

# Compiling takes longer than it saves with fewer classes to a tile.
COMPILE_ROWS = 2048


class Head(Passes, tf.Module):
    """A linear classifier over embeddings, with a margin loss or plain softmax.

    Args:
        num_classes: number of classes; labels are 0 … num_classes − 1.
        margins: `plsc_tf.ARCFACE`, `COSFACE`, `SPHEREFACE`, `ADAFACE`,
            `CURRICULARFACE`, `MAGFACE`, `SOFTMAX`, `Margins(...)` or another
            `plsc_tf.heads.margins.MarginLoss`.
        scale: factor of the cosines (PLSC: scale); unused by plain softmax.
        seed: of the initial weights, N(0, sqrt(2 / (emb + num_classes))) as in
            PLSC, and of sampling.
        initial_deviation: standard deviation of the initial weights (PLSC:
            set_distfc_attr; arcface_torch: 0.01); None for PLSC's default above.
        initializer: how the weights begin instead: a Keras initializer without a seed,
            or its name with arguments, as "truncated_normal(stddev=0.02)".
        initial_bias: initial biases of plain softmax.
        label_smoothing: share of the target that is spread evenly over all classes
            (arXiv:1512.00567, section 7), in [0, 1).
        logits_mb: logits of a step are kept from the forward to the backward pass in
            up to so many MB per replica, and computed again beyond.
        sub_centers: weights of each class, of which the nearest one to an example
            counts (Sub-center ArcFace, Deng et al., ECCV 2020, equation 3); 1 for the
            ordinary head. Not for plain softmax.
        dtype: precision of the operands of the matrix products, "float32",
            "bfloat16" or "float16"; they are summed in float32.
        jit_compile: whether XLA compiles the elementwise work; None where tiles are
            large enough for it to pay.

    Raises:
        ValueError: a number is out of range.
    """

    def __init__(  # noqa: PLR0913 - every one has a default
        self,
        num_classes,
        *,
        margins=ARCFACE,
        scale=64.0,
        seed=0,
        initial_deviation=None,
        initializer=None,
        initial_bias=0.0,
        label_smoothing=0.0,
        logits_mb=1024,
        sub_centers=1,
        dtype="float32",
        jit_compile=None,
    ):
        super().__init__(name="head")
        require(
            num_classes >= 1, "num_classes must be positive", num_classes=num_classes
        )
        if not isinstance(margins, MarginLoss):
            raise ValueError(
                "margins must be plsc_tf.ARCFACE, COSFACE, SPHEREFACE, ADAFACE, "
                "CURRICULARFACE, MAGFACE, SOFTMAX or Margins(...). "
                f"Received: margins={margins!r}"
            )
        require(scale > 0, "scale must be positive", scale=scale)
        require(
            initial_deviation is None or initial_deviation >= 0,
            "initial_deviation must not be negative",
            initial_deviation=initial_deviation,
        )
        require(
            0 <= label_smoothing < 1,
            "label_smoothing must be in [0, 1)",
            label_smoothing=label_smoothing,
        )
        require(logits_mb >= 0, "logits_mb must not be negative", logits_mb=logits_mb)
        require(
            sub_centers >= 1, "sub_centers must be positive", sub_centers=sub_centers
        )
        if sub_centers > 1 and not margins.normalized:
            raise ValueError(
                "The nearest of several centers is chosen by its cosine, which plain "
                "softmax does not have: use a margin loss, or sub_centers=1. Received: "
                f"sub_centers={sub_centers}, margins={margins!r}"
            )
        require(dtype in DTYPES, f"dtype must be one of {DTYPES}", dtype=dtype)
        self.num_classes = num_classes
        self.margins = margins
        self.scale = scale
        self.seed = seed
        self.initial_deviation = initial_deviation
        if initializer is not None and initial_deviation is not None:
            raise ValueError(
                "initializer says what initial_deviation would: leave one of them out. "
                f"Received: initializer={initializer!r}, "
                f"initial_deviation={initial_deviation}"
            )
        self.initializer = initializer and initializers.described(initializer)
        self.initial_bias = initial_bias
        self.label_smoothing = label_smoothing
        self.logits_mb = logits_mb
        self.sub_centers = sub_centers
        self.dtype = dtype
        self.jit_compile = jit_compile
        self.embedding_size = None

    def build(self, embedding_size, strategy):
        """Makes the weights for embeddings of this size under this strategy."""
        raise NotImplementedError

    def arrays(self):
        """`{"weight": rows, "bias": rows}`; the bias with plain softmax only."""
        raise NotImplementedError

    def weight_gradients(self, pending):
        """Gradients of the weights in one piece, in the order of `arrays()`.

        Args:
            pending: of a `HeadStep`.

        Returns:
            list of `[classes, emb]` and with plain softmax `[classes]`: complete for
            sharded weights, the replica's share for replicated ones, and for sampled
            classes `tf.IndexedSlices` of the replica's rows.
        """
        parts = {}
        for _, handles, chosen, part in self.pieces(pending):
            arrays = read(handles, chosen)
            for name, (gradient, share) in self.tile_gradients(arrays, part).items():
                if share is not None:
                    gradient -= share[..., None] * arrays[name]
                parts.setdefault(name, []).append(gradient)
        whole = [tf.concat(values, axis=0) for values in parts.values()]
        if "chosen" in pending:
            whole = [tf.IndexedSlices(value, pending["chosen"]) for value in whole]
        return whole

    def square_norms(self, pending):
        """`{name: scalar}` squared norms of the gradients of `weight_gradients`."""
        return self.second_pass.square_norms(self.tiles(pending.get("chosen")), pending)

    def square_weights(self, pending):
        """Squared norm of the replica's weights that take part in a step, a scalar."""
        return self.second_pass.square_weights(
            self.tiles(pending.get("chosen")), pending
        )

    def pieces(self, pending):
        """Yields the tiles of the calling replica, as `RowRules.update` takes them.

        Args:
            pending: of a `HeadStep`, or of `second_pass.join`.

        Yields:
            (index of the tile, handles of its arrays, rows that take part or None,
            what of `pending` concerns it).
        """
        tiles = self.tiles(pending.get("chosen"))
        for index in range(len(tiles.starts)):
            part = self.second_pass.of_tile(tiles, index, pending)
            yield index, *tiles.handles(index), part

    def tile_gradients(self, arrays, part):
        """See `plsc_tf.heads.second_pass.SecondPass.weight_gradients`."""
        return self.second_pass.weight_gradients(arrays, part)

    def keep_state(self, state, applied):
        """Stores the loss's new state if the update was applied.

        Args:
            state: of a `HeadStep`.
            applied: bool scalar.
        """
        for name, variable in self.state_variables.items():
            old = tf.convert_to_tensor(variable)
            variable.assign(tf.where(applied, tf.cast(state[name], old.dtype), old))

    def weights_as_numpy(self):
        """The class weights `[num_classes, embedding_size]` float32, all of them.

        With several centers per class all of them are returned, `[num_classes,
        sub_centers, embedding_size]`, as `set_weights_from_numpy` takes them.
        """
        weight = self.arrays()["weight"]
        whole = np.empty(weight.shape, np.float32)
        for low in range(0, self.num_classes, BLOCK_ROWS):
            high = min(low + BLOCK_ROWS, self.num_classes)
            whole[low:high] = weight.read(low, high)
        return whole

    def set_weights_from_numpy(self, array):
        """Sets the class weights from an array as of `weights_as_numpy`.

        Raises:
            ValueError: the shape is another one; nothing is changed then.
        """
        weight = self.arrays()["weight"]
        if tuple(array.shape) != tuple(weight.shape):
            raise ValueError(
                f"The head holds a class per row, {weight.shape}. "
                f"Received: array of shape {tuple(array.shape)}"
            )
        for low in range(0, self.num_classes, BLOCK_ROWS):
            weight.write(low, np.asarray(array[low : low + BLOCK_ROWS]))

    def _initial_weight(self, low, high):
        """Rows `[low, high)` of the initial weights."""
        deviation = self.initial_deviation
        if deviation is None:
            deviation = np.sqrt(2.0 / (self.embedding_size + self.num_classes))
        drawn = initializers.Distribution("normal", 0.0, deviation)
        if self.initializer:
            fans = self.embedding_size, self.num_classes
            drawn = initializers.distribution(self.initializer, *fans)
        shape = (self.num_classes, self.sub_centers * self.embedding_size)
        rows = rows_of(low, high, shape, drawn, seed=self.seed)
        if self.sub_centers > 1:
            rows = rows.reshape(-1, self.sub_centers, self.embedding_size)
        return rows.astype(keras.config.floatx(), copy=False)

    def _initial_bias(self, low, high):
        """Rows `[low, high)` of the initial biases: zeros in PLSC."""
        return np.full(high - low, self.initial_bias, keras.config.floatx())

    def _check_built(self):
        if self.embedding_size is None:
            raise ValueError(
                "The head has no weights yet: give it to plsc_tf.Classifier, or call "
                "head.build(embedding_size, strategy)."
            )

    def _prepare(self, embedding_size, strategy, rows_per_tile):
        """What every kind of head builds beside its weights."""
        self.embedding_size = embedding_size
        compiled = self.jit_compile
        if compiled is None:
            compiled = self.sub_centers * rows_per_tile >= COMPILE_ROWS
        self.softmax = TiledSoftmax(
            self.margins,
            self.scale,
            num_classes=self.num_classes,
            label_smoothing=self.label_smoothing,
            dtype=self.dtype,
            logits_bytes=self.logits_mb * 1e6,
            compiled=compiled,
            sub_centers=self.sub_centers,
        )
        self.second_pass = SecondPass(self.margins, self.dtype, self.softmax.kernels)
        with strategy.scope():
            self.state_variables = {
                name: tf.Variable(
                    tf.cast(value, keras.config.floatx()),
                    trainable=False,
                    aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA,
                    name=f"head_{name}",
                )
                for name, value in self.margins.initial_state().items()
            }

    def _next_state(self, state, score, norms, weights):
        if state is None:
            stored = self.state_variables.items()
            state = {name: tf.convert_to_tensor(value) for name, value in stored}
        return self.margins.next_state(score, norms, weights, state)
