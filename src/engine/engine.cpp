#include "engine/engine.h"

#include <algorithm>

#include "base/error.h"
#include "engine/stop_strings.h"

namespace dak {

namespace {

using Clock = std::chrono::steady_clock;

double seconds_between(Clock::time_point begin, Clock::time_point end) {
    return std::chrono::duration<double>(end - begin).count();
}

double rate(double amount, double seconds) { return seconds > 0 ? amount / seconds : 0; }

int64_t weight_bytes_per_step(const ModelConfig& config) {
    int64_t bytes = 0;
    for (const WeightSpec& spec : weight_specs(config)) {
        if (!only_gathered(spec, config)) bytes += spec.shape.bytes();
    }
    return bytes;
}

}  // namespace

double EngineStatistics::prefill_tokens_per_second() const {
    return rate(static_cast<double>(prefill_tokens), prefill_seconds);
}
double EngineStatistics::decode_tokens_per_second() const {
    return rate(static_cast<double>(decode_tokens), decode_seconds);
}
double EngineStatistics::tpot_seconds() const {
    return rate(decode_seconds, static_cast<double>(decode_steps));
}
double EngineStatistics::effective_bytes_per_second() const {
    return rate(static_cast<double>(decode_weight_bytes + decode_kv_bytes), decode_seconds);
}

/// A request on its way through the engine.
struct Engine::Sequence {
    RequestId id = 0;
    Request request;
    std::vector<int32_t> tokens;  ///< prompt, then what was generated
    int64_t cached = 0;           ///< tokens whose keys and values are in the cache
    int64_t chunk = 0;            ///< tokens this step adds to them
    int64_t max_tokens = 0;       ///< prompt and output together
    std::vector<int32_t> pages;
    std::optional<StreamDecoder> decoder;
    StopStrings stop{{}};
    std::string text;
    FinishReason finish = FinishReason::kNone;
    std::string error;
    Clock::time_point added = Clock::now();
    Clock::time_point first_token;
    Clock::time_point last_token;

    int64_t prompt_size() const { return static_cast<int64_t>(request.prompt.size()); }
    int64_t size() const { return static_cast<int64_t>(tokens.size()); }
    int64_t generated() const { return size() - prompt_size(); }
    bool prefilling() const { return cached < prompt_size(); }
    bool finished() const { return finish != FinishReason::kNone; }

    SequenceChunk next_chunk() const {
        const int64_t end = cached + chunk;
        return {.tokens = std::span(tokens).subspan(static_cast<size_t>(cached),
                                                    static_cast<size_t>(chunk)),
                .past = cached,
                .pages = pages,
                .rope_length = std::max(end, prompt_size()),
                .wants_token = end == size()};
    }
    Draw next_draw() const {
        return {.sampling = &request.sampling,
                .prompt = request.prompt,
                .output = std::span(tokens).subspan(request.prompt.size())};
    }
};

Engine::Engine(ModelConfig config, ModelWeights weights, const Tokenizer* tokenizer,
               const EngineOptions& options)
    : config_(std::move(config)),
      weights_(std::move(weights)),
      tokenizer_(tokenizer),
      options_(options),
      cache_({config_.num_kv_heads, config_.head_dim, options.kv_dtype.value_or(config_.dtype)},
             config_.num_layers, options.kv_pages, options.kv_remote_pages, options.memory),
      executor_(options.make_executor
                    ? options.make_executor(config_, weights_, cache_)
                    : make_cpu_executor(config_, weights_, cache_, options.num_threads)),
      weight_bytes_per_step_(weight_bytes_per_step(config_)) {
    require(options.max_batch > 0, "the batch size must be positive, got {}", options.max_batch);
    require(options.prefill_chunk > 0, "the prefill chunk must be positive, got {}",
            options.prefill_chunk);
}

Engine::~Engine() = default;

void Engine::validate(const Request& request, const ModelConfig& config) {
    request.sampling.validate();
    require(!request.prompt.empty(), "the prompt is empty: give it at least one token");
    for (const int32_t token : request.prompt) {
        require(token >= 0 && token < config.vocab_size,
                "prompt token {} is outside the model's vocabulary of {}: the tokenizer belongs to "
                "another model",
                token, config.vocab_size);
    }
    const auto prompt_size = static_cast<int64_t>(request.prompt.size());
    require(prompt_size < config.max_position,
            "the prompt has {} tokens, but the model's context holds {} and must leave room for "
            "one more; shorten the prompt",
            prompt_size, config.max_position);
    require(request.max_new_tokens > 0, "the number of new tokens must be positive, got {}",
            request.max_new_tokens);
    for (const std::string& stop : request.stop) {
        require(!stop.empty(), "a stop string is empty");
    }
}

RequestId Engine::add(Request request) {
    validate(request, config_);
    require(tokenizer_ || request.stop.empty(), "stop strings need a tokenizer");
    const auto prompt_size = static_cast<int64_t>(request.prompt.size());
    // Compared without adding first: max_new_tokens may be as large as its type.
    const int64_t limit = options_.max_tokens > 0
                              ? std::min(options_.max_tokens, config_.max_position)
                              : config_.max_position;
    require(prompt_size < limit,
            "the prompt has {} tokens, but the engine was started for sequences of {}", prompt_size,
            limit);
    const int64_t max_tokens = prompt_size + std::min(request.max_new_tokens, limit - prompt_size);
    const int64_t pages = KvCache::pages_for(max_tokens);
    require(pages <= cache_.num_pages(),
            "a prompt of {} tokens and {} new ones need {} KV pages, but the cache has {} "
            "({} tokens); ask for fewer tokens or a larger cache",
            prompt_size, max_tokens - prompt_size, pages, cache_.num_pages(),
            cache_.num_pages() * kPageTokens);

    auto sequence = std::make_unique<Sequence>();
    sequence->id = next_id_++;
    sequence->max_tokens = max_tokens;
    sequence->request = std::move(request);
    sequence->tokens = sequence->request.prompt;
    sequence->stop = StopStrings(sequence->request.stop);
    if (tokenizer_) sequence->decoder.emplace(*tokenizer_);
    waiting_.push_back(std::move(sequence));
    return waiting_.back()->id;
}

bool Engine::idle() const { return waiting_.empty() && running_.empty(); }

void Engine::cancel(RequestId id) {
    const auto mark = [id](const SequencePtr& sequence) {
        if (sequence->id == id && !sequence->finished()) {
            sequence->finish = FinishReason::kCancelled;
        }
    };
    std::for_each(waiting_.begin(), waiting_.end(), mark);
    std::for_each(running_.begin(), running_.end(), mark);
}

std::vector<Completion> Engine::step() {
    admit();
    const std::vector<Sequence*> work = choose_work();
    if (!work.empty()) {
        const Clock::time_point begin = Clock::now();
        std::vector<SequenceChunk> chunks;
        std::vector<Draw> draws;
        for (const Sequence* sequence : work) {
            chunks.push_back(sequence->next_chunk());
            if (chunks.back().wants_token) draws.push_back(sequence->next_draw());
        }
        const std::vector<SampledToken> tokens = executor_->step(chunks, draws);
        account(work, seconds_between(begin, Clock::now()));
        auto token = tokens.begin();
        for (size_t i = 0; i < work.size(); ++i) {
            work[i]->cached += work[i]->chunk;
            if (chunks[i].wants_token) accept(*work[i], *token++);
        }
    }
    return collect_finished();
}

void Engine::admit() {
    while (!waiting_.empty() && static_cast<int64_t>(running_.size()) < options_.max_batch) {
        Sequence& next = *waiting_.front();
        const int64_t pages = KvCache::pages_for(next.max_tokens);
        if (pages > cache_.free_pages()) return;  // first come, first served
        next.pages = cache_.allocate(pages);
        running_.push_back(std::move(waiting_.front()));
        waiting_.pop_front();
    }
}

/// Sequences with their `chunk` set: one token for each that decodes, and prompt tokens of the
/// others, oldest first, up to the chunk size.
std::vector<Engine::Sequence*> Engine::choose_work() {
    std::vector<Sequence*> work;
    int64_t prompt_budget = options_.prefill_chunk;
    const bool prompts_only =
        options_.decode_together && std::ranges::any_of(running_, [](const SequencePtr& sequence) {
            return !sequence->finished() && sequence->prefilling();
        });
    for (const SequencePtr& sequence : running_) {
        if (sequence->finished() || (prompts_only && !sequence->prefilling())) continue;
        sequence->chunk = 1;
        if (sequence->prefilling()) {
            sequence->chunk = std::min(prompt_budget, sequence->size() - sequence->cached);
            prompt_budget -= sequence->chunk;
        }
        if (sequence->chunk > 0) work.push_back(sequence.get());
    }
    return work;
}

void Engine::account(const std::vector<Sequence*>& work, double seconds) {
    int64_t prompt_tokens = 0;
    double attended_tokens = 0;
    for (const Sequence* sequence : work) {
        if (sequence->prefilling()) prompt_tokens += sequence->chunk;
        attended_tokens +=
            config_.attended_tokens(static_cast<double>(sequence->cached + sequence->chunk));
    }
    if (prompt_tokens > 0) {
        statistics_.prefill_tokens += prompt_tokens;
        statistics_.prefill_seconds += seconds;
        return;
    }
    statistics_.decode_steps += 1;
    statistics_.decode_tokens += static_cast<int64_t>(work.size());
    statistics_.decode_seconds += seconds;
    statistics_.decode_weight_bytes += weight_bytes_per_step_;
    statistics_.decode_kv_bytes +=
        static_cast<int64_t>(attended_tokens) * cache_.token_bytes() / config_.num_layers;
}

void Engine::accept(Sequence& sequence, const SampledToken& sampled) {
    if (sequence.finished()) return;  // a callback of this step has cancelled it
    if (!sampled.error.empty()) {
        sequence.finish = FinishReason::kError;
        sequence.error = sampled.error;
        return;
    }
    accept_token(sequence, sampled.token);
}

void Engine::accept_token(Sequence& sequence, int32_t token) {
    sequence.tokens.push_back(token);
    sequence.last_token = Clock::now();
    if (sequence.generated() == 1) sequence.first_token = sequence.last_token;

    const bool eos = !sequence.request.ignore_eos &&
                     std::count(config_.eos_tokens.begin(), config_.eos_tokens.end(), token) > 0;
    std::string text;
    // A model's vocabulary may be padded beyond its tokenizer's; such a token has no text.
    if (sequence.decoder && !eos && token < tokenizer_->vocab_size()) {
        text = sequence.stop.push(sequence.decoder->push(token));
    }
    if (sequence.stop.found()) {
        sequence.finish = FinishReason::kStop;
    } else if (eos) {
        sequence.finish = FinishReason::kEos;
    } else if (sequence.size() >= sequence.max_tokens) {
        sequence.finish = FinishReason::kLength;
    }
    if (sequence.finished() && sequence.decoder) {
        text += sequence.stop.push(sequence.decoder->finish());
        text += sequence.stop.finish();
        if (sequence.stop.found()) sequence.finish = FinishReason::kStop;
    }
    sequence.text += text;
    if (sequence.request.on_update) {
        sequence.request.on_update({sequence.id, token, text, sequence.finish});
    }
}

std::vector<Completion> Engine::collect_finished() {
    std::vector<Completion> completions;
    const auto collect = [&](SequencePtr& sequence) {
        if (!sequence->finished()) return false;
        cache_.release(sequence->pages);
        const auto generated = sequence->generated();
        Completion completion{
            .id = sequence->id,
            .prompt_tokens = sequence->prompt_size(),
            .tokens = {sequence->tokens.end() - generated, sequence->tokens.end()},
            .text = std::move(sequence->text),
            .finish = sequence->finish,
            .error = std::move(sequence->error)};
        if (generated > 0) {
            completion.ttft_seconds = seconds_between(sequence->added, sequence->first_token);
        }
        if (generated > 1) {
            completion.tpot_seconds = seconds_between(sequence->first_token, sequence->last_token) /
                                      static_cast<double>(generated - 1);
        }
        completions.push_back(std::move(completion));
        return true;
    };
    std::erase_if(running_, collect);
    std::erase_if(waiting_, collect);
    return completions;
}

}  // namespace dak
