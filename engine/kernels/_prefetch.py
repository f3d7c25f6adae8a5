# mypy: disable-error-code="no-untyped-def,untyped-decorator"
"""Ask the processor for a row before it is needed.

A page is too short for the hardware to recognise as a stream: without this, waiting takes longer than computing. Rows
are asked for a few at a time between products, since a burst stalls like the loads it should spare, and only
as far as the second level, since a page to come is as large as the first.
"""

from __future__ import annotations

from llvmlite import ir  # type: ignore[import-untyped]
from numba.core import cgutils, types
from numba.extending import intrinsic

READ, SECOND_LEVEL, DATA = 0, 2, 1


@intrinsic
def prefetch(typing, rows, row):
    """prefetch(rows [n, d], row): start loading the cache line in which the row begins; the row must exist."""

    def generate(context, builder, signature, arguments):
        array = context.make_array(signature.args[0])(context, builder, arguments[0])
        indices = [arguments[1], context.get_constant(types.intp, 0)]
        item = cgutils.get_item_pointer(context, builder, signature.args[0], array, indices, wraparound=False)
        byte, word = ir.IntType(8).as_pointer(), ir.IntType(32)
        hint = builder.module.declare_intrinsic(
            "llvm.prefetch", (byte,), ir.FunctionType(ir.VoidType(), [byte, word, word, word])
        )
        flags = [ir.Constant(word, value) for value in (READ, SECOND_LEVEL, DATA)]
        builder.call(hint, [builder.bitcast(item, byte), *flags])
        return context.get_dummy_value()

    return types.void(rows, row), generate
