// The split GEMM against cuBLAS, the link and itself with mechanisms turned off. See
// docs/split-gemm.md for what the sections show and tools/gpu_run.sh for how they are run.

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <fstream>
#include <iostream>

#include "gemm_bench.h"

int main(int argc, char** argv) {
    using namespace dak;
    CLI::App app{"Benchmark of the split GEMM"};
    // Bandwidth first: after large products a GPU is at its power limit and a little slower.
    std::vector<std::string> sections = {"chains",     "splits",        "window",
                                         "congestion", "alignment",     "zero-copy",
                                         "multicast",  "amplification", "shapes"};
    std::vector<int64_t> tokens = {1, 8, 16, 32, 64, 128, 256, 512, 1024, 4096};
    std::string remote = "host", json, commit = "unknown";
    int rounds = 7;
    app.add_option("--sections", sections,
                   "What to run; also: variants, chain-variants, remote-workers")
        ->delimiter(',');
    app.add_option("--remote", remote, "The remote tier: host or peer:N");
    app.add_option("--tokens", tokens, "Tokens N of the sections that vary it")->delimiter(',');
    app.add_option("--rounds", rounds, "Samples of each measurement");
    app.add_option("--json", json, "File for the results");
    app.add_option("--commit", commit, "What to record as the commit measured");
    CLI11_PARSE(app, argc, argv);

    try {
        bench::Bench bench(remote, 16, 2);
        bench.rounds = rounds;
        Json report = bench::report_head("gemm", commit);
        report["remote"] = remote;
        report["remote_direct_gbps"] = bench.machine.remote_gbps;
        report["remote_staged_gbps"] = bench.staged_gbps;
        report["window_bytes"] = bench.machine.window_bytes;
        std::vector<int64_t> decode_tokens;
        std::copy_if(tokens.begin(), tokens.end(), std::back_inserter(decode_tokens),
                     [](int64_t n) { return n <= 64; });
        for (const std::string& section : sections) {
            if (section == "shapes") bench::bench_shapes(bench, tokens);
            if (section == "variants") bench::bench_variants(bench, tokens);
            if (section == "chain-variants") bench::bench_chain_variants(bench, decode_tokens);
            if (section == "chains") bench::bench_chains(bench, decode_tokens);
            if (section == "splits") bench::bench_splits(bench);
            if (section == "window") bench::bench_window(bench);
            if (section == "congestion") bench::bench_congestion(bench);
            if (section == "remote-workers") bench::bench_remote_workers(bench);
            if (section == "alignment") bench::bench_alignment(bench);
            if (section == "multicast") bench::bench_multicast(bench);
            if (section == "amplification") bench::bench_amplification(bench, tokens);
            if (section == "zero-copy") bench::bench_zero_copy(bench);
        }
        report["rows"] = bench.rows;
        if (!json.empty()) bench::write_report(json, report);
    } catch (const std::exception& error) {
        std::cerr << "bench_gemm: " << error.what() << "\n";
        return 1;
    }
    return 0;
}
