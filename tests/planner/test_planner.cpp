#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <numeric>
#include <random>

#include "base/error.h"
#include "model/presets.h"
#include "planner/planner.h"

namespace dak {
namespace {

using testing::HasSubstr;

constexpr int64_t kPlenty = int64_t{1} << 50;

Budgets budgets_of(const HardwareProfile& profile) {
    return {profile.gpu_memory_bytes, profile.remote_memory_bytes};
}

int64_t remote_bytes(const Plan& plan) { return plan.remote_weight_bytes + plan.remote_kv_bytes; }

/// What holds for every plan.
void expect_sound(const Plan& plan, const ModelConfig& config, const Budgets& budgets) {
    EXPECT_LE(plan.gpu.total(), budgets.gpu_bytes);
    EXPECT_LE(remote_bytes(plan), budgets.host_bytes);
    const std::vector<WeightSpec> specs = weight_specs(config);
    ASSERT_EQ(plan.placement.size(), specs.size());
    int64_t local = 0, remote = 0;
    for (size_t i = 0; i < specs.size(); ++i) {
        EXPECT_GE(plan.placement[i], 0);
        EXPECT_LE(plan.placement[i], specs[i].shape.atoms());
        remote += plan.placement[i] * kAtomBytes;
        local += (specs[i].shape.atoms() - plan.placement[i]) * kAtomBytes;
    }
    EXPECT_EQ(plan.remote_weight_bytes, remote);
    EXPECT_EQ(plan.gpu.weight_bytes, local);
    EXPECT_GE(plan.kv_local_pages, 0);
    EXPECT_GE(plan.kv_remote_pages, 0);
    EXPECT_EQ(plan.gpu.ring_bytes, plan.staging.slot_bytes * plan.staging.slots);
    if (plan.transport == Transport::kStaged) {
        // Tables that are only gathered from do not go through the ring.
        int64_t streamed = 0, largest = 0;
        for (size_t i = 0; i < specs.size(); ++i) {
            const bool gathered = specs[i].name == "positions" ||
                                  (specs[i].name == "embedding" && !config.tied_embeddings);
            if (gathered) continue;
            streamed += plan.placement[i] * kAtomBytes;
            largest = std::max(largest, plan.placement[i] * kAtomBytes);
        }
        EXPECT_GE(plan.staging.slot_bytes * plan.staging.pieces, streamed);
        EXPECT_LT(plan.staging.slot_bytes * (plan.staging.pieces - 1), streamed);
        EXPECT_GE(plan.gpu.ring_bytes, std::min(streamed, 2 * largest + plan.staging.slot_bytes));
    }
    double seconds = plan.link_wait_seconds;
    for (const OperationPlan& operation : plan.operations) seconds += operation.seconds;
    EXPECT_NEAR(seconds, plan.tpot_seconds, 1e-9 * seconds);
    EXPECT_EQ(std::accumulate(plan.phase_bytes.begin(), plan.phase_bytes.end(), int64_t{0}),
              remote_bytes(plan));
}

TEST(Planner, PeaksAtTheTurningPointOfTheMachine) {
    const HardwareProfile gh200 = hardware_preset("gh200");
    const std::vector<SweepPoint> sweep =
        sweep_offload_ratio(preset_config("opt-30b"), {8, 32, 32}, gh200, budgets_of(gh200));
    const auto peak = std::ranges::max_element(sweep, {}, &SweepPoint::effective_bytes_per_second);
    EXPECT_NEAR(peak->offload_ratio, 0.101, 0.0005);
    EXPECT_EQ(peak->transport, Transport::kDirect);
    EXPECT_DOUBLE_EQ(sweep.front().offload_ratio, 0);
    EXPECT_DOUBLE_EQ(sweep.back().offload_ratio, 1);
    // Rising up to the peak and falling after it.
    for (auto point = sweep.begin() + 1; point != sweep.end(); ++point) {
        const bool rising = point <= peak;
        EXPECT_EQ(rising,
                  point->effective_bytes_per_second > (point - 1)->effective_bytes_per_second)
            << "at " << point->offload_ratio;
    }
}

TEST(Planner, NeverExceedsABudgetByAByte) {
    std::mt19937_64 random(1);
    const std::vector<std::string_view> models = {"opt-125m", "opt-350m",     "opt-6.7b",
                                                  "opt-30b",  "llama-2-7b",   "llama-3-8b",
                                                  "qwen3-8b", "smollm2-135m", "mistral-7b"};
    const std::vector<std::string> machines = hardware_preset_names();
    int planned = 0;
    for (int i = 0; i < 1000; ++i) {
        const ModelConfig config = preset_config(models[random() % models.size()]);
        const HardwareProfile profile = hardware_preset(machines[random() % machines.size()]);
        const Workload workload = {1 + static_cast<int64_t>(random() % 300),
                                   1 + static_cast<int64_t>(random() % 1000),
                                   1 + static_cast<int64_t>(random() % 1000)};
        const Footprint size = footprint(config, workload);
        const double all = static_cast<double>(size.weight_bytes + size.kv_bytes);
        std::uniform_real_distribution<double> share(0, 1.3);
        // Odd numbers of bytes: nothing is aligned by luck.
        const Budgets budgets = {static_cast<int64_t>(1.2e9 + all * share(random)) | 1,
                                 static_cast<int64_t>(all * share(random)) | 1};
        PlanOptions options;
        if (random() % 4 == 0) options.policy = PlanPolicy::kUniform;
        if (random() % 4 == 0) options.transport = Transport::kStaged;
        try {
            const Plan plan = make_plan(config, workload, profile, budgets, options);
            expect_sound(plan, config, budgets);
            ++planned;
        } catch (const Error& error) {
            EXPECT_THAT(error.what(), HasSubstr("does not fit"));
        }
    }
    EXPECT_GT(planned, 450);
}

/// The first number in parentheses of a refusal: "(123 bytes)".
int64_t smallest_budget(const std::string& message) {
    const size_t at = message.find('(');
    return std::stoll(message.substr(at + 1));
}

TEST(Planner, RefusesWithTheSmallestBudgetThatWouldDo) {
    const HardwareProfile profile = hardware_preset("h200-pcie");
    for (const char* model : {"opt-125m", "opt-30b", "llama-3-8b"}) {
        const ModelConfig config = preset_config(model);
        const Workload workload = {64, 500, 77};
        const Footprint size = footprint(config, workload);
        for (const double host_share : {0.0, 0.3, 0.77, 2.0}) {
            const auto host = static_cast<int64_t>(
                host_share * static_cast<double>(size.weight_bytes + size.kv_bytes));
            std::string message;
            try {
                make_plan(config, workload, profile, {1'000'001, host});
                FAIL() << "planned into a megabyte";
            } catch (const Error& error) {
                message = error.what();
            }
            const int64_t gpu = smallest_budget(message);
            const Plan plan = make_plan(config, workload, profile, {gpu, host});
            expect_sound(plan, config, {gpu, host});
            EXPECT_EQ(plan.gpu.total(), gpu) << message;
            EXPECT_THROW(make_plan(config, workload, profile, {gpu - 1, host}), Error);
        }
    }
}

TEST(Planner, ARingNeedsMemoryToo) {
    const HardwareProfile profile = hardware_preset("h200-pcie");
    const ModelConfig config = preset_config("opt-6.7b");
    PlanOptions options;
    options.transport = Transport::kStaged;
    const int64_t host = 5 * kGiB;
    try {
        make_plan(config, {8, 32, 32}, profile, {kGiB, host}, options);
        FAIL() << "planned into a gibibyte";
    } catch (const Error& error) {
        const int64_t gpu = smallest_budget(error.what());
        const Plan plan = make_plan(config, {8, 32, 32}, profile, {gpu, host}, options);
        expect_sound(plan, config, {gpu, host});
        EXPECT_GT(plan.gpu.ring_bytes, 0);
        EXPECT_THROW(make_plan(config, {8, 32, 32}, profile, {gpu - 1, host}, options), Error);
    }
}

TEST(Planner, NamesTheSmallestHostBudgetToo) {
    const HardwareProfile profile = hardware_preset("h200-pcie");
    const ModelConfig config = preset_config("opt-6.7b");
    const Workload workload = {8, 32, 32};
    const int64_t gpu = 5 * kGiB;
    try {
        make_plan(config, workload, profile, {gpu, kGiB});
        FAIL() << "13 GB in 6 GiB";
    } catch (const Error& error) {
        const std::string message = error.what();
        const int64_t host = smallest_budget(message.substr(message.find("or, with this GPU")));
        expect_sound(make_plan(config, workload, profile, {gpu, host}), config, {gpu, host});
        EXPECT_THROW(make_plan(config, workload, profile, {gpu, host - 1}), Error);
    }
}

TEST(Planner, MoreMemoryIsNeverSlower) {
    for (const char* machine : {"gh200", "h200-pcie", "rtx-4090"}) {
        const HardwareProfile profile = hardware_preset(machine);
        for (const Workload& workload : {Workload{8, 32, 32}, Workload{256, 512, 64}}) {
            const ModelConfig config = preset_config("opt-6.7b");
            for (const double min_gain : {0.0, 0.02}) {
                PlanOptions options;
                options.min_gain = min_gain;
                double before = std::numeric_limits<double>::infinity();
                for (int64_t gpu = 3; gpu < 120; gpu += 3) {
                    const Budgets budgets = {gpu * kGiB, kPlenty};
                    const double seconds =
                        make_plan(config, workload, profile, budgets, options).total_seconds();
                    // What whole pages cost, and what a plan that fits forgoes on purpose.
                    EXPECT_LE(seconds, before * (1.003 + min_gain)) << machine << " " << gpu;
                    before = seconds;
                }
            }
        }
    }
}

TEST(Planner, GreedyIsNeverSlowerThanUniform) {
    const HardwareProfile profile = hardware_preset("gh200");
    const ModelConfig config = preset_config("opt-30b");
    for (const int64_t batch : {8, 128, 512}) {
        double best_gain = 0;
        for (int percent = 0; percent <= 100; percent += 10) {
            PlanOptions options;
            options.offload_ratio = percent / 100.0;
            options.transport = Transport::kDirect;
            const Workload workload = {batch, 32, 32};
            const Budgets budgets = {kPlenty, kPlenty};
            const double greedy =
                make_plan(config, workload, profile, budgets, options).total_seconds();
            options.policy = PlanPolicy::kUniform;
            const double uniform =
                make_plan(config, workload, profile, budgets, options).total_seconds();
            EXPECT_LE(greedy, uniform * 1.0005) << batch << " at " << percent << "%";
            best_gain = std::max(best_gain, uniform / greedy);
        }
        EXPECT_GT(best_gain, batch == 512 ? 1.1 : 0.99);
    }
}

TEST(Planner, OffloadsWithoutNeedOnlyWhereItPays) {
    const ModelConfig config = preset_config("opt-30b");
    for (const auto& [machine, pays] : {std::pair{"gh200", true}, {"h200-pcie", false}}) {
        const HardwareProfile profile = hardware_preset(machine);
        const Plan plan = make_plan(config, {8, 32, 32}, profile, budgets_of(profile));
        EXPECT_NEAR(plan.offload_ratio(), pays ? 0.101 : 0, 0.001) << machine;
        EXPECT_EQ(plan.transport, Transport::kDirect);
    }
}

TEST(Planner, TakesTheTransportThatIsFaster) {
    const ModelConfig config = preset_config("opt-30b");
    const HardwareProfile profile = hardware_preset("h200-pcie");
    PlanOptions options;
    options.rules = {parse_placement_rule("kv=local")};
    for (const auto& [ratio, transport] : {std::pair{0.005, Transport::kDirect},
                                           {0.01, Transport::kDirect},
                                           {0.02, Transport::kStaged},
                                           {0.3, Transport::kStaged}}) {
        options.offload_ratio = ratio;
        const Plan plan = make_plan(config, {8, 32, 32}, profile, budgets_of(profile), options);
        EXPECT_EQ(plan.transport, transport) << ratio;
        EXPECT_NEAR(plan.offload_ratio(), ratio, 1e-6);
        EXPECT_TRUE(plan.staging.slots != 4 || plan.staging.pieces % 4 == 0);
    }
}

TEST(Planner, GatheredTablesGoBeforeAnythingThatCostsTime) {
    // Llama's token table is read a few rows at a time; the head is read whole.
    const ModelConfig config = preset_config("llama-3-8b");
    const HardwareProfile profile = hardware_preset("h200-pcie");
    PlanOptions options;
    options.transport = Transport::kDirect;
    options.offload_ratio = 0.06;
    const Plan plan = make_plan(config, {1, 32, 32}, profile, {kPlenty, kPlenty}, options);
    EXPECT_EQ(plan.operations[0].name, "embedding");
    EXPECT_GT(plan.operations[0].ratio(), 0.75);
    for (size_t i = 1; i < plan.operations.size(); ++i) {
        const OperationPlan& operation = plan.operations[i];
        if (operation.name != "kv") {
            EXPECT_LE(operation.ratio(), operation.turning_point + 1e-3) << operation.name;
        }
    }
}

TEST(Planner, RulesDecideBeforeThePlannerDoes) {
    const ModelConfig config = preset_config("opt-6.7b");
    const HardwareProfile profile = hardware_preset("h200-pcie");
    PlanOptions options;
    for (const char* rule : {"layers.*=local", "layers.3.up=remote", "kv=0.5", "embedding=0.25"}) {
        options.rules.push_back(parse_placement_rule(rule));
    }
    const Plan plan = make_plan(config, {8, 100, 28}, profile, budgets_of(profile), options);
    const std::vector<WeightSpec> specs = weight_specs(config);
    for (size_t i = 0; i < specs.size(); ++i) {
        const int64_t expected = specs[i].name == "layers.3.up" ? specs[i].shape.atoms()
                                 : specs[i].name == "embedding" ? specs[i].shape.atoms() / 4
                                 : specs[i].name == "positions" ? plan.placement[i]
                                                                : 0;
        EXPECT_EQ(plan.placement[i], expected) << specs[i].name;
    }
    EXPECT_EQ(plan.kv_remote_pages, 8);
    EXPECT_EQ(plan.kv_local_pages, 8);

    options.offload_ratio = 0.5;  // the rules leave the positions open, and nothing else
    EXPECT_THROW(make_plan(config, {8, 100, 28}, profile, budgets_of(profile), options), Error);
    options.offload_ratio.reset();
    options.rules = {parse_placement_rule("layer.*=remote")};
    EXPECT_THROW(make_plan(config, {8, 100, 28}, profile, budgets_of(profile), options), Error);
    for (const char* bad : {"", "=remote", "up", "up=", "up=2", "up=-0.1", "up=far", "up=0.5x"}) {
        EXPECT_THROW(parse_placement_rule(bad), Error) << bad;
    }
}

TEST(Planner, SlidingWindowsReadLessOfTheCache) {
    ModelConfig config = preset_config("mistral-7b");
    const HardwareProfile profile = hardware_preset("h200-pcie");
    const Workload workload = {4, 16384, 32};
    const double windowed = make_plan(config, workload, profile, {kPlenty, kPlenty}).kv_read_bytes;
    config.sliding_window.clear();
    const double full = make_plan(config, workload, profile, {kPlenty, kPlenty}).kv_read_bytes;
    EXPECT_NEAR(windowed / full, 4096 / (16384 + 16.5), 1e-6);
}

/// A machine of round numbers on which nothing but bytes and maths costs time.
HardwareProfile ideal_machine() {
    HardwareProfile profile = hardware_preset("h200-pcie");
    profile.local_gbps = profile.attention_local_gbps = 1000;
    profile.remote_direct_gbps = 100;
    profile.kernel_us = {{1, 1e-9}};
    profile.gemm_tflops = {{1, 100}};
    profile.attention_tflops = 10;
    profile.small_kernel_us = profile.step_us = profile.attention_us = 0;
    profile.staging_slowdown = 1;
    profile.attention_item_us = 0;
    profile.small_kernel_gbps = 1e12;
    return profile;
}

TEST(Planner, TimesOfAStepByHand) {
    const ModelConfig config = preset_config("opt-6.7b");
    const double layer = 12.0 * 4096 * 4096;  // elements
    const double head = 50272.0 * 4096;
    const int64_t batch = 4, prompt = 100, output = 27;  // 400 prompt tokens: one chunk
    PlanOptions options;
    options.offload_ratio = 0;
    const Plan plan =
        make_plan(config, {batch, prompt, output}, ideal_machine(), {kPlenty, kPlenty}, options);
    // Decode reads everything once; the vocabulary is padded to whole atoms.
    const double weights = 2 * (32 * layer + 50304.0 * 4096);
    const double kv = 32 * 2 * 4096 * 2 * batch * (prompt + (output + 1) / 2.0);
    const double positions = 2 * 4096 * batch;  // a row for each sequence
    EXPECT_NEAR(plan.tpot_seconds, (weights + kv + positions) / 1e12, 1e-9 * plan.tpot_seconds);
    EXPECT_NEAR(plan.kv_read_bytes, kv, 1);
    // Prefill computes: products of all tokens, the head for the last ones (which is bound by its
    // bytes), attention over the lower triangle.
    const double products = 2 * 400.0 * 32 * layer / 100e12;
    const double logits = std::max(2.0 * batch * head / 100e12, 2 * 50304.0 * 4096 / 1e12);
    const double attention = 4.0 * batch * 32 * 4096 * prompt * (prompt + 1) / 2 / 10e12;
    EXPECT_NEAR(plan.prefill_seconds, products + logits + attention, 1e-4 * plan.prefill_seconds);
    EXPECT_NEAR(plan.total_seconds(), plan.prefill_seconds + output * plan.tpot_seconds, 1e-12);
}

TEST(Planner, LinkTimesByHand) {
    const ModelConfig config = preset_config("opt-6.7b");
    HardwareProfile profile = ideal_machine();
    profile.staged_gbps = {{1, 125}};
    profile.staging_write_cost = 0;
    PlanOptions options;
    options.rules = {parse_placement_rule("layers.*=remote"), parse_placement_rule("kv=local"),
                     parse_placement_rule("embedding=local"),
                     parse_placement_rule("positions=local")};
    options.transport = Transport::kDirect;
    const Workload workload = {1, 32, 32};
    const double remote = 2 * 32 * 12.0 * 4096 * 4096;
    const Plan direct = make_plan(config, workload, profile, {kPlenty, kPlenty}, options);
    const double rest = 2 * 50304.0 * 4096 / 1e12 + direct.kv_read_bytes / 1e12;
    EXPECT_NEAR(direct.tpot_seconds, remote / 100e9 + rest, 1e-6 * direct.tpot_seconds);
    options.transport = Transport::kStaged;
    const Plan staged = make_plan(config, workload, profile, {kPlenty, kPlenty}, options);
    EXPECT_NEAR(staged.tpot_seconds, remote / 125e9, 1e-6 * staged.tpot_seconds);
    EXPECT_NEAR(staged.link_wait_seconds, remote / 125e9 - remote / 1e12 - rest, 1e-3 * rest);

    // 2,000 tokens in a chunk: SMs read a remote weight twice, the copy engine once.
    options.prefill_chunk = 2000;
    profile.gemm_tflops = {{1, 1e6}};
    profile.attention_tflops = 1e6;
    const Workload prompts = {2, 1000, 32};
    options.transport = Transport::kDirect;
    EXPECT_NEAR(make_plan(config, prompts, profile, {kPlenty, kPlenty}, options).prefill_seconds,
                2 * remote / 100e9 + (2 * 50304.0 * 4096 + 2000 * (32 * 4 + 2) * 4096.0) / 1e12,
                1e-6 * remote / 100e9);
    options.transport = Transport::kStaged;
    EXPECT_NEAR(make_plan(config, prompts, profile, {kPlenty, kPlenty}, options).prefill_seconds,
                remote / 125e9, 1e-6 * remote / 125e9);
}

TEST(Planner, RefusesWhatMakesNoSense) {
    const ModelConfig config = preset_config("opt-125m");
    const HardwareProfile profile = hardware_preset("h200-pcie");
    const Budgets budgets = {kPlenty, kPlenty};
    EXPECT_THROW(make_plan(config, {0, 1, 1}, profile, budgets), Error);
    EXPECT_THROW(make_plan(config, {1, 0, 1}, profile, budgets), Error);
    EXPECT_THROW(make_plan(config, {1, 1, 0}, profile, budgets), Error);
    EXPECT_THROW(make_plan(config, {1, 2048, 1}, profile, budgets), Error);
    PlanOptions options;
    options.offload_ratio = 1.01;
    EXPECT_THROW(make_plan(config, {1, 1, 1}, profile, budgets, options), Error);
    options = {};
    options.prefill_chunk = 0;
    EXPECT_THROW(make_plan(config, {1, 1, 1}, profile, budgets, options), Error);
}

TEST(Planner, SaysWhichGivenRatioWouldFit) {
    const ModelConfig config = preset_config("opt-30b");
    const HardwareProfile profile = hardware_preset("h200-pcie");
    PlanOptions options;
    options.offload_ratio = 0.1;
    try {
        make_plan(config, {8, 32, 32}, profile, {30 * kGiB, kPlenty}, options);
        FAIL() << "50 GiB in 30";
    } catch (const Error& error) {
        const std::string message = error.what();
        const std::string words = "smallest ratio that fits is ";
        ASSERT_THAT(message, HasSubstr(words));
        options.offload_ratio = std::stod(message.substr(message.find(words) + words.size()));
    }
    options.transport = Transport::kDirect;
    make_plan(config, {8, 32, 32}, profile, {30 * kGiB, kPlenty}, options);
    *options.offload_ratio -= 2e-4;
    EXPECT_THROW(make_plan(config, {8, 32, 32}, profile, {30 * kGiB, kPlenty}, options), Error);
}

std::string refusal(const ModelConfig& config, const Workload& workload,
                    const HardwareProfile& profile, const Budgets& budgets,
                    const PlanOptions& options = {}) {
    try {
        make_plan(config, workload, profile, budgets, options);
    } catch (const Error& error) {
        return error.what();
    }
    return "no refusal";
}

/// The number after `words`.
double number_after(const std::string& words, const std::string& message) {
    const size_t at = message.find(words);
    EXPECT_NE(at, std::string::npos) << message;
    return at == std::string::npos ? -1 : std::stod(message.substr(at + words.size()));
}

TEST(Planner, NotAPageGoesRemoteWhenNothingMustAndNothingPays) {
    const HardwareProfile profile = hardware_preset("h100-pcie");
    const ModelConfig config = preset_config("qwen3-8b");
    const Workload workload = {128, 512, 500};
    const Plan plan = make_plan(config, workload, profile, budgets_of(profile));
    EXPECT_EQ(remote_bytes(plan), 0);
    PlanOptions options;
    options.offload_ratio = 0;
    EXPECT_EQ(remote_bytes(make_plan(config, workload, profile, budgets_of(profile), options)), 0);
}

TEST(Planner, SweepsTheRatiosThatRulesAllow) {
    const HardwareProfile profile = hardware_preset("h200-pcie");
    const ModelConfig config = preset_config("opt-30b");
    const auto sweep = [&](std::initializer_list<const char*> rules) {
        PlanOptions options;
        for (const char* rule : rules) options.rules.push_back(parse_placement_rule(rule));
        return sweep_offload_ratio(config, {8, 32, 32}, profile, budgets_of(profile), options);
    };
    const std::vector<SweepPoint> local = sweep({"*=local"});
    ASSERT_EQ(local.size(), 1u);
    EXPECT_EQ(local.front().offload_ratio, 0);
    const std::vector<SweepPoint> all = sweep({});
    EXPECT_EQ(all.front().offload_ratio, 0);
    EXPECT_EQ(all.back().offload_ratio, 1);

    const std::vector<SweepPoint> part = sweep({"layers.*.up=remote", "layers.*.down=local"});
    const double mlp_share = 48 * 4.0 * 7168 * 7168 * 2 / (60.6e9);  // of either matrix, about
    EXPECT_GT(part.size(), 5u);
    EXPECT_NEAR(part.front().offload_ratio, mlp_share, 0.02);
    EXPECT_NEAR(part.back().offload_ratio, 1 - mlp_share, 0.02);
    for (size_t i = 1; i < part.size(); ++i) {
        EXPECT_GT(part[i].offload_ratio, part[i - 1].offload_ratio);
    }
    // The ends are plans that the rules leave.
    PlanOptions options;
    options.rules = {parse_placement_rule("layers.*.up=remote"),
                     parse_placement_rule("layers.*.down=local")};
    for (const double ratio : {part.front().offload_ratio, part.back().offload_ratio}) {
        options.offload_ratio = ratio;
        EXPECT_NEAR(
            make_plan(config, {8, 32, 32}, profile, {kPlenty, kPlenty}, options).offload_ratio(),
            ratio, 1e-6);
    }
}

TEST(Planner, StagedWithNothingToStageIsDirect) {
    const HardwareProfile profile = hardware_preset("h200-pcie");
    const ModelConfig config = preset_config("opt-6.7b");
    PlanOptions options;
    for (const char* rule : {"kv=remote", "layers.*=local", "pos*=local", "emb*=local"}) {
        options.rules.push_back(parse_placement_rule(rule));
    }
    const auto planned = [&](Transport transport) {
        options.transport = transport;
        return make_plan(config, {8, 100, 28}, profile, budgets_of(profile), options);
    };
    const auto same = [&] {
        const Plan direct = planned(Transport::kDirect);
        const Plan staged = planned(Transport::kStaged);
        EXPECT_EQ(staged.transport, Transport::kDirect);
        EXPECT_DOUBLE_EQ(staged.tpot_seconds, direct.tpot_seconds);
        EXPECT_DOUBLE_EQ(staged.prefill_seconds, direct.prefill_seconds);
        EXPECT_THAT(staged.why, testing::Contains(HasSubstr("nothing to do")));
        EXPECT_THAT(direct.why, testing::Not(testing::Contains(HasSubstr("nothing to do"))));
    };
    same();
    options.rules.clear();
    options.offload_ratio = 0;
    same();
    options.offload_ratio.reset();
    const auto sweep =
        sweep_offload_ratio(config, {8, 100, 28}, profile, budgets_of(profile), options);
    EXPECT_EQ(sweep.front().transport, Transport::kDirect);
    EXPECT_EQ(sweep.back().transport, Transport::kStaged);
}

TEST(Planner, SweepPrefersTheTransportThatFits) {
    const HardwareProfile profile = hardware_preset("h200-pcie");
    const ModelConfig config = preset_config("llama-3-70b");
    const Workload workload = {128, 32, 1};
    const Budgets budgets = {8 * kGiB, profile.remote_memory_bytes};
    for (const SweepPoint& point : sweep_offload_ratio(config, workload, profile, budgets)) {
        PlanOptions options;
        options.offload_ratio = point.offload_ratio;
        const bool fits = refusal(config, workload, profile, budgets, options) == "no refusal";
        EXPECT_EQ(point.fits, fits) << point.offload_ratio;
    }
}

TEST(Planner, TheRatioThatARefusalNamesWorks) {
    const HardwareProfile profile = hardware_preset("h200-pcie");
    for (const char* model : {"opt-30b", "llama-3-8b", "opt-6.7b"}) {
        const ModelConfig config = preset_config(model);
        const Workload workload = {8, 32, 32};
        const Footprint size = footprint(config, workload);
        for (const Transport transport : {Transport::kDirect, Transport::kStaged}) {
            for (const double share : {0.3, 0.71}) {
                const auto gpu = static_cast<int64_t>(
                    1.3e9 + share * static_cast<double>(size.weight_bytes + size.kv_bytes));
                PlanOptions options;
                options.transport = transport;
                options.offload_ratio = 0.01;
                const std::string message =
                    refusal(config, workload, profile, {gpu, kPlenty}, options);
                options.offload_ratio = number_after("smallest ratio that fits is ", message);
                EXPECT_EQ(refusal(config, workload, profile, {gpu, kPlenty}, options), "no refusal")
                    << model << " " << message;
                *options.offload_ratio -= 1e-4;
                EXPECT_NE(refusal(config, workload, profile, {gpu, kPlenty}, options), "no refusal")
                    << model << " " << message;

                const auto host = static_cast<int64_t>(
                    (1 - share) * static_cast<double>(size.weight_bytes + size.kv_bytes));
                options.offload_ratio = 0.9;
                options.offload_ratio =
                    number_after("largest ratio that fits is ",
                                 refusal(config, workload, profile, {kPlenty, host}, options));
                EXPECT_EQ(refusal(config, workload, profile, {kPlenty, host}, options),
                          "no refusal");
            }
        }
    }
}

TEST(Planner, ARatioMayBeAsExactAsASweepPrintsIt) {
    const HardwareProfile profile = hardware_preset("h200-pcie");
    const ModelConfig config = preset_config("qwen3-8b");
    PlanOptions options;
    options.rules = {parse_placement_rule("*=0.37")};
    options.offload_ratio = 0.37;  // whole atoms make it 0.3699
    const Plan plan = make_plan(config, {8, 900, 500}, profile, {kPlenty, kPlenty}, options);
    EXPECT_NEAR(plan.offload_ratio(), 0.37, 5e-4);
    options.offload_ratio = 0.371;
    EXPECT_THROW(make_plan(config, {8, 900, 500}, profile, {kPlenty, kPlenty}, options), Error);
}

TEST(Planner, TheRatiosThatRulesAllowWork) {
    const HardwareProfile profile = hardware_preset("h200-pcie");
    const ModelConfig config = preset_config("opt-6.7b");
    for (const char* rule :
         {"layers.*.up=remote", "layers.*.q*=remote", "layers.1*.down=remote", "layers.2.up=0.3"}) {
        PlanOptions options;
        options.rules = {parse_placement_rule("*=local"), parse_placement_rule(rule)};
        options.offload_ratio = 0.99;
        const std::string message =
            refusal(config, {8, 32, 32}, profile, {kPlenty, kPlenty}, options);
        for (const char* words : {"ratios from ", " to "}) {
            options.offload_ratio = number_after(words, message);
            EXPECT_EQ(refusal(config, {8, 32, 32}, profile, {kPlenty, kPlenty}, options),
                      "no refusal")
                << message;
        }
    }
}

ModelConfig huge_model() {
    ModelConfig config = preset_config("llama-3-70b");
    config.num_layers = 1024;
    config.sliding_window.resize(1024);
    config.num_kv_heads = 64;
    config.max_position = int64_t{1} << 30;
    return config;
}

TEST(Planner, RefusesWhatSixtyFourBitsCannotCount) {
    const HardwareProfile profile = hardware_preset("h200-pcie");
    const ModelConfig config = huge_model();
    const int64_t all = std::numeric_limits<int64_t>::max();
    for (const Workload& workload :
         {Workload{4096, 1'000'000'000, 32}, Workload{65536, 1'000'000'000, 1}, Workload{all, 1, 1},
          Workload{1, all, all}, Workload{1, 1, all}}) {
        EXPECT_NE(refusal(config, workload, profile, {kPlenty, kPlenty}), "no refusal");
        EXPECT_THROW(sweep_offload_ratio(config, workload, profile, {kPlenty, kPlenty}), Error);
    }
    EXPECT_THAT(refusal(config, {4096, 1'000'000'000, 32}, profile, {kPlenty, kPlenty}),
                HasSubstr("more than can be planned"));
    EXPECT_THAT(refusal(config, {1, 1, 1}, profile, {all, all}), HasSubstr("budget"));
}

TEST(Planner, RefusesSoon) {
    // 60 million pages: nothing may go through them one by one.
    const HardwareProfile profile = hardware_preset("h200-pcie");
    ModelConfig config = preset_config("llama-3-8b");
    config.max_position = int64_t{1} << 30;
    const auto begin = std::chrono::steady_clock::now();
    for (const auto& transport :
         {std::optional<Transport>(), std::optional<Transport>(Transport::kStaged)}) {
        PlanOptions options;
        options.transport = transport;
        for (const Budgets& budgets :
             {Budgets{10 * kGiB, 10 * kGiB}, Budgets{kGiB, kPlenty}, Budgets{4096 * kGiB, 1}}) {
            EXPECT_THAT(refusal(config, {4, 1'000'000'000, 32}, profile, budgets, options),
                        HasSubstr("smallest GPU budget"));
        }
    }
    // Nor may a ring grow in thousands of small steps: of the weights only the head may go.
    PlanOptions options;
    options.transport = Transport::kStaged;
    options.rules = {parse_placement_rule("layers.*=local")};
    const HardwareProfile gh200 = hardware_preset("gh200");
    const std::string message =
        refusal(preset_config("llama-3-70b"), {64, 100, 1}, gh200, budgets_of(gh200), options);
    const int64_t gpu = smallest_budget(message);
    EXPECT_EQ(refusal(preset_config("llama-3-70b"), {64, 100, 1}, gh200,
                      {gpu, gh200.remote_memory_bytes}, options),
              "no refusal");
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(3));
}

TEST(Planner, WhyNamesTheRulesThatForceOffloading) {
    const HardwareProfile profile = hardware_preset("h200-pcie");
    PlanOptions options;
    options.rules = {parse_placement_rule("layers.*.up=remote")};
    const Plan plan =
        make_plan(preset_config("opt-30b"), {8, 32, 32}, profile, budgets_of(profile), options);
    EXPECT_THAT(plan.why, testing::Contains(HasSubstr("placement rules")));
    EXPECT_THAT(make_plan(preset_config("opt-30b"), {8, 32, 32}, profile, budgets_of(profile)).why,
                testing::Not(testing::Contains(HasSubstr("placement rules"))));
}

TEST(Planner, WhySaysWhatTheGpuEngineDoesNotRun) {
    const HardwareProfile profile = hardware_preset("h200-pcie");
    ModelConfig config = preset_config("opt-6.7b");
    const auto why = [&](std::optional<DType> kv_dtype) {
        PlanOptions options;
        options.kv_dtype = kv_dtype;
        return make_plan(config, {8, 32, 32}, profile, budgets_of(profile), options).why;
    };
    const auto told = testing::Contains(HasSubstr("GPU engine"));
    config.dtype = DType::kBF16;
    EXPECT_THAT(why({}), testing::Not(told));
    EXPECT_THAT(why(DType::kBF16), testing::Not(told));
    EXPECT_THAT(why(DType::kF16), told);
    config.dtype = DType::kF32;
    EXPECT_THAT(why({}), told);
}

TEST(Planner, PhasesCountEachOperationsOwnBytes) {
    const HardwareProfile profile = hardware_preset("gh200");
    const ModelConfig config = preset_config("opt-30b");
    PlanOptions options;
    options.transport = Transport::kDirect;
    const auto phases = [&] {
        return make_plan(config, {8, 32, 32}, profile, {kPlenty, kPlenty}, options).phase_bytes;
    };
    // All of one matrix, of which a tenth gains.
    options.rules = {parse_placement_rule("*=local"), parse_placement_rule("layers.3.up=remote")};
    const auto ruled = phases();
    EXPECT_GT(ruled[0], 0);
    EXPECT_NEAR(static_cast<double>(ruled[0]) / static_cast<double>(ruled[0] + ruled[2]), 0.101,
                0.002);
    options.rules = {parse_placement_rule("*=0.05")};
    EXPECT_EQ(phases()[2], 0);
    // The same share of all: the table of positions gains nothing, all else up to its x*.
    options.rules.clear();
    options.policy = PlanPolicy::kUniform;
    options.offload_ratio = 0.05;
    EXPECT_EQ(phases()[2], 0);
    options.offload_ratio = 0.3;
    const auto uniform = phases();
    const double all = static_cast<double>(uniform[0] + uniform[1] + uniform[2]) / 0.3;
    EXPECT_NEAR(static_cast<double>(uniform[0]) / all, 0.101, 0.003);
}

}  // namespace
}  // namespace dak
