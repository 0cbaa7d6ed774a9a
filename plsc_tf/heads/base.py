"""What every classification head is to the training step."""

import dataclasses

import keras
import numpy as np
import tensorflow as tf

from plsc_tf.heads.margins import ARCFACE, MarginLoss, require
from plsc_tf.heads.products import DTYPES
from plsc_tf.heads.second_pass import SecondPass
from plsc_tf.heads.tiled_softmax import Examples, TiledSoftmax
from plsc_tf.heads.tiles import read
from plsc_tf.heads.unit import normalize, normalize_gradient

# Initial weights are drawn in blocks of rows, each from its own seed, so that a
# class starts with the same weights on any number of replicas.
BLOCK_ROWS = 4096

# Compiling takes longer than it saves with fewer classes to a tile.
COMPILE_ROWS = 2048


@dataclasses.dataclass
class HeadStep:
    """Outcome of a head's first pass on one replica.

    Attributes:
        losses: `[batch]` losses of the replica's own examples.
        embedding_gradients: `[batch, emb]` for the replica's own examples.
        ranks: int32 `[batch]`, how many classes score above the true one; None
            unless asked for.
        pending: dict of tensors from which the gradients of the weights are made,
            tile by tile (`Head.pieces`) or in one piece (`Head.weight_gradients`).
        state: `{name: scalar}` of the loss, to be stored with the update.
    """

    losses: tf.Tensor
    embedding_gradients: tf.Tensor
    ranks: tf.Tensor | None
    pending: dict
    state: dict


class Head(tf.Module):
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
        initial_bias: initial biases of plain softmax.
        label_smoothing: share of the target that is spread evenly over all classes
            (arXiv:1512.00567, section 7), in [0, 1).
        logits_mb: logits of a step are kept from the forward to the backward pass in
            up to so many MB per replica, and computed again beyond.
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
        initial_bias=0.0,
        label_smoothing=0.0,
        logits_mb=1024,
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
        require(dtype in DTYPES, f"dtype must be one of {DTYPES}", dtype=dtype)
        self.num_classes = num_classes
        self.margins = margins
        self.scale = scale
        self.seed = seed
        self.initial_deviation = initial_deviation
        self.initial_bias = initial_bias
        self.label_smoothing = label_smoothing
        self.logits_mb = logits_mb
        self.dtype = dtype
        self.jit_compile = jit_compile
        self.embedding_size = None

    def build(self, embedding_size, strategy):
        """Makes the weights for embeddings of this size under this strategy."""
        raise NotImplementedError

    def arrays(self):
        """`{"weight": rows, "bias": rows}`; the bias with plain softmax only."""
        raise NotImplementedError

    def loss_and_gradients(
        self,
        embeddings,
        labels,
        upstream,
        with_ranks=False,
        *,
        step=0,
        chosen=None,
        state=None,
    ):
        """Losses and gradients of the embeddings, called in replica context.

        Args:
            embeddings: `[batch, emb]` of the replica's own examples; every replica
                must bring equally many.
            labels: int64 `[batch]`.
            upstream: `[batch]` derivative of the objective by each loss, which is
                the example's weight / the sum of weights of the global batch.
            with_ranks: also rank the true class (top-1 / top-5 accuracy).
            step: int64 scalar, number of the update, which seeds the sampling.
            chosen: of `sample`, for a batch that is worked on in parts.
            state: of the `HeadStep` of the part before.

        Returns:
            a `HeadStep`.

        Raises:
            ValueError: the batch is empty, or the embeddings do not fit the weights.
        """
        self._check_built()
        self._check_batch(embeddings, labels)
        raw = embeddings
        entered, inverse = raw, None
        if self.margins.normalized:
            entered, inverse = normalize(raw)
        inputs, weights, norms, labels = self._gather(
            [entered, upstream, tf.norm(raw, axis=1), labels]
        )
        if chosen is None:
            chosen = self.sample(labels, step, gathered=True)
        tiles = self.tiles(chosen)
        rows = self._rows(labels, chosen)
        toward, score = self.softmax.true_class(tiles, inputs, rows)
        score = self._total(score)
        state = self._next_state(state, score, norms, weights)
        target = self.margins.target(score, norms, state)
        examples = Examples(inputs, rows, weights, score, target, state)
        first = self.softmax.first_pass(tiles, examples, with_ranks)
        losses, example = self.softmax.combine(
            self._gather(first.statistics[None]), examples
        )
        gradients, ranks = self._own_total(
            self.softmax.input_gradients(first, toward, example), first.above
        )
        by_norm = self.softmax.norm_gradients(examples, example)
        if inverse is not None:
            gradients = normalize_gradient(entered, inverse, gradients)
        if by_norm is not None:
            gradients += self._own(by_norm)[:, None] * entered
        pending = self.softmax.pending(first, examples, example)
        if chosen is not None:
            pending["chosen"] = chosen
        return HeadStep(
            losses=self._own(losses),
            embedding_gradients=gradients,
            ranks=ranks,
            pending=pending,
            state=state,
        )

    def sample(self, labels, step, gathered=False):
        """The replica's rows that take part in a step; None for all of them.

        Args:
            labels: int64 `[batch]` of the replica's own examples.
            step: int64 scalar, number of the update.
            gathered: whether the labels are those of the global batch already.
        """
        del labels, step, gathered
        return None

    def tiles(self, chosen=None):
        """The replica's classes in tiles; `chosen` as of `sample`."""
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
                    gradient -= share[:, None] * arrays[name]
                parts.setdefault(name, []).append(gradient)
        whole = [tf.concat(values, axis=0) for values in parts.values()]
        if "chosen" in pending:
            whole = [tf.IndexedSlices(value, pending["chosen"]) for value in whole]
        return whole

    def square_norms(self, pending):
        """`{name: scalar}` squared norms of the gradients of `weight_gradients`."""
        return self.second_pass.square_norms(self.tiles(pending.get("chosen")), pending)

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
        """The class weights `[num_classes, embedding_size]` float32, all of them."""
        weight = self.arrays()["weight"]
        whole = np.empty(weight.shape, np.float32)
        for low in range(0, self.num_classes, BLOCK_ROWS):
            high = min(low + BLOCK_ROWS, self.num_classes)
            whole[low:high] = weight.read(low, high)
        return whole

    def set_weights_from_numpy(self, array):
        """Sets the class weights from `[num_classes, embedding_size]`.

        Raises:
            ValueError: the shape is another one; nothing is changed then.
        """
        weight = self.arrays()["weight"]
        if tuple(array.shape) != tuple(weight.shape):
            raise ValueError(
                f"The head holds [num_classes, embedding_size] = {weight.shape}. "
                f"Received: array of shape {tuple(array.shape)}"
            )
        for low in range(0, self.num_classes, BLOCK_ROWS):
            weight.write(low, np.asarray(array[low : low + BLOCK_ROWS]))

    def _initial_weight(self, low, high):
        """Rows `[low, high)` of the initial weights."""
        deviation = self.initial_deviation
        if deviation is None:
            deviation = np.sqrt(2.0 / (self.embedding_size + self.num_classes))
        rows = np.empty((high - low, self.embedding_size), keras.config.floatx())
        for block in range(low // BLOCK_ROWS, -(-high // BLOCK_ROWS)):
            first = block * BLOCK_ROWS
            generator = np.random.default_rng([self.seed, block])
            drawn = generator.standard_normal(
                (BLOCK_ROWS, self.embedding_size), np.float32
            )
            start, stop = max(low, first), min(high, first + BLOCK_ROWS)
            rows[start - low : stop - low] = (
                deviation * drawn[start - first : stop - first]
            )
        return rows

    def _initial_bias(self, low, high):
        """Rows `[low, high)` of the initial biases: zeros in PLSC."""
        return np.full(high - low, self.initial_bias, keras.config.floatx())

    def _check_built(self):
        if self.embedding_size is None:
            raise ValueError(
                "The head has no weights yet: give it to plsc_tf.Classifier, or call "
                "head.build(embedding_size, strategy)."
            )

    def _check_batch(self, embeddings, labels):
        shape, count = tuple(embeddings.shape), labels.shape[0]
        if count == 0 or shape != (count, self.embedding_size):
            raise ValueError(
                "Every replica must bring embeddings [batch, embedding_size="
                f"{self.embedding_size}] and as many labels, at least one. Received: "
                f"embeddings of shape {shape}, labels of shape {tuple(labels.shape)}"
            )

    def _prepare(self, embedding_size, strategy, rows_per_tile):
        """What every kind of head builds beside its weights."""
        self.embedding_size = embedding_size
        compiled = self.jit_compile
        if compiled is None:
            compiled = rows_per_tile >= COMPILE_ROWS
        self.softmax = TiledSoftmax(
            self.margins,
            self.scale,
            num_classes=self.num_classes,
            label_smoothing=self.label_smoothing,
            dtype=self.dtype,
            logits_bytes=self.logits_mb * 1e6,
            compiled=compiled,
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

    def _own_total(self, gradients, above):
        """The replica's part of what is summed over those that share the classes.

        Args:
            gradients: `[batch, emb]`.
            above: int32 `[batch]`, or None; a column beside the gradients on its way.
        """
        if above is None:
            return self._reduce_scatter(gradients), None
        column = tf.cast(above, gradients.dtype)[:, None]
        own = self._reduce_scatter(tf.concat([gradients, column], axis=1))
        return own[:, :-1], tf.cast(own[:, -1], above.dtype)

    def _gather(self, value):
        """`[batch, ...]` of all replicas that share the classes, or a list of it."""
        raise NotImplementedError

    def _total(self, value):
        """Sum over all replicas that share the classes."""
        raise NotImplementedError

    def _reduce_scatter(self, value):
        """The replica's part of the sum over all that share the classes."""
        raise NotImplementedError

    def _own(self, value):
        """The replica's part of a gathered `[batch, ...]`."""
        raise NotImplementedError

    def _rows(self, labels, chosen):
        """int32 `[batch]` rows of the true classes on this replica, or −1."""
        raise NotImplementedError
