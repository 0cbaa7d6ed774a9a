"""A batch's way through a head's classes, whichever of them a replica holds."""

import dataclasses

import tensorflow as tf

from plsc_tf.heads.tiled_softmax import Examples
from plsc_tf.heads.unit import normalize, normalize_gradient


@dataclasses.dataclass
class HeadStep:
    """Outcome of a head's first pass on one replica.

    Attributes:
        losses: `[batch]` losses of the replica's own examples.
        embedding_gradients: `[batch, emb]` for the replica's own examples; None of
            `Head.losses`.
        ranks: int32 `[batch]`, how many classes score above the true one; None
            unless asked for.
        pending: dict of tensors from which the gradients of the weights are made,
            tile by tile (`Head.pieces`) or in one piece (`Head.weight_gradients`);
            empty of `Head.losses`.
        state: `{name: scalar}` of the loss, to be stored with the update.
    """

    losses: tf.Tensor
    embedding_gradients: tf.Tensor | None
    ranks: tf.Tensor | None
    pending: dict
    state: dict


@dataclasses.dataclass
class _Entered:
    """A batch on its way into the classes.

    Attributes:
        tiles: of the classes.
        chosen: rows of them that take part, or None.
        own: `[batch, emb]` the replica's embeddings, of length 1 for margin losses.
        inverse: `[batch, 1]` of `normalize`, or None.
        toward: of `TiledSoftmax.true_class`.
        examples: the `Examples` of the global batch.
    """

    tiles: object
    chosen: tf.Tensor | None
    own: tf.Tensor
    inverse: tf.Tensor | None
    toward: tf.Tensor
    examples: Examples


class Passes:
    """What every `plsc_tf.heads.base.Head` does with a batch.

    The head has the classes, and says by its methods which of them a replica holds
    and how the replicas that share them talk to each other.
    """

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
        batch = self._enter(embeddings, labels, upstream, step, chosen, state)
        examples = batch.examples
        first = self.softmax.first_pass(batch.tiles, examples, with_ranks)
        losses, example = self.softmax.combine(
            self._gather(first.statistics[None]), examples
        )
        gradients, ranks = self._own_total(
            self.softmax.input_gradients(first, batch.toward, example), first.above
        )
        by_norm = self.softmax.norm_gradients(examples, example)
        if batch.inverse is not None:
            gradients = normalize_gradient(batch.own, batch.inverse, gradients)
        if by_norm is not None:
            gradients += self._own(by_norm)[:, None] * batch.own
        pending = self.softmax.pending(first, examples, example)
        if batch.chosen is not None:
            pending["chosen"] = batch.chosen
        return HeadStep(
            losses=self._own(losses),
            embedding_gradients=gradients,
            ranks=ranks,
            pending=pending,
            state=examples.state,
        )

    def losses(
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
        """The losses of `loss_and_gradients` without any gradient, at half the work.

        Args and Raises: see `loss_and_gradients`.

        Returns:
            a `HeadStep` of losses, ranks and state.
        """
        batch = self._enter(embeddings, labels, upstream, step, chosen, state)
        first = self.softmax.first_pass(
            batch.tiles, batch.examples, with_ranks, gradients=False
        )
        losses, _ = self.softmax.combine(
            self._gather(first.statistics[None]), batch.examples
        )
        ranks = first.above
        if ranks is not None:
            _, ranks = self._own_total(batch.examples.inputs[:, :0], ranks)
        return HeadStep(
            losses=self._own(losses),
            embedding_gradients=None,
            ranks=ranks,
            pending={},
            state=batch.examples.state,
        )

    def _enter(self, embeddings, labels, upstream, step, chosen, state):
        self._check_built()
        self._check_batch(embeddings, labels)
        own, inverse = embeddings, None
        if self.margins.normalized:
            own, inverse = normalize(embeddings)
        inputs, weights, norms, labels = self._gather(
            [own, upstream, tf.norm(embeddings, axis=1), labels]
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
        return _Entered(tiles, chosen, own, inverse, toward, examples)

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

    def _check_batch(self, embeddings, labels):
        shape, count = tuple(embeddings.shape), labels.shape[0]
        if count == 0 or shape != (count, self.embedding_size):
            raise ValueError(
                "Every replica must bring embeddings [batch, embedding_size="
                f"{self.embedding_size}] and as many labels, at least one. Received: "
                f"embeddings of shape {shape}, labels of shape {tuple(labels.shape)}"
            )

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
