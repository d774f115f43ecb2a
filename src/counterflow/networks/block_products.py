"""Products with images in blocks, as machine code for this processor.

No matrix product of a library skips the pixels that are blank, and those that skip every blank
pixel of every image read the weights anew for each: slower than not to skip. Four images at a time
share what is read, and their products stay in the processor's registers; which takes loops that
nothing but a compiler can write. They are written here in LLVM's language, compiled as soon as they
are needed for some number of outputs, and called by XLA.
"""

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import jax
import numpy as np
from jaxtyping import Array, Float, Int
from llvmlite import binding, ir

#: So many images are in a block.
IMAGES = 4
_INTEGER, _HALF, _ADDRESS = ir.IntType(64), ir.IntType(32), ir.IntType(8).as_pointer()
_Number = ir.FloatType | ir.DoubleType
_Value = Any  # of llvmlite, which does not tell type checkers that its values have types
_TYPES: dict[str, _Number] = {"float32": ir.FloatType(), "float64": ir.DoubleType()}

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
    precision = arrays[-1].dtype
    name = _registered(kind, shape[1], str(precision))
    return jax.ffi.ffi_call(name, jax.ShapeDtypeStruct(shape, precision))(*arrays)


@cache
def _registered(kind: str, outputs: int, precision: str) -> str:
    """The name under which XLA knows a product with so many outputs, compiled when first asked."""
    name = f"counterflow_{kind}_{outputs}_{precision}"
    address = _compiled(name, partial(_WRITERS[kind], outputs=outputs), precision)
    function = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)(address)
    jax.ffi.register_ffi_target(name, jax.ffi.pycapsule(function), platform="cpu")
    return name


_engines: list[Any] = []  # that own the machine code: it is theirs to free


def _compiled(name: str, write: Callable[["_Code"], None], precision: str) -> int:
    """The address of a function that XLA can call."""
    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    processor = _processor()
    module = ir.Module(name)
    write(_Code(module, name, _TYPES[precision], processor))
    compiled = binding.parse_assembly(str(module))
    compiled.verify()
    machine = binding.Target.from_default_triple().create_target_machine(
        cpu=processor.name, features=processor.features, opt=2
    )
    engine = binding.create_mcjit_compiler(compiled, machine)
    engine.finalize_object()
    _engines.append(engine)
    return engine.get_function_address(name)


@dataclass(frozen=True)
class _Processor:
    """What this processor has: its name and features for LLVM, and its vector registers."""

    name: str
    features: str
    register_bytes: int
    registers: int


@cache
def _processor() -> _Processor:
    features = binding.get_host_cpu_features()
    many = features.get("avx512f", False)
    wide = many or features.get("avx", False)
    bytes_ = 64 if many else 32 if wide else 16
    registers = 32 if many or features.get("neon", False) else 16
    return _Processor(binding.get_host_cpu_name(), features.flatten(), bytes_, registers)


# --- the code ---------------------------------------------------------------------------------


class _Code:
    """A function for XLA that is being written, with its arrays and pieces of vectors.

    XLA hands over the address of a frame, whose layout is that of XLA's C interface for foreign
    functions. Asked for its version, the function answers with that of the interface.
    """

    def __init__(self, module: ir.Module, name: str, number: _Number, processor: _Processor):
        self.number, self.processor = number, processor
        function = ir.Function(module, ir.FunctionType(_ADDRESS, [_ADDRESS]), name)
        self.write: Any = ir.IRBuilder(function.append_basic_block())
        frame = function.args[0]
        extension = self.slot(frame, _FRAME_EXTENSION)
        with self.write.if_then(self.write.icmp_unsigned("!=", extension, _NOTHING)):
            version = self.slot(extension, _EXTENSION_METADATA)
            for part, value in zip(_METADATA_VERSION, _VERSION, strict=True):
                address = self.write.bitcast(version, _HALF.as_pointer())
                self.write.store(_HALF(value), self.write.gep(address, [_INTEGER(part)]))
            self.write.ret(_NOTHING)
        self.arguments = self.slot(frame, _FRAME_ARGUMENTS)
        self.results = self.slot(frame, _FRAME_RESULTS)

    def slot(self, address: _Value, position: int, kind: ir.Type = _ADDRESS) -> _Value:
        """What is at a position, in words of eight bytes, from an address on."""
        return self.load(self.write.bitcast(address, kind.as_pointer()), _INTEGER(position))

    def array(self, arrays: _Value, position: int, kind: ir.Type) -> _Value:
        """The numbers of one of the arrays."""
        data = self.slot(self.slot(arrays, position), _BUFFER_DATA)
        return self.write.bitcast(data, kind.as_pointer())

    def length(self, arrays: _Value, position: int) -> _Value:
        """The first dimension of one of the arrays."""
        dimensions = self.slot(self.slot(arrays, position), _BUFFER_DIMENSIONS)
        return self.slot(dimensions, 0, _INTEGER)

    def load(self, array: _Value, position: _Value) -> _Value:
        return self.write.load(self.write.gep(array, [position]))

    def at(self, array: _Value, position: _Value, width: int) -> _Value:
        """Where a vector of so many numbers starts, at a position of an array."""
        kind = ir.VectorType(self.number, width).as_pointer()
        return self.write.bitcast(self.write.gep(array, [position]), kind)

    def load_vector(self, array: _Value, position: _Value, width: int) -> _Value:
        return self.write.load(self.at(array, position, width), align=self.alignment)

    def store_vector(self, vector: _Value, array: _Value, position: _Value) -> None:
        address = self.at(array, position, vector.type.count)
        self.write.store(vector, address, align=self.alignment)

    @property
    def alignment(self) -> int:
        """Bytes of a number: rows of any number of them start anywhere."""
        return 8 if self.number == _TYPES["float64"] else 4

    def plus_product(self, vector: _Value, number: _Value, factor: _Value) -> _Value:
        """`vector + number · factor`, in one operation where the processor has one."""
        kind = vector.type
        nothing = ir.Constant(kind, ir.Undefined)
        one = self.write.insert_element(nothing, number, _HALF(0))
        everywhere = ir.Constant(ir.VectorType(_HALF, kind.count), [0] * kind.count)
        numbers = self.write.shuffle_vector(one, nothing, everywhere)
        module, name = self.write.module, f"llvm.fmuladd.v{kind.count}{self.number.intrinsic_name}"
        multiply = module.globals.get(name)
        if multiply is None:
            multiply = ir.Function(module, ir.FunctionType(kind, [kind] * 3), name)
        return self.write.call(multiply, [numbers, factor, vector])

    def loop(
        self,
        start: _Value,
        end: _Value,
        body: Callable[..., Sequence[_Value]],
        values: Sequence[_Value] = (),
    ) -> list[_Value]:
        """Writes a loop: `values = body(k, *values)` for `k` from start to before end."""
        write = self.write
        before, inside, after = write.block, *(write.append_basic_block() for _ in range(2))
        write.cbranch(write.icmp_signed("<", start, end), inside, after)
        write.position_at_end(inside)
        number, *carried = [write.phi(value.type) for value in (start, *values)]
        changed = body(number, *carried)
        following, last = write.add(number, _INTEGER(1)), write.block
        for phi, old, new in zip(
            (number, *carried), (start, *values), (following, *changed), strict=True
        ):
            phi.add_incoming(old, before)
            phi.add_incoming(new, last)
        write.cbranch(write.icmp_signed("<", following, end), inside, after)
        write.position_at_end(after)
        results = [write.phi(value.type) for value in values]
        for phi, old, new in zip(results, values, changed, strict=True):
            phi.add_incoming(old, before)
            phi.add_incoming(new, last)
        return results

    def pieces(self, outputs: int, together: int) -> list[list[tuple[int, int]]]:
        """A row of outputs in vectors (where they start, how long), at most so many together."""
        vectors, width, start = [], self.processor.register_bytes // self.alignment, 0
        while start < outputs:
            while width > outputs - start:
                width //= 2
            vectors.append((start, width))
            start += width
        runs = np.array_split(np.arange(len(vectors)), -(-len(vectors) // together))
        return [[vectors[k] for k in run] for run in runs]


# Where things are in XLA's frame, in words of eight bytes, and its metadata, in those of four.
_FRAME_EXTENSION, _FRAME_ARGUMENTS, _FRAME_RESULTS = 1, 9, 14
_BUFFER_DATA, _BUFFER_DIMENSIONS = 3, 5
_EXTENSION_METADATA, _METADATA_VERSION, _VERSION = 3, (6, 7), (0, 3)
_NOTHING = ir.Constant(_ADDRESS, None)


def _write_product(code: _Code, outputs: int) -> None:
    """For every block and some vectors of a row: the images' sums over the block's entries."""
    weights = code.array(code.arguments, 3, code.number)
    products = code.array(code.results, 0, code.number)
    together = (code.processor.registers - 1) // (IMAGES + 1)

    def block(number: _Value, start: _Value, end: _Value) -> None:
        row = code.write.mul(number, _INTEGER(IMAGES * outputs))
        for run in code.pieces(outputs, together):
            places = [(image, *piece) for image in range(IMAGES) for piece in run]

            def entry(number: _Value, *sums: _Value, run=run) -> Sequence[_Value]:
                pixel, numbers = _entry(code, number, outputs)
                factors = [
                    code.load_vector(weights, code.write.add(pixel, _INTEGER(start)), width)
                    for start, width in run
                ]
                pairs = [(number, factor) for number in numbers for factor in factors]
                return [
                    code.plus_product(sum_, *pair) for sum_, pair in zip(sums, pairs, strict=True)
                ]

            zeros = [ir.Constant(ir.VectorType(code.number, w), [0.0] * w) for _, _, w in places]
            sums = code.loop(start, end, entry, zeros)
            for sum_, (image, first, _) in zip(sums, places, strict=True):
                place = code.write.add(row, _INTEGER(image * outputs + first))
                code.store_vector(sum_, products, place)

    _each_block(code, block)


def _write_transposed_product(code: _Code, outputs: int) -> None:
    """For every block and some vectors of a row: adds the images' part of each entry's pixel."""
    rows = code.array(code.arguments, 3, code.number)
    sums = code.array(code.results, 0, code.number)
    together = (code.processor.registers - IMAGES) // IMAGES

    def clear(number: _Value) -> Sequence[_Value]:
        code.write.store(code.number(0.0), code.write.gep(sums, [number]))
        return ()

    count = code.write.mul(code.length(code.results, 0), _INTEGER(outputs))
    code.loop(_INTEGER(0), count, clear)

    def block(number: _Value, start: _Value, end: _Value) -> None:
        row = code.write.mul(number, _INTEGER(IMAGES * outputs))
        for run in code.pieces(outputs, together):
            factors = {
                (image, first): code.load_vector(
                    rows, code.write.add(row, _INTEGER(image * outputs + first)), width
                )
                for image in range(IMAGES)
                for first, width in run
            }

            def entry(number: _Value, run=run, factors=factors) -> Sequence[_Value]:
                pixel, numbers = _entry(code, number, outputs)
                for first, width in run:
                    place = code.write.add(pixel, _INTEGER(first))
                    sum_ = code.load_vector(sums, place, width)
                    for image, number in enumerate(numbers):
                        sum_ = code.plus_product(sum_, number, factors[image, first])
                    code.store_vector(sum_, sums, place)
                return ()

            code.loop(start, end, entry)

    _each_block(code, block)


_WRITERS = {"product": _write_product, "transposed_product": _write_transposed_product}


def _each_block(code: _Code, body: Callable[[_Value, _Value, _Value], None]) -> None:
    """Writes a loop over the blocks; its body is given a block, its first entry and their end."""
    starts = code.array(code.arguments, 0, _HALF)

    def block(number: _Value) -> Sequence[_Value]:
        bounds = (number, code.write.add(number, _INTEGER(1)))
        body(number, *(code.write.sext(code.load(starts, bound), _INTEGER) for bound in bounds))
        return ()

    code.loop(_INTEGER(0), code.write.sub(code.length(code.arguments, 0), _INTEGER(1)), block)
    code.write.ret(_NOTHING)


def _entry(code: _Code, number: _Value, outputs: int) -> tuple[_Value, list[_Value]]:
    """Where the row of an entry's pixel starts, and what the images have there."""
    pixels = code.array(code.arguments, 1, _HALF)
    values = code.array(code.arguments, 2, code.number)
    pixel = code.write.sext(code.load(pixels, number), _INTEGER)
    first = code.write.mul(number, _INTEGER(IMAGES))
    places = [code.write.add(first, _INTEGER(image)) for image in range(IMAGES)]
    return code.write.mul(pixel, _INTEGER(outputs)), [code.load(values, place) for place in places]
