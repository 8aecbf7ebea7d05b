#include "planner/operations.h"

#include <algorithm>

#include "memory/kv_page.h"

namespace dak {

namespace {

constexpr double kTera = 1e12;
constexpr double kGiga = 1e9;
constexpr double kMicro = 1e-6;
constexpr int64_t kActivationBytes = 2;  // 16-bit
constexpr int64_t kLogitBytes = 4;
constexpr int64_t kListEntryBytes = 16;  // of a page and KV head, at most

/// The prompts are read in steps of at most a chunk of tokens.
struct Chunks {
    int64_t count = 0;
    double tokens = 0;  ///< of one chunk, mean
};

Chunks chunks_of(const Workload& workload, const PlanOptions& options) {
    const int64_t tokens = workload.batch * workload.prompt;
    const int64_t count = ceil_div(tokens, options.prefill_chunk);
    return {count, static_cast<double>(tokens) / static_cast<double>(count)};
}

bool is_gathered(const WeightSpec& spec, const ModelConfig& config) {
    return spec.role == WeightRole::kPositions ||
           (spec.role == WeightRole::kEmbedding && !config.tied_embeddings);
}

bool is_head(const WeightSpec& spec) {
    return spec.role == WeightRole::kLmHead || spec.role == WeightRole::kEmbedding;
}

/// A product with `tokens` tokens.
PhaseWork product_work(const WeightSpec& spec, double tokens, const HardwareProfile& profile) {
    PhaseWork work;
    work.read_bytes = static_cast<double>(spec.shape.bytes());
    work.flops = 2 * tokens * static_cast<double>(spec.shape.rows * spec.shape.cols);
    work.compute_seconds = work.flops / (interpolate(profile.gemm_tflops, tokens) * kTera);
    work.fixed_seconds = interpolate(profile.kernel_us, tokens) * kMicro;
    work.local_bytes_per_second = profile.local_gbps * kGiga;
    // Whole tokens per pass; the mean chunk may be a fraction more than a pass.
    work.crossings =
        static_cast<double>(ceil_div(static_cast<int64_t>(tokens), profile.direct_once_tokens));
    return work;
}

/// Rows of a table, one per token.
PhaseWork gather_work(const WeightSpec& spec, double tokens, const HardwareProfile& profile) {
    PhaseWork work;
    const double row_bytes = static_cast<double>(spec.shape.k_atoms() * kAtomRowBytes);
    work.read_bytes = std::min(tokens * row_bytes, static_cast<double>(spec.shape.bytes()));
    work.fixed_seconds = profile.small_kernel_us * kMicro;
    work.local_bytes_per_second = profile.local_gbps * kGiga;
    return work;
}

Operation weight_operation(const WeightSpec& spec, const ModelConfig& config,
                           const Workload& workload, const HardwareProfile& profile,
                           const PlanOptions& options) {
    Operation operation;
    operation.name = spec.name;
    operation.units = spec.shape.atoms();
    operation.unit_bytes = kAtomBytes;
    const Chunks chunks = chunks_of(workload, options);
    const auto batch = static_cast<double>(workload.batch);
    if (is_gathered(spec, config)) {
        operation.prefill = gather_work(spec, chunks.tokens, profile);
        operation.decode = gather_work(spec, batch, profile);
    } else {
        // Only the last token of a prompt needs logits.
        const double prefill_tokens = is_head(spec)
                                          ? std::max(1.0, batch / static_cast<double>(chunks.count))
                                          : chunks.tokens;
        operation.prefill = product_work(spec, prefill_tokens, profile);
        operation.decode = product_work(spec, batch, profile);
        operation.staged = true;
    }
    operation.prefill.steps = static_cast<double>(chunks.count);
    operation.decode.steps = static_cast<double>(workload.output);
    return operation;
}

KvPageLayout page_layout(const ModelConfig& config, std::optional<DType> kv_dtype) {
    return {config.num_kv_heads, config.head_dim, kv_dtype.value_or(config.dtype)};
}

/// KV bytes of one token in one layer.
double token_layer_bytes(const KvPageLayout& layout) {
    return static_cast<double>(layout.page_bytes()) / static_cast<double>(kPageTokens);
}

Operation kv_operation(const ModelConfig& config, const Workload& workload,
                       const HardwareProfile& profile, const PlanOptions& options) {
    const KvPageLayout layout = page_layout(config, options.kv_dtype);
    Operation operation;
    operation.name = "kv";
    operation.units = workload.batch * ceil_div(workload.prompt + workload.output, kPageTokens);
    operation.unit_bytes = config.num_layers * layout.page_bytes();

    const auto batch = static_cast<double>(workload.batch);
    const auto layers = static_cast<double>(config.num_layers);
    const auto q_size = static_cast<double>(config.q_size());
    const auto prompt = static_cast<double>(workload.prompt);
    const double mean_context = prompt + static_cast<double>(workload.output + 1) / 2;

    PhaseWork& decode = operation.decode;
    const double attended = batch * config.attended_tokens(mean_context);
    decode.steps = static_cast<double>(workload.output);
    decode.read_bytes = attended * token_layer_bytes(layout);
    decode.flops = 4 * attended * q_size;
    decode.compute_seconds = layers * batch * static_cast<double>(config.num_kv_heads) *
                             profile.attention_item_us * kMicro;
    decode.fixed_seconds = layers * profile.attention_us * kMicro;
    decode.local_bytes_per_second = profile.attention_local_gbps * kGiga;

    // Each chunk reads the pages of its sequences up to itself: half of them in the mean.
    PhaseWork& prefill = operation.prefill;
    const Chunks chunks = chunks_of(workload, options);
    const double chunks_per_prompt =
        std::max(1.0, prompt / static_cast<double>(options.prefill_chunk));
    const auto count = static_cast<double>(chunks.count);
    prefill.steps = count;
    prefill.read_bytes = batch * config.attended_tokens(prompt) * token_layer_bytes(layout) *
                         (chunks_per_prompt + 1) / 2 / count;
    prefill.flops = 4 * batch * config.attended_tokens((prompt + 1) / 2) * prompt * q_size / count;
    prefill.compute_seconds = prefill.flops / (profile.attention_tflops * kTera);
    prefill.fixed_seconds = layers * profile.attention_us * kMicro;
    prefill.local_bytes_per_second = profile.attention_local_gbps * kGiga;
    return operation;
}

/// Whether `text` matches `pattern`, in which '*' stands for any characters.
bool matches(std::string_view pattern, std::string_view text) {
    size_t p = 0, t = 0, star = std::string_view::npos, resume = 0;
    while (t < text.size()) {
        if (p < pattern.size() && pattern[p] == '*') {
            star = p++;
            resume = t;
        } else if (p < pattern.size() && pattern[p] == text[t]) {
            ++p;
            ++t;
        } else if (star != std::string_view::npos) {
            p = star + 1;
            t = ++resume;
        } else {
            return false;
        }
    }
    return pattern.find_first_not_of('*', p) == std::string_view::npos;
}

void apply_rules(const std::vector<PlacementRule>& rules, std::vector<Operation>& operations) {
    for (const PlacementRule& rule : rules) {
        bool used = false;
        for (Operation& operation : operations) {
            if (!matches(rule.pattern, operation.name)) continue;
            operation.fixed_share = rule.remote_share;
            used = true;
        }
        require(used,
                "placement rule '{}' matches no weight; names are like '{}', '{}' and 'kv', and "
                "'*' stands for anything",
                rule.pattern, operations.front().name, operations[operations.size() / 2].name);
    }
}

}  // namespace

std::vector<Operation> model_operations(const ModelConfig& config, const Workload& workload,
                                        const HardwareProfile& profile,
                                        const PlanOptions& options) {
    std::vector<Operation> operations;
    for (const WeightSpec& spec : weight_specs(config)) {
        operations.push_back(weight_operation(spec, config, workload, profile, options));
    }
    operations.push_back(kv_operation(config, workload, profile, options));
    apply_rules(options.rules, operations);
    return operations;
}

OtherWork other_work(const ModelConfig& config, const Workload& workload,
                     const HardwareProfile& profile, const PlanOptions& options) {
    int64_t kernels = 1;  // final norm
    int64_t width = 0;    // elements of a token that they read and write
    for (const LayerStep step : config.layer_steps) {
        const bool norm = step == LayerStep::kAttentionNorm || step == LayerStep::kMlpNorm ||
                          step == LayerStep::kPostAttentionNorm || step == LayerStep::kPostMlpNorm;
        if (norm) width += 2 * config.hidden_size;
        // New keys and values go to their pages before attention, rotated or not.
        if (step == LayerStep::kAttention) {
            width += 4 * config.kv_size() + (config.rope ? 2 * config.q_size() : 0);
        }
        if (norm || step == LayerStep::kAttention) kernels += config.num_layers;
    }
    const double fixed =
        (static_cast<double>(kernels) * profile.small_kernel_us + profile.step_us) * kMicro;
    const double token = static_cast<double>(config.num_layers * width * kActivationBytes) /
                         (profile.small_kernel_gbps * kGiga);
    const Chunks chunks = chunks_of(workload, options);
    OtherWork other;
    other.decode_seconds = fixed + static_cast<double>(workload.batch) * token;
    other.prefill_seconds = static_cast<double>(chunks.count) * (fixed + chunks.tokens * token);
    return other;
}

GpuMemory fixed_memory(const ModelConfig& config, const Workload& workload,
                       const PlanOptions& options) {
    // A step has room for a chunk of prompts and a token of every other sequence.
    const int64_t tokens =
        workload.batch +
        std::min(options.prefill_chunk, workload.batch * (workload.prompt + workload.output));
    // Residual stream, normalised input, q k v, attention output, MLP, embedding.
    const int64_t width = 2 * config.hidden_size + 2 * config.q_size() + 2 * config.kv_size() +
                          config.intermediate_size + config.embedding_size;
    // Of decode attention: parts of items whose pages lie in both tiers, and a list of all blocks.
    const int64_t parts = 2 * workload.batch * config.num_heads * (config.head_dim + 2) * 4;
    const int64_t pages = ceil_div(workload.prompt + workload.output, kPageTokens);
    const int64_t lists = workload.batch * config.num_kv_heads * pages * kListEntryBytes;
    const MemoryReserves& r = options.reserves;
    GpuMemory memory;
    for (const int64_t size : vector_sizes(config)) {
        memory.vector_bytes += size * int64_t{sizeof(float)};
    }
    for (const int64_t size : folded_vector_sizes(config)) {
        memory.vector_bytes += size * int64_t{sizeof(float)};
    }
    memory.activation_bytes = tokens * width * kActivationBytes +
                              workload.batch * config.vocab_size * kLogitBytes + parts + lists;
    memory.reserve_bytes = r.context_bytes + r.graph_bytes + r.workspace_bytes + r.margin_bytes;
    return memory;
}

double rough_bytes(const ModelConfig& config, const Workload& workload,
                   const PlanOptions& options) {
    const auto batch = static_cast<double>(workload.batch);
    const double context = static_cast<double>(workload.prompt) +
                           static_cast<double>(workload.output) + static_cast<double>(kPageTokens);
    const double kv = batch * context * static_cast<double>(config.num_layers) *
                      token_layer_bytes(page_layout(config, options.kv_dtype));
    // A sequence's and a step's: as fixed_memory for one sequence, its lists by the page.
    const auto one = static_cast<double>(
        fixed_memory(config, {1, workload.prompt, workload.output}, options).total());
    return static_cast<double>(footprint(config, {1, 1, 1}, options.kv_dtype).weight_bytes) + kv +
           batch * one;
}

Footprint footprint(const ModelConfig& config, const Workload& workload,
                    std::optional<DType> kv_dtype) {
    Footprint result;
    for (const WeightSpec& spec : weight_specs(config)) result.weight_bytes += spec.shape.bytes();
    const int64_t page_bytes = config.num_layers * page_layout(config, kv_dtype).page_bytes();
    result.kv_bytes =
        workload.batch * (workload.prompt + workload.output) * (page_bytes / kPageTokens);
    return result;
}

}  // namespace dak
