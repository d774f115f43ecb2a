"""Products of tall matrices, which have a row for each sample, as machine code for this processor.

What is left of a gradient where most pixels are skipped are products of activations with one
another, over all samples. Libraries turn a tall matrix around for them, which takes longer than the
product. The loops written here read both matrices row by row, and only half of the second moment of
one: the other half is the same.
"""

from collections.abc import Callable, Sequence
from functools import partial
from math import isqrt
from typing import Any

import jax.numpy as jnp
from jax.extend.core import Primitive
from jax.interpreters import ad, mlir
from jaxtyping import Array, Float

from .machine_code import INTEGER, Code, Value, called

# So many rows of both matrices stay in the processor's nearest cache until they are done with.
_ROWS = 64

Tall = Float[Array, "samples units"]
Small = Float[Array, "units others"]


def times(tall: Tall, weights: Small) -> Float[Array, "samples others"]:
    """A tall matrix times a small one, whose gradient is an `inner` product; not for `vmap`."""
    return _times.bind(*_matched(tall, weights, axes=(1, 0)))


def inner(left: Tall, right: Float[Array, "samples others"]) -> Small:
    """The product of a tall matrix, transposed, with another one; not for `vmap`.

    >>> inner(jnp.array([[1.0, 2.0], [0.0, 1.0]]), jnp.array([[1.0], [3.0]]))
    Array([[1.],
           [5.]], dtype=float64)
    """
    return _inner.bind(*_matched(left, right, axes=(0, 0)))


def _matched(left: Array, right: Array, axes: tuple[int, int]) -> tuple[Array, Array]:
    """Two matrices as precise as the more precise of them; raises unless these axes are as long."""
    left, right = jnp.asarray(left), jnp.asarray(right)
    if not left.ndim == right.ndim == 2 or left.shape[axes[0]] != right.shape[axes[1]]:
        raise ValueError(
            f"axis {axes[0]} of one matrix and {axes[1]} of the other must be as long, got "
            f"matrices of the shapes {left.shape} and {right.shape}"
        )
    precision = jnp.promote_types(left.dtype, right.dtype)
    return left.astype(precision), right.astype(precision)


def own_inner(values: Tall) -> Float[Array, "units units"]:
    """`inner(values, values)` with half the work; not to be differentiated."""
    _, units = values.shape
    name, write = f"own_inner_{units}", partial(_write, rows=units, outputs=units, own=True)
    return called(name, write, (units, units), values)


def _inner_by_code(left: Tall, right: Float[Array, "samples others"]) -> Small:
    rows, outputs = shape = left.shape[1], right.shape[1]
    write = partial(_write, rows=rows, outputs=outputs, own=False)
    return called(f"inner_{rows}_{outputs}", write, shape, left, right)


# Each is the other's derivative: with the cotangent of one, both gradients are products again.


def _bilinear(
    name: str,
    apply: Callable[[Array, Array], Array],
    shape: Callable[[Any, Any], tuple[int, int]],
    gradients: tuple[Callable[..., Array], Callable[..., Array]],
) -> Primitive:
    primitive = Primitive(name)
    primitive.def_impl(apply)
    primitive.def_abstract_eval(lambda left, right: left.update(shape=shape(left, right)))
    mlir.register_lowering(primitive, mlir.lower_fun(apply, multiple_results=False))
    ad.defbilinear(primitive, *gradients)
    return primitive


_times = _bilinear(
    "tall_times",
    jnp.matmul,
    lambda tall, weights: (tall.shape[0], weights.shape[1]),
    (
        lambda cotangent, tall, weights: times(cotangent, weights.T),
        lambda cotangent, tall, weights: inner(tall, cotangent),
    ),
)
_inner = _bilinear(
    "tall_inner",
    _inner_by_code,
    lambda left, right: (left.shape[1], right.shape[1]),
    (
        lambda cotangent, left, right: times(right, cotangent.T),
        lambda cotangent, left, right: times(left, cotangent),
    ),
)


def _write(code: Code, rows: int, outputs: int, own: bool) -> None:
    """For some samples at a time, and some rows and vectors of the result: adds their products.

    Args:
        code: What is written.
        rows: The rows of the result, columns of the left matrix.
        outputs: The columns of the result and of the right matrix.
        own: Whether both matrices are one and the same.
    """
    left = code.array(code.arguments, 0, code.number)
    right = left if own else code.array(code.arguments, 1, code.number)
    result = code.array(code.results, 0, code.number)
    code.clear(result, INTEGER(rows * outputs))
    write = code.write

    def add(run: list[tuple[int, int]], row: Value, count: int, start: Value, end: Value) -> None:
        """To so many rows from one on, and the vectors of a run: what samples add."""
        tops = [write.mul(write.add(row, INTEGER(k)), INTEGER(outputs)) for k in range(count)]
        places = [(write.add(top, INTEGER(first)), width) for top in tops for first, width in run]

        def sample(number: Value, *sums: Value) -> list[Value]:
            here = write.mul(number, INTEGER(outputs))
            factors = [
                code.load_vector(right, write.add(here, INTEGER(first)), width)
                for first, width in run
            ]
            there = write.add(write.mul(number, INTEGER(rows)), row)
            numbers = [code.load(left, write.add(there, INTEGER(k))) for k in range(count)]
            pairs = [(number, factor) for number in numbers for factor in factors]
            return [code.plus_product(sum_, *pair) for sum_, pair in zip(sums, pairs, strict=True)]

        # Sums of so many samples start anew: one running sum over all would lose digits.
        sums = code.loop(start, end, sample, [code.zeros(width) for _, width in places])
        for sum_, (place, width) in zip(sums, places, strict=True):
            before = code.load_vector(result, place, width)
            code.store_vector(write.fadd(before, sum_), result, place)

    # Of r registers, k² + k + 1 hold the sums of k rows of k vectors, and what they are made of.
    registers = code.processor.registers
    runs = code.pieces(outputs, (isqrt(4 * registers - 3) - 1) // 2)
    samples = code.length(code.arguments, 0)

    def some_samples(number: Value) -> Sequence[Value]:
        start = write.mul(number, INTEGER(_ROWS))
        end = write.add(start, INTEGER(_ROWS))
        end = write.select(write.icmp_signed("<", end, samples), end, samples)
        for run in runs:
            last = sum(run[-1])
            needed = min(rows, last) if own else rows
            at_most = (registers - 1) // len(run) - 1
            count = -(-needed // -(-needed // at_most))  # as evenly as can be

            def some_rows(number: Value, run=run, count=count) -> Sequence[Value]:
                add(run, write.mul(number, INTEGER(count)), count, start, end)
                return ()

            whole, rest = divmod(needed, count)
            code.loop(INTEGER(0), INTEGER(whole), some_rows)
            if rest:
                add(run, INTEGER(needed - rest), rest, start, end)
        return ()

    times = write.sdiv(write.add(samples, INTEGER(_ROWS - 1)), INTEGER(_ROWS))
    code.loop(INTEGER(0), times, some_samples)
    if own:
        _mirror(code, result, rows)
    code.end()


def _mirror(code: Code, matrix: Value, rows: int) -> None:
    """Writes what is above the diagonal of a square matrix below it, too."""

    def place(row: Value, column: Value) -> Value:
        start = code.write.mul(row, INTEGER(rows))
        return code.write.gep(matrix, [code.write.add(start, column)])

    def each_row(row: Value) -> Sequence[Value]:
        def each_column(column: Value) -> Sequence[Value]:
            code.write.store(code.write.load(place(column, row)), place(row, column))
            return ()

        code.loop(INTEGER(0), row, each_column)
        return ()

    code.loop(INTEGER(0), INTEGER(rows), each_row)
