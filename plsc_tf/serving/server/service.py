"""The work behind every interface: check a request, run it, return the outputs."""

import numpy as np

from plsc_tf.serving.server.errors import RequestError, invalid
from plsc_tf.serving.server.image_size import num_pixels

EMBEDDING_OUTPUT = "embedding"


class Service:
    """The model behind all interfaces, and the limits of a request.

    Args:
        models: the `Models`.
        options: the option group `server`.
    """

    def __init__(self, models, options):
        self.models, self._options = models, options

    async def predict(self, version, signature: str, inputs: dict) -> dict:
        """Computes the outputs of inputs after checking them.

        Args:
            version: the `LoadedModel`.
            signature: name of one of its signatures.
            inputs: dict, input name -> array [N, ...] or list of N bytes.

        Returns:
            dict, output name -> array [N, ...].

        Raises:
            RequestError: the inputs are wrong, or cannot be computed now.
        """
        specs = version.inputs(signature)
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
        self.check_count(count)
        pixels = [0] * count
        for name, (dtype, shape) in specs.items():
            if dtype.kind == "O":
                for index, data in enumerate(inputs[name]):
                    pixels[index] += self._check_image(index, data)
            else:
                _check_shape(name, inputs[name], shape)
        rows = [{name: inputs[name][i] for name in specs} for i in range(count)]
        return await version.batchers[signature].run(rows, pixels)

    async def embed(self, images: list[bytes]):
        """Embeds encoded images by the newest version.

        Returns:
            (float32 [N, embedding_size], the `LoadedModel` that made them).
        """
        version = self.models.get()
        signature = version.check_signature("")
        specs = version.inputs(signature)
        names = [name for name, (dtype, _) in specs.items() if dtype.kind == "O"]
        if len(names) != 1:
            raise RequestError(
                "UNIMPLEMENTED", "The model's default signature takes no images."
            )
        outputs = await self.predict(version, signature, {names[0]: images})
        if EMBEDDING_OUTPUT not in outputs and len(outputs) > 1:
            raise RequestError(
                "UNIMPLEMENTED", f"The model has no output {EMBEDDING_OUTPUT!r}."
            )
        return outputs.get(EMBEDDING_OUTPUT, next(iter(outputs.values()))), version

    def check_count(self, count: int) -> None:
        """Raises RequestError if a request has no image, or too many."""
        limit = self._options.max_request_images
        if not count:
            raise invalid("The request has no image.")
        if count > limit:
            raise _too_large(f"A request may have {limit} images. Received: {count}.")

    def _check_image(self, index, data):
        """Returns the pixels of an encoded image; nothing is decoded."""
        limit = int(self._options.max_image_mb * 1e6)
        if len(data) > limit:
            raise _too_large(
                f"Image {index} has {len(data)} bytes; {limit} are allowed."
            )
        pixels, limit = num_pixels(data), int(self._options.max_megapixels * 1e6)
        if pixels is None:
            raise invalid(f"Image {index} is not a JPEG, PNG or GIF.")
        if pixels > limit:
            raise _too_large(f"Image {index} has {pixels} pixels; {limit} are allowed.")
        return pixels


def _too_large(message):
    return RequestError("TOO_LARGE", message)


def _check_shape(name: str, array: np.ndarray, shape: tuple | None) -> None:
    if shape is None:
        return
    fits = array.ndim == len(shape) and all(
        wanted in (None, size)
        for wanted, size in zip(shape[1:], array.shape[1:], strict=True)
    )
    if not fits:
        wanted = [-1 if size is None else size for size in shape]
        raise invalid(f"Input {name} must be {wanted}. Received: {list(array.shape)}.")
