"""Base class of the classification heads, sharded or replicated."""

import dataclasses
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from plsc_tf import initializers
from plsc_tf.heads.initial import BLOCK_ROWS, class_rows
from plsc_tf.heads.kernels import DTYPES, Kernels, normalize, normalize_gradient
from plsc_tf.heads.layout import HeadLayout
from plsc_tf.heads.margins import ARCFACE, MarginLoss
from plsc_tf.heads.second_pass import SecondPass
from plsc_tf.heads.tiled_softmax import Examples, TiledSoftmax
from plsc_tf.heads.tiles import Exchange, LocalTiles, SampledTiles, locate, sample_rows
from plsc_tf.parallel import collectives
from plsc_tf.parallel.strategy import device_kind
from plsc_tf.requirements import require


@dataclasses.dataclass
class HeadStep:
    """The result of a head's first pass on one replica; see `tiled_softmax`.

    Attributes:
        losses: `[batch]` losses of the replica's own examples.
        embedding_gradients: `[batch, emb]` for the replica's own examples; None if
            gradients are not computed.
        ranks: int64 `[batch]`, the number of other classes that score at least as high;
            None unless requested.
        pending: dict of tensors from which the weight gradients are computed, tile by
            tile (`SecondPass.pieces`) or in one piece (`SecondPass.whole_gradients`);
            empty if gradients are not computed.
        state: `{name: scalar}`, the loss function's state after this batch.
    """

    losses: tf.Tensor
    embedding_gradients: tf.Tensor | None
    ranks: tf.Tensor | None
    pending: dict
    state: dict


@dataclasses.dataclass(eq=False, repr=False)
class Head(tf.Module):
    """A linear classifier over embeddings, with a margin loss or plain softmax.

    `ShardedHead` and `DenseHead` differ in their variables and in `exchange`, which
    communicates between replicas.

    Args:
        num_classes: number of classes; labels are 0 … num_classes − 1.
        loss: `plsc_tf.ARCFACE` or another `plsc_tf.MarginLoss`.
        scale: factor by which cosines are multiplied (PLSC: scale); plain softmax
            ignores it.
        seed: random seed for sampling and for the initial weights, which by default are
            normal with standard deviation sqrt(2 / (emb + num_classes)), as in PLSC.
        initializer: a Keras initializer without a seed, or its name with arguments,
            such as "random_normal(stddev=0.01)" (arcface_torch), instead of the default
            above. PLSC sets it with set_distfc_attr.
        initial_bias: initial value of the biases of plain softmax.
        label_smoothing: share of the target that is spread evenly over all classes
            (arXiv:1512.00567, section 7), in [0, 1).
        logits_mb: maximum MB of logits that each replica keeps for the second pass;
            the others are recomputed.
        sub_centers: number of centers per class; only the one nearest to an example
            counts (Sub-center ArcFace, ECCV 2020, equation 3). Plain softmax needs 1.
        dtype: "float32", "bfloat16" or "float16", the precision of the operands of the
            matrix products, which are summed in float32.
        jit_compile: whether XLA compiles the elementwise work, or None to compile it
            for large tiles only.

    Attributes:
        second_pass: after `build`, the gradients of the weights (`whole_gradients`,
            `weight_gradients` of a tile) from what `loss` left pending.

    Raises:
        ValueError: an argument is out of range or excludes another one.
    """

    # `ShardedHead` overrides these defaults.
    sharded = False
    sample_rate, tile_rows, weight_dtype = 1.0, None, "float32"

    num_classes: int
    _: dataclasses.KW_ONLY
    loss: MarginLoss = ARCFACE
    scale: float = 64.0
    seed: int = 0
    initializer: Any = None
    initial_bias: float = 0.0
    label_smoothing: float = 0.0
    logits_mb: float = 1024
    sub_centers: int = 1
    dtype: str = "float32"
    jit_compile: bool | None = None

    def __post_init__(self) -> None:
        super().__init__(name="head")
        self.initializer = self.initializer and initializers.describe(self.initializer)
        self.embedding_size: int = None  # type: ignore[assignment]
        self._check_options()

    def _check_options(self):
        loss = self.loss
        rule = "loss must be a plsc_tf.MarginLoss, such as plsc_tf.ARCFACE or SOFTMAX"
        require(isinstance(loss, MarginLoss), rule, loss=loss)
        for name, holds, rule in (
            ("num_classes", self.num_classes >= 1, "be positive"),
            ("scale", self.scale > 0, "be positive"),
            ("label_smoothing", 0 <= self.label_smoothing < 1, "be in [0, 1)"),
            ("logits_mb", self.logits_mb >= 0, "not be negative"),
            ("sub_centers", self.sub_centers >= 1, "be positive"),
            ("dtype", self.dtype in DTYPES, f"be one of {DTYPES}"),
        ):
            require(holds, f"{name} must {rule}", **{name: getattr(self, name)})
        rule = "sub_centers needs cosines, which plain softmax does not have"
        normalized = self.sub_centers == 1 or loss.normalized
        require(normalized, rule, sub_centers=self.sub_centers, loss=loss)

    def build(self, embedding_size: int, strategy: tf.distribute.Strategy) -> None:
        """Creates the weights.

        Args:
            embedding_size: length of the embeddings.
            strategy: the `tf.distribute.Strategy` that will run the steps.

        Raises:
            ValueError: there are more shards than classes, or a tile has more classes
                than a replica uses per step.
        """
        replicas, kind = strategy.num_replicas_in_sync, device_kind(strategy)
        self._make_passes(embedding_size, replicas, kind, self.logits_mb * 1e6)
        with strategy.scope():
            state, dtype = self.loss.initial_state(), keras.config.floatx()
            self.state_variables = {
                name: collectives.replicated_scalar(value, dtype, f"head_{name}")
                for name, value in state.items()
            }
        self.weight = self._make_rows(strategy, self.initial_weight, "head_weight")
        self.bias = None
        if not self.loss.normalized:
            self.bias = self._make_rows(strategy, self._initial_bias, "head_bias")
        split = self.weight.split if self.sharded else None
        self.exchange = Exchange(self.num_classes, split)

    def _make_passes(self, embedding_size, replicas, kind, logits_bytes):
        """Divides the head into tiles and creates the passes over them.

        Args:
            embedding_size: length of the embeddings.
            replicas: number of replicas.
            kind: "CPU" or "GPU", on which they run.
            logits_bytes: see `TiledSoftmax`.
        """
        names = "num_classes sharded sample_rate tile_rows sub_centers weight_dtype"
        known = {name: getattr(self, name) for name in names.split()}
        known |= {"embedding_size": embedding_size, "replicas": replicas}
        self.layout = HeadLayout(**known, device_kind=kind)
        self.layout.check()
        self.embedding_size = embedding_size
        compiled = self.jit_compile
        kernels = Kernels(self, self.layout.compiled if compiled is None else compiled)
        self.softmax = TiledSoftmax(kernels, logits_bytes)
        self.second_pass = SecondPass(kernels, self.tiles)

    def _make_rows(self, strategy, initial_rows, name):
        """Creates rows filled with the values of `initial_rows(first, last + 1)`."""
        raise NotImplementedError

    def arrays(self) -> dict:
        """Returns `{"weight": rows}`, with plain softmax also `"bias"`."""
        advice = "Pass it to a Classifier, or call head.build(embedding_size, strategy)"
        require(self.embedding_size is not None, "The head has no weights yet", advice)
        arrays = {"weight": self.weight}
        if self.bias is not None:
            arrays["bias"] = self.bias
        return arrays

    def loss_and_gradients(
        self,
        embeddings: tf.Tensor,
        labels: tf.Tensor,
        sample_weights: tf.Tensor,
        with_ranks: bool = False,
        *,
        step: Any = 0,
        chosen: tf.Tensor | None = None,
        state: dict | None = None,
        gradients: bool = True,
    ) -> HeadStep:
        """Computes losses and embedding gradients; call it in replica context.

        Args:
            embeddings: `[batch, emb]` embeddings of the replica's own examples; the
                batch size is the same on all replicas.
            labels: int64 `[batch]`.
            sample_weights: `[batch]` derivative of the objective with respect to each
                loss: the example's weight divided by the number of examples in the
                global batch.
            with_ranks: whether to rank the true class (for top-1 / top-5 accuracy).
            step: int64 scalar, the global step; part of the sampling seed.
            chosen: the rows returned by `sample`, the same for all parts of a batch;
                None samples here, or uses all rows if `sample_rate` is 1.
            state: the `state` of the previous part's `HeadStep`, or None.
            gradients: False to compute losses, ranks and state only, at half the work.

        Raises:
            ValueError: the batch is empty, or the shapes don't match.
        """
        self._check_batch(embeddings, labels)
        exchange, softmax = self.exchange, self.softmax
        own, inverse = embeddings, None
        if self.loss.normalized:
            own, inverse = normalize(embeddings)
        norms = tf.norm(embeddings, axis=1)
        gathered = exchange.gather([own, sample_weights, norms, labels])
        examples = self._examples(gathered, step, chosen, state)
        sums, kept = softmax.first_pass(examples, with_ranks, gradients)
        statistics = exchange.gather(softmax.statistics(sums)[None])
        losses, example = softmax.combine(statistics, examples)
        losses, above = exchange.own(losses), sums.get("above")
        if not gradients:
            _, ranks = exchange.own_total(examples.inputs[:, :0], above)
            return HeadStep(losses, None, ranks, {}, examples.state)
        whole = softmax.input_gradients(sums, examples, example)
        own_gradients, ranks = exchange.own_total(whole, above)
        by_norm = softmax.norm_gradients(examples, example)
        if inverse is not None:
            own_gradients = normalize_gradient(own, inverse, own_gradients)
        if by_norm is not None:
            own_gradients += exchange.own(by_norm)[:, None] * own
        pending = softmax.pending(kept, examples, example)
        return HeadStep(losses, own_gradients, ranks, pending, examples.state)

    def _examples(self, gathered, step, chosen, state):
        """Locates the true classes of the gathered batch; returns its `Examples`."""
        inputs, weights, norms, labels = gathered
        if chosen is None:
            chosen = self.sample(labels, step)
        tiles = self.tiles(chosen)
        rows = locate(labels, *self.exchange.local_classes(), chosen)
        true_center, score = self.softmax.true_class(tiles, inputs, rows)
        score = self.exchange.total(score)
        state = self._next_state(state, score, norms, weights)
        target = self.loss.target(score, norms, state)
        return Examples(
            tiles, chosen, inputs, rows, true_center, weights, score, target, state
        )

    def sample(self, labels: tf.Tensor, step: Any) -> tf.Tensor | None:
        """Returns the replica's sampled rows for a step, ascending; None for all rows.

        Args:
            labels: int64 `[global_batch]` labels of all replicas' examples.
            step: int64 scalar, the global step.
        """
        if self.sample_rate == 1:
            return None
        first, count = self.exchange.local_classes()
        seed = self.seed, collectives.replica_id(), step
        return sample_rows(labels - first, count, self.sample_rate, seed)

    def tiles(self, chosen: tf.Tensor | None = None) -> LocalTiles | SampledTiles:
        """Returns tiles of the replica's classes, or of only its `chosen` rows."""
        if chosen is None:
            return LocalTiles(self.arrays(), self.layout.device_kind == "GPU")
        return SampledTiles(self.arrays(), chosen, self.layout.rows_per_tile)

    def _check_batch(self, embeddings, labels):
        self.arrays()  # raises if the head is not built
        shape, count = tuple(embeddings.shape), labels.shape[0]
        fits = count != 0 and shape == (count, self.embedding_size)
        wanted = f"[batch, embedding_size={self.embedding_size}] and labels [batch]"
        rule = f"Every replica needs embeddings {wanted}, with batch >= 1"
        require(fits, rule, embeddings=shape, labels=labels.shape)

    def _next_state(self, state, score, norms, weights):
        if not self.state_variables:
            return {}
        if state is None:
            stored = self.state_variables.items()
            state = {name: tf.convert_to_tensor(value) for name, value in stored}
        batch = self.exchange.gather_global([score, norms, weights])
        return self.loss.next_state(*batch, state)

    def keep_state(self, state: dict, applied: tf.Tensor) -> None:
        """Stores the loss's new state if the update was applied.

        Args:
            state: the `state` of a `HeadStep`.
            applied: bool scalar, whether the update was applied.
        """
        for name, variable in self.state_variables.items():
            old = tf.convert_to_tensor(variable)
            variable.assign(tf.where(applied, tf.cast(state[name], old.dtype), old))

    def weights_as_numpy(self) -> np.ndarray | dict[str, np.ndarray]:
        """Returns all class weights, float32 `[num_classes, embedding_size]`.

        With several centers per class, the shape is
        `[num_classes, sub_centers, embedding_size]`.
        """
        weight = self.arrays()["weight"]
        whole = np.empty(weight.shape, np.float32)
        for low in range(0, self.num_classes, BLOCK_ROWS):
            high = min(low + BLOCK_ROWS, self.num_classes)
            whole[low:high] = weight.read(low, high)
        return whole

    def set_weights_from_numpy(self, array: np.ndarray) -> None:
        """Sets the class weights from an array shaped like `weights_as_numpy()`.

        Raises:
            ValueError: the shape differs; the weights are unchanged.
        """
        weight = self.arrays()["weight"]
        rule = f"The array must have one row per class, shape {weight.shape}"
        shape = tuple(array.shape)
        require(shape == tuple(weight.shape), rule, shape=shape)
        for low, high in weight.spans(0, self.num_classes, BLOCK_ROWS):
            weight.write(low, np.asarray(array[low:high], keras.config.floatx()))

    def initial_weight(self, low: int, high: int) -> np.ndarray:
        """Returns rows `[low, high)` of the initial weights."""
        return class_rows(self, low, high).astype(keras.config.floatx(), copy=False)

    def _initial_bias(self, low, high):
        """Returns rows `[low, high)` of the initial biases, which are zero in PLSC."""
        return np.full(high - low, self.initial_bias, keras.config.floatx())
