"""What a head and its update must compute: dense, unsharded, float64.

Shares no code with plsc_tf: the losses are written out from their papers on whole
matrices `[batch, classes]` and differentiated by TensorFlow; the updates are numpy.
"""

import numpy as np
import tensorflow as tf

COMBINED = {"m1": 1.0, "m2": 0.0, "m3": 0.0}
# The published settings; `head_step` takes others by name.
SETTINGS = {
    "softmax": {},
    "combined": COMBINED,
    "arcface": COMBINED | {"m2": 0.5},
    "cosface": COMBINED | {"m3": 0.35},
    "sphereface": COMBINED | {"m1": 1.35},
    "adaface": {"m": 0.4, "h": 0.333, "t_alpha": 0.01},
    "curricularface": {"m": 0.5, "momentum": 0.01},
    "magface": {"l_a": 10, "u_a": 110, "l_m": 0.45, "u_m": 0.8, "lambda_g": 35},
}
STATES = {
    "adaface": {"norm_mean": 20.0, "norm_deviation": 100.0},
    "curricularface": {"t": 0.0},
}


def next_state(loss, cosine, norms, example_weights, state, **given):
    """The running statistics, from numpy `[batch]`; weight 0 takes no part."""
    given = SETTINGS[loss] | given
    real, new = np.asarray(example_weights) != 0, dict(state)
    if loss == "adaface":
        norms, share = np.clip(norms[real], 0.001, 100), given["t_alpha"]
        if len(norms) > 0:
            new["norm_mean"] = share * norms.mean() + (1 - share) * state["norm_mean"]
        if len(norms) > 1:
            spread = share * norms.std(ddof=1)
            new["norm_deviation"] = spread + (1 - share) * state["norm_deviation"]
    if loss == "curricularface" and real.any():
        share = given["momentum"]
        new["t"] = share * cosine[real].mean() + (1 - share) * state["t"]
    return new


def target(loss, cosine, norms, state, straight_through=False, **given):
    """(cosine with margin, penalty) of the true classes, `[batch]` tensors."""
    p = SETTINGS[loss] | given
    theta = tf.acos(cosine)
    if loss == "adaface":
        norms = tf.stop_gradient(tf.clip_by_value(norms, 0.001, 100))
        z = (norms - state["norm_mean"]) / (state["norm_deviation"] + 0.001)
        z = tf.clip_by_value(z * p["h"], -1, 1)
        theta = tf.clip_by_value(theta - p["m"] * z, 0.001, np.pi - 0.001)
        return tf.cos(theta) - (p["m"] + p["m"] * z), 0.0
    if loss == "curricularface":
        late = cosine - p["m"] * np.sin(p["m"])
        return tf.where(theta + p["m"] < np.pi, tf.cos(theta + p["m"]), late), 0.0
    if loss == "magface":
        a = tf.clip_by_value(norms, p["l_a"], p["u_a"])
        share = (a - p["l_a"]) / (p["u_a"] - p["l_a"])
        margin = (1 - share) * p["l_m"] + share * p["u_m"]
        value = tf.where(theta < np.pi / 2, tf.cos(theta + margin), cosine)
        return value, p["lambda_g"] * (1 / a + a / p["u_a"] ** 2)
    value = tf.cos(p["m1"] * theta + p["m2"]) - p["m3"]
    if straight_through:
        value = cosine + tf.stop_gradient(value - cosine)
    return value, 0.0


def others(loss, cosine, true_cosine, state, interclass_filter=0.0, **given):
    """Cosines `[batch, classes]` of the classes that are not the true one."""
    p = SETTINGS[loss] | given
    if interclass_filter:
        cosine *= tf.cast(cosine <= interclass_filter, tf.float64)
    if loss == "curricularface":
        decision = tf.cos(tf.acos(true_cosine) + p["m"])[:, None]
        return tf.where(cosine > decision, cosine * (state["t"] + cosine), cosine)
    return cosine


def head_step(
    weight,
    bias,
    embeddings,
    labels,
    example_weights,
    *,
    loss="arcface",
    scale=64.0,
    label_smoothing=0.0,
    interclass_filter=0.0,
    straight_through=False,
    state=None,
    sampled=None,
    **given,
):
    """Losses and gradients of sum(weight · loss) / sum(weights) over the batch.

    Args:
        weight, bias: `[classes, emb]`, or `[classes, centers, emb]` where the nearest
            center counts; `[classes]` for softmax, else None.
        embeddings, labels, example_weights: the global batch.
        state: of the loss before this step; its initial one if None.
        sampled: sorted classes that take part, the labels among them; None for all.
        **given: settings of the loss, such as m2=0.3.

    Returns:
        dict of losses `[batch]`, embedding_gradients, weight_gradients,
        bias_gradients (None without bias), all numpy, and the new state.
    """
    classes = len(weight)
    sampled = np.arange(classes) if sampled is None else np.asarray(sampled)
    if not np.isin(labels, sampled).all():
        raise ValueError("every label must be among the sampled classes")
    state = STATES.get(loss, {}) if state is None else state
    x, w, b, example_weights = (
        tf.constant(value, tf.float64)
        for value in (
            embeddings,
            weight,
            np.zeros(classes) if bias is None else bias,
            example_weights,
        )
    )
    chosen = tf.one_hot(sampled, classes, dtype=tf.float64)
    hit = tf.constant(np.asarray(labels)[:, None] == sampled[None, :])
    with tf.GradientTape() as tape:
        tape.watch([x, w, b])
        rows, penalty = tf.tensordot(chosen, w, 1), 0.0
        if loss == "softmax":
            logits = x @ tf.transpose(rows) + tf.linalg.matvec(chosen, b)
        else:
            norms = tf.norm(x, axis=1)
            unit = rows / tf.norm(rows, axis=-1, keepdims=True)
            cosine = tf.tensordot(x / norms[:, None], unit, [[1], [-1]])
            if len(unit.shape) == 3:
                cosine = tf.reduce_max(cosine, axis=2)
            true = tf.boolean_mask(cosine, hit)
            values = true.numpy(), norms.numpy()
            state = next_state(loss, *values, example_weights, state, **given)
            value, penalty = target(loss, true, norms, state, straight_through, **given)
            rest = others(loss, cosine, true, state, interclass_filter, **given)
            logits = scale * tf.where(hit, value[:, None], rest)
        cross_entropies = -tf.nn.log_softmax(logits)
        losses = (1 - label_smoothing) * tf.boolean_mask(cross_entropies, hit)
        losses += label_smoothing / classes * tf.reduce_sum(cross_entropies, axis=1)
        losses += penalty
        mean = tf.reduce_sum(example_weights * losses) / tf.reduce_sum(example_weights)
    dx, dw, db = tape.gradient(mean, [x, w, b])
    return {
        "losses": losses.numpy(),
        "embedding_gradients": dx.numpy(),
        "weight_gradients": dw.numpy(),
        "bias_gradients": None if bias is None else db.numpy(),
        "state": state,
    }


def sgd(w, g, slots, step, *, rate, momentum=0.9, nesterov=False):
    """Keras: the slot holds learning_rate · velocity."""
    m = momentum * slots.get("momentum", 0.0) - rate * g
    return w + (momentum * m - rate * g if nesterov else m), {"momentum": m}


def plsc_momentum(w, g, slots, step, *, rate, momentum=0.9):
    """Paddle and PyTorch: the rate stays outside of the slot."""
    v = momentum * slots.get("velocity", 0.0) + g
    return w - rate * v, {"velocity": v}


def adam(w, g, slots, step, *, rate, beta_1=0.9, beta_2=0.999, epsilon=1e-7):
    """Keras: epsilon is added before the bias correction."""
    m = beta_1 * slots.get("momentum", 0.0) + (1 - beta_1) * g
    v = beta_2 * slots.get("velocity", 0.0) + (1 - beta_2) * g**2
    rate = rate * np.sqrt(1 - beta_2**step) / (1 - beta_1**step)
    return w - rate * m / (np.sqrt(v) + epsilon), {"momentum": m, "velocity": v}


def lars(w, g, slots, step, *, rate, momentum=0.9, decay=0.0, coefficient=0.001):
    """arXiv:1708.03888, algorithm 1; vectors have neither trust ratio nor decay."""
    if w.ndim > 1:
        norm = np.sqrt((w**2).sum())
        rate *= coefficient * norm / (np.sqrt((g**2).sum()) + decay * norm)
        g = g + decay * w
    m = momentum * slots.get("velocity", 0.0) + rate * g
    return w - m, {"velocity": m}


RULES = {rule.__name__: rule for rule in (lars, sgd, plsc_momentum, adam)}
RULES["adamw"] = adam


def update(
    rule,
    weights,
    gradients,
    slots=None,
    *,
    rate,
    step=1,
    clip_norm=None,
    l2=0.0,
    weight_decay=0.0,
    **given,
):
    """One step of an optimizer over lists of float64 arrays.

    Args:
        rule: a name in `RULES`.
        slots: list of `{Keras's slot name: array}`; None before the first step.
        step: 1, 2, 3, …
        clip_norm: bound of the norm over all gradients together (global_clipnorm).
        l2: added to the clipped gradient, times the weight (PLSC).
        weight_decay: decoupled, times rate (AdamW; Keras's default there is 0.004).

    Returns:
        (new weights, new slots).
    """
    slots = slots or [{} for _ in weights]
    shrink = 1.0
    if clip_norm:
        shrink = min(1.0, clip_norm / np.sqrt(sum((g**2).sum() for g in gradients)))
    moved = []
    for w, g, slot in zip(weights, gradients, slots, strict=True):
        g = shrink * g + l2 * w
        decayed = w - rate * weight_decay * w
        moved.append(RULES[rule](decayed, g, slot, step, rate=rate, **given))
    return [w for w, _ in moved], [slot for _, slot in moved]
