"""A batch in a head's first pass: as it enters, and its outcome."""

import dataclasses

import tensorflow as tf

from plsc_tf.heads.tiled_softmax import Examples
from plsc_tf.heads.tiles import LocalTiles, SampledTiles


@dataclasses.dataclass
class HeadStep:
    """Outcome of a head's first pass on one replica.

    Attributes:
        losses: `[batch]` losses of the replica's own examples.
        embedding_gradients: `[batch, emb]` for the replica's own examples; None
            without gradients.
        ranks: int32 `[batch]`, how many classes score above the true one; None
            unless asked for.
        pending: dict of tensors from which the gradients of the weights are made,
            tile by tile (`Head.pieces`) or in one piece (`Head.weight_gradients`);
            empty without gradients.
        state: `{name: scalar}` of the loss, to be stored with the update.
    """

    losses: tf.Tensor
    embedding_gradients: tf.Tensor | None
    ranks: tf.Tensor | None
    pending: dict
    state: dict


@dataclasses.dataclass
class EnteredBatch:
    """A batch on its way into the classes.

    Attributes:
        tiles: of the classes.
        chosen: rows of them that take part, or None.
        own: `[batch, emb]` the replica's embeddings, of length 1 for margin losses.
        inverse: `[batch, 1]` of `normalize`, or None.
        toward: of `TiledSoftmax.true_class`.
        examples: the `Examples` of the batch that the replica works on.
    """

    tiles: LocalTiles | SampledTiles
    chosen: tf.Tensor | None
    own: tf.Tensor
    inverse: tf.Tensor | None
    toward: tf.Tensor
    examples: Examples
