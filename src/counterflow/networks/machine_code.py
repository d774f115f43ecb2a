"""Machine code for this processor, where no library has the loops that are needed.

The loops are written in LLVM's language, compiled as soon as they are needed for some shape and
precision, and called by XLA.
"""

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from threading import Lock
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array
from llvmlite import binding, ir

#: The numbers of LLVM for which loops are written: those of 64 bits, of 32, and addresses.
INTEGER, HALF = ir.IntType(64), ir.IntType(32)
_ADDRESS = ir.IntType(8).as_pointer()
_Number = ir.FloatType | ir.DoubleType
Value = Any  # of llvmlite, which does not tell type checkers that its values have types
_TYPES: dict[str, _Number] = {"float32": ir.FloatType(), "float64": ir.DoubleType()}


def called(
    name: str, write: Callable[["Code"], None], shape: tuple[int, ...], *arrays: Array
) -> Array:
    """The array of some shape that machine code makes of others, as precise as the last of them.

    Args:
        name: What names the code, with all that it is written for but the precision.
        write: Writes the code; only asked the first time.
        shape: The shape of the result.
        arrays: What the code is given; their shapes are the caller's to check.
    """
    arrays = tuple(map(jnp.asarray, arrays))
    precision = arrays[-1].dtype
    if str(precision) not in _TYPES:
        raise TypeError(
            f"products by machine code must be of {' or '.join(_TYPES)}, got {precision}: convert "
            "the params"
        )
    for array in arrays:  # the code would take its bytes for what they are not
        wanted = precision if jnp.issubdtype(array.dtype, jnp.floating) else np.dtype("int32")
        if array.dtype != wanted:
            raise TypeError(
                "the arrays of a product must have one precision, and indices be of int32, got "
                f"{', '.join(str(array.dtype) for array in arrays)}: convert the params, not the "
                "blocks, which follow by themselves"
            )
    if 0 in shape:
        return jnp.zeros(shape, precision)
    target = _registered(f"counterflow_{name}_{precision}", write, str(precision))
    return jax.ffi.ffi_call(target, jax.ShapeDtypeStruct(shape, precision))(*arrays)


_known: set[str] = set()
_one_at_a_time = Lock()  # threads may come with the same product
_engines: list[Any] = []  # that own the machine code: it is theirs to free


def _registered(name: str, write: Callable[["Code"], None], precision: str) -> str:
    """The name, under which XLA knows the code from now on."""
    with _one_at_a_time:
        if name not in _known:
            address = _compiled(name, write, precision)
            function = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)(address)
            jax.ffi.register_ffi_target(name, jax.ffi.pycapsule(function), platform="cpu")
            _known.add(name)
    return name


def _compiled(name: str, write: Callable[["Code"], None], precision: str) -> int:
    """The address of a function that XLA can call."""
    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    processor = _processor()
    module = ir.Module(name)
    write(Code(module, name, _TYPES[precision], processor))
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


class Code:
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
            kind = self.slot(extension, _EXTENSION_KIND, HALF)
            with self.write.if_then(self.write.icmp_unsigned("==", kind, HALF(_METADATA))):
                version = self.slot(extension, _EXTENSION_METADATA)
                for part, value in zip(_METADATA_VERSION, _VERSION, strict=True):
                    address = self.write.bitcast(version, HALF.as_pointer())
                    self.write.store(HALF(value), self.write.gep(address, [INTEGER(part)]))
                self.write.ret(_NOTHING)
        self.arguments = self.slot(frame, _FRAME_ARGUMENTS)
        self.results = self.slot(frame, _FRAME_RESULTS)

    def slot(self, address: Value, position: int, kind: ir.Type = _ADDRESS) -> Value:
        """What is at a position, in words of its own length, from an address on."""
        return self.load(self.write.bitcast(address, kind.as_pointer()), INTEGER(position))

    def array(self, arrays: Value, position: int, kind: ir.Type) -> Value:
        """The numbers of one of the arrays."""
        data = self.slot(self.slot(arrays, position), _BUFFER_DATA)
        return self.write.bitcast(data, kind.as_pointer())

    def length(self, arrays: Value, position: int) -> Value:
        """The first dimension of one of the arrays."""
        dimensions = self.slot(self.slot(arrays, position), _BUFFER_DIMENSIONS)
        return self.slot(dimensions, 0, INTEGER)

    def load(self, array: Value, position: Value) -> Value:
        return self.write.load(self.write.gep(array, [position]))

    def at(self, array: Value, position: Value, width: int) -> Value:
        """Where a vector of so many numbers starts, at a position of an array."""
        kind = ir.VectorType(self.number, width).as_pointer()
        return self.write.bitcast(self.write.gep(array, [position]), kind)

    def load_vector(self, array: Value, position: Value, width: int) -> Value:
        return self.write.load(self.at(array, position, width), align=self.alignment)

    def store_vector(self, vector: Value, array: Value, position: Value) -> None:
        address = self.at(array, position, vector.type.count)
        self.write.store(vector, address, align=self.alignment)

    def zeros(self, width: int) -> Value:
        """A vector of so many zeros."""
        return ir.Constant(ir.VectorType(self.number, width), [0.0] * width)

    @property
    def alignment(self) -> int:
        """Bytes of a number: rows of any number of them start anywhere."""
        return 8 if self.number == _TYPES["float64"] else 4

    def clear(self, array: Value, count: Value) -> None:
        """Writes a loop that fills an array with so many zeros."""

        def entry(number: Value) -> Sequence[Value]:
            self.write.store(self.number(0.0), self.write.gep(array, [number]))
            return ()

        self.loop(INTEGER(0), count, entry)

    def end(self) -> None:
        """Ends the function."""
        self.write.ret(_NOTHING)

    def plus_product(self, vector: Value, number: Value, factor: Value) -> Value:
        """`vector + number · factor`, in one operation where the processor has one."""
        kind = vector.type
        nothing = ir.Constant(kind, ir.Undefined)
        one = self.write.insert_element(nothing, number, HALF(0))
        everywhere = ir.Constant(ir.VectorType(HALF, kind.count), [0] * kind.count)
        numbers = self.write.shuffle_vector(one, nothing, everywhere)
        module, name = self.write.module, f"llvm.fmuladd.v{kind.count}{self.number.intrinsic_name}"
        multiply = module.globals.get(name)
        if multiply is None:
            multiply = ir.Function(module, ir.FunctionType(kind, [kind] * 3), name)
        return self.write.call(multiply, [numbers, factor, vector])

    def loop(
        self,
        start: Value,
        end: Value,
        body: Callable[..., Sequence[Value]],
        values: Sequence[Value] = (),
    ) -> list[Value]:
        """Writes a loop: `values = body(k, *values)` for `k` from start to before end."""
        write = self.write
        before, inside, after = write.block, *(write.append_basic_block() for _ in range(2))
        write.cbranch(write.icmp_signed("<", start, end), inside, after)
        write.position_at_end(inside)
        number, *carried = [write.phi(value.type) for value in (start, *values)]
        changed = body(number, *carried)
        following, last = write.add(number, INTEGER(1)), write.block
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


# Where things are in XLA's frame, in words of eight bytes; the kind of an extension and the version
# of its metadata in those of four.
_FRAME_EXTENSION, _FRAME_ARGUMENTS, _FRAME_RESULTS = 1, 9, 14
_BUFFER_DATA, _BUFFER_DIMENSIONS = 3, 5
_EXTENSION_KIND, _METADATA = 2, 1
_EXTENSION_METADATA, _METADATA_VERSION, _VERSION = 3, (6, 7), (0, 3)
_NOTHING = ir.Constant(_ADDRESS, None)
