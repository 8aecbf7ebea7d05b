"""Times torch's attention backends on the cases of bench_attention, for the same run beside it.

Usage: python3 bench/sdpa_peer.py cases.json peer.json
cases.json comes from `bench_attention --list`; peer.json goes to `bench_attention --peer`. Each case
gets the best backend's time. As in bench_attention, a captured graph runs the operation over
rotating keys and values, so that none is in L2.
"""

import json
import statistics
import sys

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

BACKENDS = {
    "cudnn": SDPBackend.CUDNN_ATTENTION,
    "flash": SDPBackend.FLASH_ATTENTION,
    "efficient": SDPBackend.EFFICIENT_ATTENTION,
}


def time_graph(operation, count, rounds=5):
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        operation(0)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for i in range(count):
            operation(i)
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    samples = []
    for _ in range(rounds + 1):
        begin.record()
        graph.replay()
        end.record()
        torch.cuda.synchronize()
        samples.append(begin.elapsed_time(end) * 1e3 / count)
    return statistics.median(samples[1:])


def variants(case, q, k, v, sets):
    """Ways to ask for the same result."""
    gqa = case["heads"] != case["kv_heads"]
    causal = case["kind"] == "prefill"

    def plain(i):
        j = i % sets
        return scaled_dot_product_attention(q, k[j], v[j], is_causal=causal, enable_gqa=gqa)

    yield "", plain
    if gqa and not causal:  # one new token: a group's heads are rows of one query
        rows = q.view(case["batch"], case["kv_heads"], -1, case["head_dim"])
        yield " rows", lambda i: scaled_dot_product_attention(rows, k[i % sets], v[i % sets])


def time_case(case):
    batch, heads, kv_heads = case["batch"], case["heads"], case["kv_heads"]
    dim, length = case["head_dim"], case["len"]
    sets, count = case["sets"], case["operations"]
    queries = length if case["kind"] == "prefill" else 1

    def random(*shape):
        return torch.randn(*shape, device="cuda", dtype=torch.bfloat16)

    q = random(batch, heads, queries, dim)
    k = [random(batch, kv_heads, length, dim) for _ in range(sets)]
    v = [random(batch, kv_heads, length, dim) for _ in range(sets)]
    times = {}
    for name, backend in BACKENDS.items():
        for suffix, operation in variants(case, q, k, v, sets):
            try:
                with sdpa_kernel(backend):
                    times[name + suffix] = time_graph(operation, count)
            except RuntimeError:
                torch.cuda.synchronize()
    best = min(times, key=times.get)
    return {**case, "backend": best, "us": times[best], "all": times}


def main():
    with open(sys.argv[1]) as file:
        cases = json.load(file)
    results = []
    for case in cases:
        results.append(time_case(case))
        torch.cuda.empty_cache()
    with open(sys.argv[2], "w") as file:
        json.dump(results, file)


if __name__ == "__main__":
    main()
