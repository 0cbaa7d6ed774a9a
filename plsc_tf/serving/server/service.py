"""What every interface does with a request: check it, run it, answer it."""

from plsc_tf.serving.server.errors import RequestError, invalid

PICTURES_OUTPUT = "embedding"


class Service:
    """The model behind all interfaces."""

    def __init__(self, models, limits):
        """Serves `models` within `limits`."""
        self.models, self.limits = models, limits

    async def predict(self, servable, signature, inputs):
        """Computes the outputs of inputs that are checked here.

        Args:
            servable: the `Servable`.
            signature: name of one of its signatures.
            inputs: dict, input name -> array [N, ...] or list of N bytes.

        Returns:
            dict, output name -> array [N, ...].

        Raises:
            RequestError: the inputs are wrong, or cannot be computed now.
        """
        specs = servable.model.inputs(signature)
        if set(inputs) != set(specs):
            raise invalid(
                f"input size does not match signature: {len(inputs)}!={len(specs)}. "
                f"Sent extra: {sorted(set(inputs) - set(specs))}. Missing but "
                f"required: {sorted(set(specs) - set(inputs))}."
            )
        counts = {len(value) for value in inputs.values()}
        if len(counts) != 1:
            raise invalid("All inputs must have the same number of rows.")
        (count,) = counts
        self.limits.check_count(count)
        weights = [0] * count
        for name, (dtype, shape) in specs.items():
            if dtype.kind == "O":
                for index, data in enumerate(inputs[name]):
                    weights[index] += self.limits.check_picture(index, data)
            else:
                _check_shape(name, inputs[name], shape)
        rows = [{name: inputs[name][i] for name in specs} for i in range(count)]
        return await servable.batchers[signature].run(rows, weights)

    async def embed(self, pictures):
        """Embeddings of encoded pictures by the newest version.

        Args:
            pictures: list of N bytes.

        Returns:
            (float32 [N, embedding_size], the `Servable` that made them).
        """
        servable = self.models.get()
        signature = servable.check_signature("")
        names = [
            name
            for name, (dtype, _) in servable.model.inputs(signature).items()
            if dtype.kind == "O"
        ]
        if len(names) != 1:
            raise RequestError(
                "UNIMPLEMENTED", "The model's default signature takes no pictures."
            )
        outputs = await self.predict(servable, signature, {names[0]: pictures})
        if PICTURES_OUTPUT not in outputs and len(outputs) > 1:
            raise RequestError(
                "UNIMPLEMENTED", f"The model has no output {PICTURES_OUTPUT!r}."
            )
        return outputs.get(PICTURES_OUTPUT, next(iter(outputs.values()))), servable


def _check_shape(name, array, shape):
    if shape is None:
        return
    fits = array.ndim == len(shape) and all(
        wanted in (None, size)
        for wanted, size in zip(shape[1:], array.shape[1:], strict=True)
    )
    if not fits:
        wanted = [-1 if size is None else size for size in shape]
        raise invalid(f"Input {name} must be {wanted}. Received: {list(array.shape)}.")
