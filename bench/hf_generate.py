"""Times Hugging Face generate() on models with random weights, for `dak bench` to compare with.

Usage: python3 bench/hf_generate.py rows.json [MODEL...] [--batch N] [--prompt N] [--output N]
                                    [--variants eager compiled] [--limit SECONDS]
rows.json goes to `dak bench --reference`. TPOT is the median time between the tokens of greedy
decoding in bf16, after a warm-up in which everything is compiled. Variants: "eager", and "compiled",
that is, with a static cache and torch.compile's CUDA graphs. Each runs in a process of its own; one
that fails or takes longer than the limit says so and has a TPOT of null.
"""

import argparse
import json
import multiprocessing
import statistics
import time

DEVICE = "cuda"
WARM_UPS = 2  # the first compiles, the second records CUDA graphs
ROUNDS = 3
VARIANTS = ("eager", "compiled")

# As in src/model/presets.cpp.
MODELS = {
    "opt-6.7b": ("opt", dict(vocab_size=50272, hidden_size=4096, word_embed_proj_dim=4096,
                             ffn_dim=16384, num_hidden_layers=32, num_attention_heads=32,
                             max_position_embeddings=2048)),
    "opt-30b": ("opt", dict(vocab_size=50272, hidden_size=7168, word_embed_proj_dim=7168,
                            ffn_dim=28672, num_hidden_layers=48, num_attention_heads=56,
                            max_position_embeddings=2048)),
    "llama-2-7b": ("llama", dict(vocab_size=32000, hidden_size=4096, intermediate_size=11008,
                                 num_hidden_layers=32, num_attention_heads=32,
                                 num_key_value_heads=32, max_position_embeddings=4096,
                                 rms_norm_eps=1e-5)),
}


def make_model(name):
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    kind, sizes = MODELS[name]
    config = AutoConfig.for_model(kind, **sizes)
    with torch.device(DEVICE):
        return AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16).eval()


def generation_config(case):
    from transformers import CompileConfig, GenerationConfig

    compiled = case["variant"] == "compiled"
    return GenerationConfig(
        do_sample=False,
        max_new_tokens=case["output"],
        pad_token_id=0,
        cache_implementation="static" if compiled else None,
        compile_config=CompileConfig(mode="reduce-overhead") if compiled else None,
        disable_compile=not compiled,
    )


class StepClock:
    """A streamer: generate() hands it each step's tokens when they are on the host."""

    def __init__(self):
        self.times = []

    def put(self, _tokens):
        self.times.append(time.perf_counter())

    def end(self):
        pass

    def decode_steps(self):
        """The first time is the prompt's, the second that of the token that follows it."""
        return [b - a for a, b in zip(self.times[1:], self.times[2:])]


def measure(case):
    """Median milliseconds of a decode step."""
    import torch

    torch.manual_seed(1)
    model = make_model(case["model"])
    model.generation_config = generation_config(case)  # no end-of-sequence token
    ids = torch.randint(MODELS[case["model"]][1]["vocab_size"], (case["batch"], case["prompt"]),
                        device=DEVICE)
    steps = []
    for round_number in range(WARM_UPS + ROUNDS):
        clock = StepClock()
        output = model.generate(ids, attention_mask=torch.ones_like(ids), streamer=clock)
        assert output.shape[1] == case["prompt"] + case["output"], output.shape
        if round_number >= WARM_UPS:
            steps += clock.decode_steps()
    compiled = hasattr(model, "_compiled_call")
    assert compiled == (case["variant"] == "compiled"), "generate() chose otherwise"
    return 1e3 * statistics.median(steps)


def run_case(case, result):
    try:
        result.send((measure(case), ""))
    except Exception as error:  # whatever Hugging Face or the compiler may raise
        result.send((None, f"{type(error).__name__}: {error}".splitlines()[0]))


def limited(case, limit):
    """TPOT and what went wrong, if anything."""
    context = multiprocessing.get_context("spawn")
    result, sender = context.Pipe(duplex=False)
    process = context.Process(target=run_case, args=(case, sender))
    process.start()
    sender.close()
    try:
        outcome = result.recv() if result.poll(limit) else (None, f"took over {limit:g} s")
    except EOFError:
        outcome = (None, "the process died")
    process.kill()
    process.join()
    return outcome


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("rows")
    parser.add_argument("models", nargs="*", metavar="MODEL", help=f"default: {', '.join(MODELS)}")
    parser.add_argument("--variants", nargs="+", choices=VARIANTS, default=VARIANTS)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--prompt", type=int, default=32)
    parser.add_argument("--output", type=int, default=32)
    parser.add_argument("--limit", type=float, default=90, help="seconds for each variant")
    arguments = parser.parse_args()
    unknown = set(arguments.models) - set(MODELS)
    if unknown:
        parser.error(f"unknown model {unknown.pop()}; there are {', '.join(MODELS)}")

    rows = []
    for model in arguments.models or MODELS:
        for variant in arguments.variants:
            case = {"model": model, "batch": arguments.batch, "prompt": arguments.prompt,
                    "output": arguments.output, "variant": variant}
            begin = time.perf_counter()
            tpot, trouble = limited(case, arguments.limit)
            seconds = time.perf_counter() - begin
            outcome = trouble if tpot is None else f"TPOT {tpot:.3f} ms"
            print(f"{model} {variant}: {outcome} ({seconds:.0f} s in all)", flush=True)
            rows.append({**case, "tpot_ms": tpot})
            with open(arguments.rows, "w") as file:  # a run that is cut short keeps what it has
                json.dump(rows, file, indent=1)


if __name__ == "__main__":
    main()
