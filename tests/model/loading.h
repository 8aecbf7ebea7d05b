#pragma once

#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <limits>
#include <thread>
#include <vector>

#include "base/file.h"
#include "base/units.h"
#include "model/model_folder.h"
#include "model/weights.h"

// How fast a checkpoint is loaded, and in how much memory.

namespace dak::testing_support {

/// Sizes of a Llama to be written.
struct LlamaSizes {
    int64_t hidden;
    int64_t intermediate;
    int64_t layers;
    int64_t vocab;
};

/// Writes a bf16 checkpoint piece by piece, so that this process never holds it.
inline void write_llama(const TempFolder& folder, const LlamaSizes& sizes) {
    using Shape = std::vector<int64_t>;
    const auto [hidden, intermediate, layers, vocab] = sizes;
    std::vector<std::pair<std::string, Shape>> tensors = {{"model.embed_tokens", {vocab, hidden}},
                                                          {"model.norm", {hidden}},
                                                          {"lm_head", {vocab, hidden}}};
    for (int64_t layer = 0; layer < layers; ++layer) {
        const auto add = [&](std::string_view name, Shape shape) {
            tensors.emplace_back(fmt::format("model.layers.{}.{}", layer, name), std::move(shape));
        };
        for (const char* part : {"q", "k", "v", "o"}) {
            add(fmt::format("self_attn.{}_proj", part), {hidden, hidden});
        }
        add("mlp.gate_proj", {intermediate, hidden});
        add("mlp.up_proj", {intermediate, hidden});
        add("mlp.down_proj", {hidden, intermediate});
        add("input_layernorm", {hidden});
        add("post_attention_layernorm", {hidden});
    }
    Json header;
    int64_t bytes = 0;
    for (const auto& [name, shape] : tensors) {
        int64_t size = size_of(DType::kBF16);
        for (const int64_t extent : shape) size *= extent;
        header[name + ".weight"] = {
            {"dtype", "BF16"}, {"shape", shape}, {"data_offsets", {bytes, bytes + size}}};
        bytes += size;
    }
    const std::string block = make_test_tensor("block", DType::kBF16, {kMiB / 2}).bytes;
    std::ofstream file(folder.path() / "model.safetensors", std::ios::binary);
    file << safetensors_prefix(header.dump());
    for (int64_t left = bytes; left > 0; left -= kMiB) {
        file.write(block.data(), std::min<int64_t>(left, kMiB));
    }
    folder.write("config.json", Json{{"architectures", {"LlamaForCausalLM"}},
                                     {"dtype", "bfloat16"},
                                     {"vocab_size", vocab},
                                     {"hidden_size", hidden},
                                     {"intermediate_size", intermediate},
                                     {"num_hidden_layers", layers},
                                     {"num_attention_heads", hidden / 64},
                                     {"max_position_embeddings", 2048}}
                                    .dump());
}

inline double seconds_of(const std::function<void()>& work) {
    const auto begin = std::chrono::steady_clock::now();
    work();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

/// Reads all weights of a model folder into memory, in 4 MiB pieces, with a thread a core.
inline void read_files(const std::filesystem::path& model) {
    constexpr int64_t kPiece = 4 * kMiB;
    std::vector<File> files;
    for (const auto& entry : std::filesystem::directory_iterator(model)) {
        if (entry.path().extension() == ".safetensors") files.emplace_back(entry.path());
    }
    for (const File& file : files) {
        Arena memory = Arena::host("file", file.size());
        std::byte* place = memory.allocate(file.size());
        std::atomic<int64_t> next = 0;
        std::vector<std::jthread> threads;
        for (unsigned i = 0; i < std::max(1u, std::thread::hardware_concurrency()); ++i) {
            threads.emplace_back([&] {
                for (int64_t at; (at = kPiece * next++) < file.size();) {
                    const int64_t size = std::min(kPiece, file.size() - at);
                    file.read(at, {place + at, static_cast<size_t>(size)});
                }
            });
        }
    }
}

inline int64_t resident_bytes() {
    int64_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages >> pages;  // the second number
    return pages * 4096;
}

inline int64_t peak_resident_bytes() {
    rusage usage{};
    ::getrusage(RUSAGE_SELF, &usage);
    return usage.ru_maxrss * kKiB;
}

struct Loading {
    int64_t bytes = 0;        ///< of weights
    int64_t host_bytes = 0;   ///< of them, those that were loaded into host memory
    int64_t extra_bytes = 0;  ///< at most, of other memory that this process took meanwhile
    double load_seconds = 0;  ///< without that of reserving the tiers
    double reserve_seconds = 0;
    double read_seconds = 0;  ///< of reading the files alone

    /// Rate of loading over that of reading.
    double relative_rate() const { return read_seconds / load_seconds; }
};

inline std::ostream& operator<<(std::ostream& out, const Loading& loading) {
    return out << fmt::format(
               "| loading {}: {:.2f} s ({:.2f} of the rate of reading alone), tiers "
               "reserved in {:.2f} s, {} of host memory besides the tiers",
               format_bytes(loading.bytes), loading.load_seconds, loading.relative_rate(),
               loading.reserve_seconds, format_bytes(loading.extra_bytes));
}

/// Loads a model into `memory` with `ratio` of it remote, and reads its files, from the page cache;
/// the best times of five.
inline Loading measure_loading(const std::filesystem::path& model, const TierMemory& memory,
                               double ratio) {
    const ModelConfig config = load_config(model);
    const Placement placement = uniform_placement(weight_specs(config), ratio);
    Loading best{.load_seconds = std::numeric_limits<double>::infinity(),
                 .read_seconds = std::numeric_limits<double>::infinity()};
    const int64_t before = resident_bytes();
    int64_t peak = 0;
    for (int round = 0; round < 5; ++round) {
        double reserve_seconds = 0;
        const auto timed = [&](const TierMemory::Source& source) -> TierMemory::Source {
            return [&](std::string name, int64_t bytes) {
                std::optional<Arena> arena;
                reserve_seconds +=
                    seconds_of([&] { arena.emplace(source(std::move(name), bytes)); });
                return std::move(*arena);
            };
        };
        const LoadOptions options{.progress = false,
                                  .memory = {timed(memory.local), timed(memory.remote)}};
        std::optional<ModelWeights> weights;
        const double seconds =
            seconds_of([&] { weights.emplace(load_weights(model, config, placement, options)); });
        if (round == 0) peak = peak_resident_bytes();
        best.bytes = weights->local.used_bytes() + weights->remote.used_bytes();
        best.host_bytes = (weights->local.host_writable() ? weights->local.used_bytes() : 0) +
                          (weights->remote.host_writable() ? weights->remote.used_bytes() : 0);
        if (seconds - reserve_seconds < best.load_seconds) {
            best.load_seconds = seconds - reserve_seconds;
            best.reserve_seconds = reserve_seconds;
        }
        weights.reset();
        best.read_seconds = std::min(best.read_seconds, seconds_of([&] { read_files(model); }));
    }
    best.extra_bytes = peak - before - best.host_bytes;
    return best;
}

}  // namespace dak::testing_support
