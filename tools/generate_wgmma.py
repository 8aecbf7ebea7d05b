"""Writes src/ops/cuda/wgmma.cuh: one wrapper for each wgmma shape and type the kernels use.

An asm statement needs its registers spelled out, which no template can do for an array.
Usage: python3 tools/generate_wgmma.py > src/ops/cuda/wgmma.cuh
"""

COLUMNS = (8, 16, 32, 48, 64, 96, 112, 128, 168, 192, 256)
TYPES = (("__nv_bfloat16", "bf16"), ("__half", "f16"))


def wrapped(items, per_line, indent):
    lines = [", ".join(items[i : i + per_line]) for i in range(0, len(items), per_line)]
    return (",\n" + " " * indent).join(lines)


def instruction(cpp_type, ptx_type, columns):
    count = columns // 2
    registers = [f"%{i}" for i in range(count)]
    lines = [", ".join(registers[i : i + 12]) for i in range(0, count, 12)]
    asm = ', "\n            "'.join(lines)
    outputs = wrapped([f'"+f"(d[{i}])' for i in range(count)], 7, 14)
    return f"""template <>
struct Wgmma<{cpp_type}, {columns}> {{
    static __device__ __forceinline__ void multiply(float (&d)[{count}], uint64_t a, uint64_t b) {{
        asm volatile(
            "wgmma.mma_async.sync.aligned.m64n{columns}k16.f32.{ptx_type}.{ptx_type} {{"
            "{asm}}}, "
            "%{count}, %{count + 1}, 1, 1, 1, 0, 0;"
            : {outputs}
            : "l"(a), "l"(b));
    }}
}};
"""


def main():
    print("""// Written by tools/generate_wgmma.py; change that, not this.
// clang-format off
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

namespace dak::ptx {

/// d[64, kColumns] += a[64, 16] b[kColumns, 16]^T, both operands K-major in shared memory (see
/// operand()), accumulators in registers. Thread t of the warpgroup, with warp w and lane l, holds
/// in d[4g .. 4g+3] the columns 8g + 2(l % 4) + {0, 1} of rows 16w + l / 4 and, second pair, 8 more.
template <typename Element, int kColumns>
struct Wgmma;
""")
    for cpp_type, ptx_type in TYPES:
        for columns in COLUMNS:
            print(instruction(cpp_type, ptx_type, columns))
    print("}  // namespace dak::ptx")


if __name__ == "__main__":
    main()
