"""What the float64 oracle makes of the steps of `head_stepper.Stepper`."""

import numpy as np

from tests.conformance.head_case import (
    BOUND,
    LAYER_WISE,
    LOSSES,
    OPTIMIZERS,
    RATE,
)
from tests.heads import oracle


def update(optimizer, weights, gradients, slots, step):
    """`oracle.update` for one of `OPTIMIZERS`, over dicts of arrays."""
    _, rule, given = (OPTIMIZERS | LAYER_WISE)[optimizer]
    names = list(weights)
    groups = [names]
    bound = None
    if "clipnorm" in optimizer:
        bound = BOUND
        groups = [names] if optimizer == "global_clipnorm" else [[n] for n in names]
    moved, kept = {}, {}
    for group in groups:
        chosen = [gradients[name] for name in group]
        if bound:  # or the case would not show whether it is clipped
            assert sum((g**2).sum() for g in chosen) > bound**2
        new, new_slots = oracle.update(
            rule,
            [weights[name] for name in group],
            chosen,
            [slots.get(name, {}) for name in group],
            rate=RATE,
            step=step,
            clip_norm=bound,
            **given,
        )
        moved |= dict(zip(group, new, strict=True))
        kept |= dict(zip(group, new_slots, strict=True))
    return moved, kept


class Expected:
    """The same by the oracle: dense, unsharded, float64."""

    def __init__(self, case, example):
        self.case = case
        self.weights = {"kernel": example.kernel, "weight": example.weight}
        if "softmax" in case.loss:
            self.weights["bias"] = example.bias
        self.slots = {name: {} for name in self.weights}
        self.state = None
        self.steps = 0

    def step(self, inputs, labels, example_weights, sampled=None):
        """Moves everything by one step; returns what `Stepper.step` does."""
        found = self.gradients(inputs, labels, example_weights, sampled)
        self.apply(found.pop("by"), sampled)
        return found

    def gradients(self, inputs, labels, example_weights, sampled=None):
        """What `step` returns and `by`, the gradients of all weights."""
        embeddings = inputs @ self.weights["kernel"]
        ranks = self.ranks(embeddings, labels, sampled)
        found = oracle.head_step(
            self.weights["weight"],
            self.weights.get("bias"),
            embeddings,
            labels,
            example_weights,
            scale=self.case.scale,
            state=self.state,
            sampled=sampled,
            **LOSSES[self.case.loss][1],
        )
        self.state = found["state"]
        return {
            "losses": found["losses"],
            "gradients": found["embedding_gradients"],
            "ranks": ranks,
            "by": {
                "kernel": inputs.T @ found["embedding_gradients"],
                "weight": found["weight_gradients"],
                "bias": found["bias_gradients"],
            },
        }

    def step_in_parts(self, batch, parts, sampled=None):
        """Moves everything by one step, whose parts follow each other.

        Args:
            batch: (inputs, labels, example weights).
            parts: lists of the batch's examples.
            sampled: as of `step`.

        Returns:
            dict of the `loss`, Σ weight · loss / number of examples, and `accuracy`.
        """
        total, loss, correct, by = len(batch[2]), 0.0, 0.0, {}
        for part in parts:
            own = [value[part] for value in batch]
            found = self.gradients(*own, sampled)
            share = own[2].sum() / total
            loss += (own[2] * found["losses"]).sum() / total
            correct += (found["ranks"] == 0).sum() / total
            for name in self.weights:
                by[name] = by.get(name, 0.0) + share * found["by"][name]
        self.apply(by, sampled)
        return {"loss": loss, "accuracy": correct}

    def ranks(self, embeddings, labels, sampled):
        """How many of the classes that take part score above the true one."""
        weight = self.weights["weight"]
        if "bias" in self.weights:
            scores = embeddings @ weight.T + self.weights["bias"]
        else:
            unit = weight / np.linalg.norm(weight, axis=-1, keepdims=True)
            scores = np.tensordot(embeddings, unit, [[1], [-1]])
            scores = scores.max(axis=2) if scores.ndim == 3 else scores
        above = scores > scores[np.arange(len(labels)), labels][:, None]
        return above[:, slice(None) if sampled is None else sampled].sum(axis=1)

    def apply(self, gradients, sampled=None):
        """The update; of classes that are not sampled nothing changes."""
        self.steps += 1
        rows = {name: slice(None) for name in self.weights}
        if sampled is not None:
            rows |= {"weight": sampled, "bias": sampled}
        moved, kept = update(
            self.case.optimizer,
            {name: value[rows[name]] for name, value in self.weights.items()},
            {name: gradients[name][rows[name]] for name in self.weights},
            {
                name: {s: value[rows[name]] for s, value in slots.items()}
                for name, slots in self.slots.items()
            },
            self.steps,
        )
        for name, value in moved.items():
            self.weights[name] = self.weights[name].copy()
            self.weights[name][rows[name]] = value
            for slot, new in kept[name].items():
                whole = self.slots[name].get(slot, np.zeros_like(self.weights[name]))
                whole[rows[name]] = new
                self.slots[name][slot] = whole

    def whole_slots(self):
        """`{"weight/velocity": array}`, as of `Stepper.slots`."""
        return {
            f"{name}/{slot}": value
            for name, held in self.slots.items()
            for slot, value in held.items()
        }


def close(actual, expected, tolerance):
    """Asserts it, relative to the largest number."""
    bound = tolerance * np.abs(expected).max()
    np.testing.assert_allclose(actual, expected, rtol=0, atol=bound)
