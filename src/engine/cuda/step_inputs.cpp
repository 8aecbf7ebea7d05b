#include "engine/cuda/step_inputs.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "ops/cuda/check.h"
#include "ops/ops.h"
#include "ops/sampling/rules.h"

namespace dak::cuda {
namespace {

constexpr int64_t kAlignment = 16;  // of each array; the widest load of a kernel

bool dynamic_rope(const ModelConfig& config) {
    return config.rope && config.rope->scaling == RopeScaling::kDynamic;
}

}  // namespace

StepInputs::Layout StepInputs::layout(const ModelConfig& config, const StepShape& shape,
                                      int64_t pages_stride) {
    int64_t end = 0;
    const auto place = [&end](int64_t bytes) {
        const int64_t begin = end;
        end += round_up(bytes, kAlignment);
        return begin;
    };
    constexpr int64_t kInt = sizeof(int32_t);
    Layout layout{};
    layout.tokens = place(shape.rows * kInt);
    layout.positions = place(shape.rows * kInt);
    layout.position_rows = place(shape.rows * kInt);
    layout.sequence_of = place(shape.rows * kInt);
    layout.lengths = place(shape.sequences * kInt);
    layout.query_starts = place((shape.sequences + 1) * kInt);
    layout.last_rows = place(shape.sequences * kInt);
    layout.requests = place(shape.sequences * int64_t{sizeof(SampleRequest)});
    if (dynamic_rope(config)) {
        layout.frequencies =
            place(shape.sequences * (config.head_dim / 2) * int64_t{sizeof(float)});
    }
    layout.pages = place(shape.sequences * pages_stride * kInt);
    layout.end = end;
    return layout;
}

int64_t StepInputs::bytes(const ModelConfig& config, const StepLimits& limits) {
    const int64_t history = limits.most.sequences * limits.max_tokens * int64_t{sizeof(int32_t)};
    return round_up(layout(config, limits.most, KvCache::pages_for(limits.max_tokens)).end,
                    Arena::kAlignment) +
           history;
}

StepInputs::StepInputs(const ModelConfig& config, const StepLimits& limits)
    : config_(config),
      limits_(limits),
      pages_stride_(KvCache::pages_for(limits.max_tokens)),
      device_(Arena::device("step inputs", bytes(config, limits))),
      host_(Arena::pinned_host("step inputs", bytes(config, limits))) {
    const int64_t history_bytes =
        limits.most.sequences * limits.max_tokens * int64_t{sizeof(int32_t)};
    const int64_t inputs_bytes = layout(config, limits.most, pages_stride_).end;
    device_base_ = device_.allocate(inputs_bytes);
    host_base_ = host_.allocate(inputs_bytes);
    device_history_ = reinterpret_cast<int32_t*>(device_.allocate(history_bytes));
    host_history_ = reinterpret_cast<int32_t*>(host_.allocate(history_bytes));
}

void StepInputs::fill(const StepShape& shape, std::span<const SequenceChunk> chunks,
                      std::span<const Draw> draws) {
    const Layout at = layout(config_, shape, pages_stride_);
    const auto tokens = host<int32_t>(at.tokens, shape.rows);
    const auto positions = host<int32_t>(at.positions, shape.rows);
    const auto position_rows = host<int32_t>(at.position_rows, shape.rows);
    const auto sequence_of = host<int32_t>(at.sequence_of, shape.rows);
    const auto lengths = host<int32_t>(at.lengths, shape.sequences);
    const auto query_starts = host<int32_t>(at.query_starts, shape.sequences + 1);
    const auto last_rows = host<int32_t>(at.last_rows, shape.sequences);
    const auto pages = host<int32_t>(at.pages, shape.sequences * pages_stride_);
    const auto requests = host<SampleRequest>(at.requests, shape.sequences);

    int64_t row = 0;
    size_t draw = 0;
    for (size_t slot = 0; slot < chunks.size(); ++slot) {
        const SequenceChunk& chunk = chunks[slot];
        require(static_cast<int64_t>(chunk.pages.size()) <= pages_stride_,
                "a sequence of {} KV pages in a step that has room for {}", chunk.pages.size(),
                pages_stride_);
        query_starts[slot] = static_cast<int32_t>(row);
        for (const int32_t token : chunk.tokens) {
            const auto index = static_cast<size_t>(row);
            tokens[index] = token;
            positions[index] = static_cast<int32_t>(chunk.past + row - query_starts[slot]);
            position_rows[index] = positions[index] + static_cast<int32_t>(config_.position_offset);
            sequence_of[index] = static_cast<int32_t>(slot);
            ++row;
        }
        lengths[slot] = static_cast<int32_t>(chunk.past + row - query_starts[slot]);
        std::ranges::copy(chunk.pages, pages.begin() + static_cast<int64_t>(slot) * pages_stride_);
        last_rows[slot] = -1;
        requests[slot] = {};
        if (chunk.wants_token) {
            const Draw& drawn = draws[draw++];
            last_rows[slot] = static_cast<int32_t>(row - 1);
            requests[slot] = {*drawn.sampling, static_cast<int32_t>(slot),
                              static_cast<int32_t>(drawn.prompt.size()),
                              static_cast<int32_t>(drawn.prompt.size() + drawn.output.size())};
        }
        if (dynamic_rope(config_)) {
            const int64_t half = config_.head_dim / 2;
            std::ranges::copy(
                ops::rope_frequencies(*config_.rope, config_.head_dim, chunk.rope_length),
                host<float>(
                    at.frequencies + static_cast<int64_t>(slot) * half * int64_t{sizeof(float)},
                    half)
                    .begin());
        }
    }
    for (auto i = static_cast<size_t>(row); i < tokens.size(); ++i) {
        tokens[i] = -1;
        positions[i] = position_rows[i] = 0;
        sequence_of[i] = -1;
    }
    for (size_t slot = chunks.size(); slot < lengths.size(); ++slot) {
        lengths[slot] = 0;
        query_starts[slot] = static_cast<int32_t>(row);
        last_rows[slot] = -1;
        requests[slot] = {};
    }
    query_starts[lengths.size()] = static_cast<int32_t>(row);
}

void StepInputs::upload(const StepShape& shape, cudaStream_t stream) const {
    const auto bytes = static_cast<size_t>(layout(config_, shape, pages_stride_).end);
    check(cudaMemcpyAsync(device_base_, host_base_, bytes, cudaMemcpyHostToDevice, stream),
          "step inputs");
}

void StepInputs::upload_history(std::span<const SequenceChunk> chunks, std::span<const Draw> draws,
                                cudaStream_t stream) const {
    size_t draw = 0;
    for (size_t slot = 0; slot < chunks.size(); ++slot) {
        if (!chunks[slot].wants_token) continue;
        const Draw& drawn = draws[draw++];
        if (!ops::has_penalties(*drawn.sampling)) continue;
        const auto length = static_cast<int64_t>(drawn.prompt.size() + drawn.output.size());
        require(length <= limits_.max_tokens,
                "a history of {} tokens in a step that has room for {}", length,
                limits_.max_tokens);
        const int64_t begin = static_cast<int64_t>(slot) * limits_.max_tokens;
        std::ranges::copy(drawn.output, std::ranges::copy(drawn.prompt, host_history_ + begin).out);
        check(cudaMemcpyAsync(device_history_ + begin, host_history_ + begin,
                              static_cast<size_t>(length) * sizeof(int32_t), cudaMemcpyHostToDevice,
                              stream),
              "token histories");
    }
}

StepView StepInputs::view(const StepShape& shape) const {
    const Layout at = layout(config_, shape, pages_stride_);
    const auto ints = [this](int64_t offset) {
        return reinterpret_cast<const int32_t*>(device_base_ + offset);
    };
    return {.shape = shape,
            .tokens = ints(at.tokens),
            .positions = ints(at.positions),
            .position_rows = ints(at.position_rows),
            .sequence_of = ints(at.sequence_of),
            .lengths = ints(at.lengths),
            .query_starts = ints(at.query_starts),
            .last_rows = ints(at.last_rows),
            .pages = ints(at.pages),
            .pages_stride = pages_stride_,
            .requests = reinterpret_cast<const SampleRequest*>(device_base_ + at.requests),
            .history = device_history_,
            .history_stride = limits_.max_tokens,
            .frequencies = dynamic_rope(config_)
                               ? reinterpret_cast<const float*>(device_base_ + at.frequencies)
                               : nullptr};
}

}  // namespace dak::cuda
