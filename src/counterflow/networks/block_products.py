"""Products with images in blocks, as machine code for this processor.

No matrix product of a library skips the pixels that are blank, and those that skip every blank
pixel of every image read the weights anew for each: slower than not to skip. Four images at a time
share what is read, and their products stay in the processor's registers; which takes loops that
nothing but a compiler can write. They are written here in LLVM's language, compiled as soon as they
are needed for some number of outputs, and called by XLA.
"""

from collections.abc import Callable, Sequence
from functools import partial

from jaxtyping import Array, Float, Int

from .machine_code import HALF, INTEGER, Code, Value, called

#: So many images are in a block.
IMAGES = 4

Starts = Int[Array, " starts"]
Pixels = Int[Array, " entries"]
Values = Float[Array, "entries 4"]


def product(
    starts: Starts, pixels: Pixels, values: Values, weights: Float[Array, "pixels outputs"]
) -> Float[Array, "images outputs"]:
    """The product of images in blocks with weights, not to be differentiated.

    Args:
        starts: At which entry each block starts, and after the last of them how many there are.
        pixels: By entry, its pixel.
        values: By entry, what the images of its block have at its pixel.
        weights: The weights, as precise as the values.
    """
    shape = (IMAGES * (len(starts) - 1), weights.shape[1])
    return _called("product", shape, starts, pixels, values, weights)


def transposed_product(
    starts: Starts,
    pixels: Pixels,
    values: Values,
    rows: Float[Array, "images outputs"],
    count: int,
) -> Float[Array, "pixels outputs"]:
    """The product of the transposed images with rows, one for each image, for so many pixels."""
    shape = (count, rows.shape[1])
    return _called("transposed_product", shape, starts, pixels, values, rows)


def _called(kind: str, shape: tuple[int, int], *arrays: Array) -> Array:
    outputs = shape[1]
    return called(f"{kind}_{outputs}", partial(_WRITERS[kind], outputs=outputs), shape, *arrays)


def _write_product(code: Code, outputs: int) -> None:
    """For every block and some vectors of a row: the images' sums over the block's entries."""
    weights = code.array(code.arguments, 3, code.number)
    products = code.array(code.results, 0, code.number)
    entry_at = _entries(code, outputs)
    together = (code.processor.registers - 1) // (IMAGES + 1)

    def block(number: Value, start: Value, end: Value) -> None:
        row = code.write.mul(number, INTEGER(IMAGES * outputs))
        for run in code.pieces(outputs, together):
            places = [(image, *piece) for image in range(IMAGES) for piece in run]

            def entry(number: Value, *sums: Value, run=run) -> Sequence[Value]:
                pixel, numbers = entry_at(number)
                factors = [
                    code.load_vector(weights, code.write.add(pixel, INTEGER(start)), width)
                    for start, width in run
                ]
                pairs = [(number, factor) for number in numbers for factor in factors]
                return [
                    code.plus_product(sum_, *pair) for sum_, pair in zip(sums, pairs, strict=True)
                ]

            sums = code.loop(start, end, entry, [code.zeros(width) for _, _, width in places])
            for sum_, (image, first, _) in zip(sums, places, strict=True):
                place = code.write.add(row, INTEGER(image * outputs + first))
                code.store_vector(sum_, products, place)

    _each_block(code, block)


def _write_transposed_product(code: Code, outputs: int) -> None:
    """For every block and some vectors of a row: adds the images' part of each entry's pixel."""
    rows = code.array(code.arguments, 3, code.number)
    sums = code.array(code.results, 0, code.number)
    entry_at = _entries(code, outputs)
    together = (code.processor.registers - IMAGES) // IMAGES

    code.clear(sums, code.write.mul(code.length(code.results, 0), INTEGER(outputs)))

    def block(number: Value, start: Value, end: Value) -> None:
        row = code.write.mul(number, INTEGER(IMAGES * outputs))
        for run in code.pieces(outputs, together):
            factors = {
                (image, first): code.load_vector(
                    rows, code.write.add(row, INTEGER(image * outputs + first)), width
                )
                for image in range(IMAGES)
                for first, width in run
            }

            def entry(number: Value, run=run, factors=factors) -> Sequence[Value]:
                pixel, numbers = entry_at(number)
                for first, width in run:
                    place = code.write.add(pixel, INTEGER(first))
                    sum_ = code.load_vector(sums, place, width)
                    for image, number in enumerate(numbers):
                        sum_ = code.plus_product(sum_, number, factors[image, first])
                    code.store_vector(sum_, sums, place)
                return ()

            code.loop(start, end, entry)

    _each_block(code, block)


_WRITERS = {"product": _write_product, "transposed_product": _write_transposed_product}


def _each_block(code: Code, body: Callable[[Value, Value, Value], None]) -> None:
    """Writes a loop over the blocks; its body is given a block, its first entry and their end."""
    starts = code.array(code.arguments, 0, HALF)

    def block(number: Value) -> Sequence[Value]:
        bounds = (number, code.write.add(number, INTEGER(1)))
        body(number, *(code.write.sext(code.load(starts, bound), INTEGER) for bound in bounds))
        return ()

    code.loop(INTEGER(0), code.write.sub(code.length(code.arguments, 0), INTEGER(1)), block)
    code.end()


def _entries(code: Code, outputs: int) -> Callable[[Value], tuple[Value, list[Value]]]:
    """What tells of an entry where the row of its pixel starts, and what the images have there."""
    pixels = code.array(code.arguments, 1, HALF)
    values = code.array(code.arguments, 2, code.number)

    def entry_at(number: Value) -> tuple[Value, list[Value]]:
        pixel = code.write.sext(code.load(pixels, number), INTEGER)
        first = code.write.mul(number, INTEGER(IMAGES))
        places = [code.write.add(first, INTEGER(image)) for image in range(IMAGES)]
        row = code.write.mul(pixel, INTEGER(outputs))
        return row, [code.load(values, place) for place in places]

    return entry_at
