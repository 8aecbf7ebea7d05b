#pragma once

#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <optional>
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

inline double best_of_five(const std::function<double()>& seconds) {
    double best = seconds();
    for (int i = 1; i < 5; ++i) best = std::min(best, seconds());
    return best;
}

/// Calls `work(thread, piece)` for every piece of `bytes`, on a thread a core.
inline void for_each_piece(int64_t bytes, int64_t piece_bytes,
                           const std::function<void(size_t thread, int64_t piece)>& work) {
    std::atomic<int64_t> next = 0;
    std::vector<std::jthread> threads;
    for (size_t i = 0; i < std::max(1u, std::thread::hardware_concurrency()); ++i) {
        threads.emplace_back([&, i] {
            for (int64_t piece; (piece = next++) * piece_bytes < bytes;) work(i, piece);
        });
    }
}

/// What it takes to read all weights of a model folder from the page cache into memory of `source`
/// that is reserved, as tiers are, before the clock starts.
inline double reading_seconds(const std::filesystem::path& model,
                              const TierMemory::Source& source) {
    constexpr int64_t kPiece = 4 * kMiB;
    std::vector<File> files;
    for (const auto& entry : std::filesystem::directory_iterator(model)) {
        if (entry.path().extension() == ".safetensors") files.emplace_back(entry.path());
    }
    return best_of_five([&] {
        double seconds = 0;
        for (const File& file : files) {
            Arena memory = source("file", file.size());
            std::byte* place = memory.allocate(file.size());
            seconds += seconds_of([&] {
                for_each_piece(file.size(), kPiece, [&](size_t, int64_t piece) {
                    const int64_t at = piece * kPiece;
                    const int64_t size = std::min(kPiece, file.size() - at);
                    file.read(at, {place + at, static_cast<size_t>(size)});
                });
            });
        }
        return seconds;
    });
}

/// What it takes to bring bytes that are there already into memory of `source`.
struct Upload {
    double start_seconds;  ///< making the writers
    double copy_seconds;
};
inline Upload measure_upload(const TierMemory::Source& source, int64_t bytes) {
    constexpr int64_t kPiece = ArenaWriter::kMaxPiece;
    Arena memory = source("uploaded", bytes);
    std::byte* place = memory.allocate(bytes);
    std::vector<std::unique_ptr<ArenaWriter>> writers;
    const double start = best_of_five([&] {
        writers.clear();
        return seconds_of([&] {
            const unsigned cores = std::max(1u, std::thread::hardware_concurrency());
            writers = memory.writers(static_cast<int>(cores));
        });
    });
    const double copy = best_of_five([&] {
        return seconds_of([&] {
            for_each_piece(bytes, kPiece, [&](size_t thread, int64_t piece) {
                const int64_t at = piece * kPiece;
                writers[thread]->write(place + at, std::min(kPiece, bytes - at), [](auto*) {});
            });
            for (const auto& writer : writers) writer->finish();
        });
    });
    return {start, copy};
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
    double seconds = 0;       ///< without reserving the tiers
    double reserve_seconds = 0;
};

inline std::ostream& operator<<(std::ostream& out, const Loading& loading) {
    return out << fmt::format(
               "| loading {}: {:.3f} s, tiers reserved in {:.2f} s, {} of host memory besides the "
               "tiers",
               format_bytes(loading.bytes), loading.seconds, loading.reserve_seconds,
               format_bytes(loading.extra_bytes));
}

/// Loads a model from the page cache into `memory` with `ratio` of it remote; the best time of
/// five. The peak of memory is the process's, so nothing that took more may have come before.
inline Loading measure_loading(const std::filesystem::path& model, const TierMemory& memory,
                               double ratio) {
    const ModelConfig config = load_config(model);
    const Placement placement = uniform_placement(weight_specs(config), ratio);
    Loading loading;
    const int64_t before = resident_bytes();
    loading.seconds = best_of_five([&] {
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
        loading.bytes = weights->local.used_bytes() + weights->remote.used_bytes();
        loading.host_bytes = (weights->local.host_writable() ? weights->local.used_bytes() : 0) +
                             (weights->remote.host_writable() ? weights->remote.used_bytes() : 0);
        loading.reserve_seconds = reserve_seconds;
        return seconds - reserve_seconds;
    });
    loading.extra_bytes = peak_resident_bytes() - before - loading.host_bytes;
    return loading;
}

}  // namespace dak::testing_support
