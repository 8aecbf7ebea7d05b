"""Writes src/ops/cuda/split_attention/wgmma.cuh: the two products of attention on wgmma.

An asm statement needs its registers spelled out, which no template can do for an array.
Usage: python3 tools/generate_attention_wgmma.py > src/ops/cuda/split_attention/wgmma.cuh
"""

SCORE_TOKENS = (64, 128)
VALUE_COLUMNS = (16, 32, 64, 128, 256)
TYPES = (("__nv_bfloat16", "bf16"), ("__half", "f16"))


def wrapped(items, per_line, separator):
    return separator.join(
        ", ".join(items[i : i + per_line]) for i in range(0, len(items), per_line)
    )


def instruction(name, cpp_type, ptx_type, width, value_operand):
    count = width // 2
    registers = wrapped([f"%{i}" for i in range(count)], 12, ', "\n            "')
    outputs = wrapped([f'"+f"(d[{i}])' for i in range(count)], 7, ",\n" + " " * 14)
    if value_operand:
        parameter = "const uint32_t (&a)[4]"
        operands = "{" + ", ".join(f"%{count + i}" for i in range(4)) + "}"
        next_register = count + 4
        inputs = ", ".join(f'"r"(a[{i}])' for i in range(4))
        majors = "1"
    else:
        parameter = "uint64_t a"
        operands = f"%{count}"
        next_register = count + 1
        inputs = '"l"(a)'
        majors = "0, 0"
    return f"""template <>
struct {name}<{cpp_type}, {width}> {{
    static __device__ __forceinline__ void multiply(float (&d)[{count}], {parameter}, uint64_t b,
                                                    bool accumulate) {{
        asm volatile(
            "{{\\n"
            ".reg .pred p;\\n"
            "setp.ne.b32 p, %{next_register + 1}, 0;\\n"
            "wgmma.mma_async.sync.aligned.m64n{width}k16.f32.{ptx_type}.{ptx_type} {{"
            "{registers}}}, "
            "{operands}, %{next_register}, p, 1, 1, {majors};\\n"
            "}}"
            : {outputs}
            : {inputs}, "l"(b), "r"(accumulate ? 1 : 0));
    }}
}};
"""


def main():
    print("""// Written by tools/generate_attention_wgmma.py; change that, not this.
// clang-format off
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

namespace dak::ptx {

/// d[64, kTokens] (+)= a[64, 16] b[kTokens, 16]^T, both operands K-major in shared memory. Thread t
/// of the warpgroup, with warp w and lane l, holds in d[4g .. 4g+3] the columns 8g + 2(l % 4) +
/// {0, 1} of rows 16w + l / 4 and, second pair, 8 more.
template <typename Element, int kTokens>
struct ScoreWgmma;

/// d[64, kColumns] (+)= a[64, 16] b[16, kColumns]; b is row-major (kColumns contiguous) in shared
/// memory, a in registers: columns 2(l % 4) + {0, 1} of rows l / 4 and 8 more, then columns 8 on.
template <typename Element, int kColumns>
struct ValueWgmma;
""")
    for cpp_type, ptx_type in TYPES:
        for width in SCORE_TOKENS:
            print(instruction("ScoreWgmma", cpp_type, ptx_type, width, False))
        for width in VALUE_COLUMNS:
            print(instruction("ValueWgmma", cpp_type, ptx_type, width, True))
    print("}  // namespace dak::ptx")


if __name__ == "__main__":
    main()
