#include <gtest/gtest.h>

#include "base/error.h"
#include "ops/cuda/split_attention/config.h"
#include "ops/cuda/split_attention/params.h"

namespace dak::cuda {
namespace {

AttentionShape shape_of(int64_t head_dim, int64_t group) {
    return {.num_heads = 8 * group,
            .num_kv_heads = 8,
            .head_dim = head_dim,
            .max_sequences = 64,
            .max_pages = 64,
            .remote_pages = true};
}

int64_t shared_bytes(const AttentionShape& shape, const AttentionConfig& config) {
    return decode_shared_bytes(static_cast<int>(shape.head_dim),
                               static_cast<int>(shape.num_heads / shape.num_kv_heads), config.slots,
                               config.query_slots, config.result_slots);
}

TEST(AttentionPlan, EveryShapeFitsAndKeepsToTheWindow) {
    for (const int64_t head_dim : {64, 80, 96, 128, 256}) {
        for (int64_t group = 1; group <= kMaxHeadGroup; ++group) {
            for (const int64_t window : {128 * kKiB, 512 * kKiB, 16 * kMiB}) {
                const AttentionShape shape = shape_of(head_dim, group);
                AttentionMachine machine;
                machine.window_bytes = window;
                const AttentionConfig config = choose_attention_config(shape, machine);
                SCOPED_TRACE(config.to_string());
                const int64_t block = kv_block_bytes(static_cast<int>(head_dim));
                const int per_sm = decode_ctas_per_sm(static_cast<int>(head_dim),
                                                      decode_rows(static_cast<int>(group)));
                EXPECT_LE(shared_bytes(shape, config), 225 * kKiB / per_sm);
                EXPECT_GE(config.slots * block, 64 * kKiB);
                EXPECT_LE(config.slots, kMaxDecodeSlots);
                EXPECT_GE(config.remote_slots, 2);  // a block of keys and one of values
                EXPECT_LE(config.remote_slots, config.slots);
                EXPECT_GE(config.remote_ctas, 1);
                EXPECT_LT(config.remote_ctas, config.ctas);
                const int64_t in_flight = 2 * config.remote_ctas * config.remote_slots * block;
                EXPECT_TRUE(config.remote_ctas == 1 || in_flight <= window);
                EXPECT_LE(prefill_attention_bytes(static_cast<int>(head_dim)), 225 * kKiB);
            }
        }
    }
}

TEST(AttentionPlan, AFasterLinkGetsMoreCtas) {
    AttentionMachine machine;
    const int pcie = choose_attention_config(shape_of(128, 1), machine).remote_ctas;
    machine.remote_gbps = 377;
    machine.window_bytes = 12 * kMiB;
    EXPECT_GT(choose_attention_config(shape_of(128, 1), machine).remote_ctas, 4 * pcie);
}

TEST(AttentionPlan, RefusesWhatTheKernelsDoNotServe) {
    const AttentionMachine machine;
    const auto refuses = [&](const auto& change) {
        AttentionShape shape = shape_of(128, 4);
        change(shape);
        EXPECT_THROW(choose_attention_config(shape, machine), Error);
    };
    refuses([](AttentionShape& s) { s.head_dim = 72; });
    refuses([](AttentionShape& s) { s.num_heads = 8 * 17; });
    refuses([](AttentionShape& s) { s.num_heads = 9; });
    refuses([](AttentionShape& s) { s.dtype = DType::kF32; });
    refuses([](AttentionShape& s) { s.max_sequences = kMaxSequences + 1; });
    refuses([](AttentionShape& s) { s.max_pages = 0; });
}

}  // namespace
}  // namespace dak::cuda
