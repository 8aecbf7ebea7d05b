"""Tokenizers with the pipelines of the model families that DAK reads, trained on the spot: the real
vocabularies cannot be shipped, and every vocabulary takes the same paths through the code."""

import json

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers
from tokenizers import pre_tokenizers, processors, trainers

from tokenizer_corpus import training_lines

LLAMA3_PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
QWEN2_PATTERN = LLAMA3_PATTERN.replace(r"\p{N}{1,3}", r"\p{N}")
O200K_PATTERN = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
CL100K_PATTERN = (
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+"
    r"|\s++$|\s*[\r\n]|\s+(?!\S)|\s"
)
VOCAB_SIZE = 4000


def special(*contents):
    return [AddedToken(content, special=True, normalized=False) for content in contents]


def split(pattern, behavior="isolated"):
    return pre_tokenizers.Split(Regex(pattern), behavior=behavior)


def prefix_template(token, token_id):
    return processors.TemplateProcessing(
        single=f"{token} $A", pair=f"{token} $A {token} $B", special_tokens=[(token, token_id)]
    )


def byte_level(pre_tokenizer, specials, normalizer=None):
    """A byte-level BPE tokenizer, trained."""
    tokenizer = Tokenizer(models.BPE())
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB_SIZE,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=specials,
        show_progress=False,
    )
    tokenizer.train_from_iterator(training_lines(), trainer)
    return tokenizer


def sentencepiece(specials):
    """A BPE tokenizer with byte fallback, trained: no normalizer, pre-tokenizer or decoder yet."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
    )
    # Trained on words, so that merges do not run across them, as SentencePiece does.
    tokenizer.pre_tokenizer = pre_tokenizers.Split("▁", behavior="merged_with_next")
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB_SIZE,
        limit_alphabet=300,
        show_progress=False,
        special_tokens=specials + [f"<0x{byte:02X}>" for byte in range(256)],
    )
    tokenizer.train_from_iterator(training_lines(), trainer)
    # The byte tokens belong to the model only.
    tokenizer = rebuilt(tokenizer, keep_added=set(str(token) for token in specials))
    return tokenizer


def rebuilt(tokenizer, keep_added):
    """`tokenizer` with no added tokens but some of its own."""
    file = json.loads(tokenizer.to_str())
    file["added_tokens"] = [t for t in file["added_tokens"] if t["content"] in keep_added]
    return Tokenizer.from_str(json.dumps(file))


def gpt2():
    tokenizer = byte_level(
        pre_tokenizers.ByteLevel(add_prefix_space=False), special("<|endoftext|>")
    )
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    return tokenizer


def opt():
    tokenizer = byte_level(
        pre_tokenizers.ByteLevel(add_prefix_space=False), special("<s>", "<pad>", "</s>", "<unk>")
    )
    tokenizer.add_special_tokens(
        [AddedToken("<mask>", lstrip=True, special=True, normalized=False)]
    )
    tokenizer.post_processor = prefix_template("</s>", tokenizer.token_to_id("</s>"))
    return tokenizer


def roberta():
    tokenizer = byte_level(pre_tokenizers.ByteLevel(add_prefix_space=True), special("<s>", "</s>"))
    tokenizer.post_processor = processors.RobertaProcessing(("</s>", 1), ("<s>", 0))
    return tokenizer


def llama3():
    tokenizer = byte_level(
        pre_tokenizers.Sequence(
            [
                split(LLAMA3_PATTERN),
                pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
            ]
        ),
        [],
    )
    # Words that no merge leads to are found whole.
    file = json.loads(tokenizer.to_str())
    file["model"]["merges"] = [m for i, m in enumerate(file["model"]["merges"]) if i % 7]
    file["model"]["ignore_merges"] = True
    tokenizer = Tokenizer.from_str(json.dumps(file))
    tokenizer.add_special_tokens(
        special(
            "<|begin_of_text|>",
            "<|end_of_text|>",
            "<|eot_id|>",
            *[f"<|reserved_special_token_{i}|>" for i in range(40)],
        )
    )
    tokenizer.post_processor = processors.Sequence(
        [
            processors.ByteLevel(trim_offsets=False),
            prefix_template("<|begin_of_text|>", tokenizer.token_to_id("<|begin_of_text|>")),
        ]
    )
    return tokenizer


def qwen2():
    tokenizer = byte_level(
        pre_tokenizers.Sequence(
            [
                split(QWEN2_PATTERN),
                pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
            ]
        ),
        [],
        normalizers.NFC(),
    )
    tokenizer.add_special_tokens(special("<|endoftext|>", "<|im_start|>", "<|im_end|>"))
    tokenizer.add_tokens(
        [AddedToken("<tool_call>", normalized=False), AddedToken("café", normalized=True)]
    )
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    return tokenizer


def smollm2():
    # Trained on whole numbers, so that splitting them makes a difference.
    tokenizer = byte_level(
        pre_tokenizers.ByteLevel(add_prefix_space=False),
        special("<|endoftext|>", "<|im_start|>", "<|im_end|>"),
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False),
        ]
    )
    return tokenizer


def cl100k():
    """Possessive quantifiers, written for another engine than the one that reads them."""
    return byte_level(
        pre_tokenizers.Sequence(
            [
                split(CL100K_PATTERN),
                pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
            ]
        ),
        special("<|endoftext|>"),
    )


def o200k():
    return byte_level(
        pre_tokenizers.Sequence(
            [
                split(O200K_PATTERN),
                pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
            ]
        ),
        special("<|endoftext|>"),
    )


def deepseek():
    return byte_level(
        pre_tokenizers.Sequence(
            [
                split(r"[\r\n]"),
                split(r"\s?\p{L}+"),
                split(r"\s?\p{P}+"),
                split(r"[一-龥ࠀ-一가-퟿]+"),
                pre_tokenizers.Digits(individual_digits=True),
                pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
            ]
        ),
        special("<｜begin▁of▁sentence｜>"),
    )


def llama2():
    """The older form: the normalizer puts ▁ for spaces, and the whole text is one word."""
    tokenizer = sentencepiece(special("<unk>", "<s>", "</s>"))
    tokenizer.pre_tokenizer = None
    tokenizer.post_processor = prefix_template("<s>", tokenizer.token_to_id("<s>"))
    tokenizer.decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(content=" ", left=1),
        ]
    )
    return tokenizer


def mistral():
    """The newer form: no normalizer, Metaspace before the first word only."""
    tokenizer = sentencepiece(special("<unk>", "<s>", "</s>"))
    tokenizer.normalizer = None
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    tokenizer.add_special_tokens(special("[INST]", "[/INST]"))
    tokenizer.post_processor = prefix_template("<s>", tokenizer.token_to_id("<s>"))
    tokenizer.decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(content=" ", left=1),
        ]
    )
    return tokenizer


def metaspace():
    """Metaspace before every piece, its own decoder, and no byte fallback: unknowns fuse."""
    tokenizer = sentencepiece(special("<unk>", "<s>", "</s>"))
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.NFKC(), normalizers.Lowercase(), normalizers.Replace(Regex(r" {2,}"), " ")]
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
    tokenizer.model.byte_fallback = False
    tokenizer.decoder = decoders.Metaspace(prepend_scheme="always")
    return tokenizer


def words():
    """The plain splitters, accents stripped, unknowns one by one, no decoder."""
    tokenizer = Tokenizer(models.BPE(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.NFD(), normalizers.StripAccents(), normalizers.Strip()]
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.WhitespaceSplit(),
            pre_tokenizers.Punctuation("contiguous"),
            pre_tokenizers.Digits(individual_digits=False),
            pre_tokenizers.Whitespace(),
        ]
    )
    tokenizer.train_from_iterator(
        training_lines(),
        trainers.BpeTrainer(
            vocab_size=VOCAB_SIZE,
            limit_alphabet=200,
            special_tokens=["[UNK]", "[SEP]"],
            show_progress=False,
        ),
    )
    tokenizer.add_tokens(
        [
            AddedToken("qzq", single_word=True),
            AddedToken("[L]", lstrip=True),
            AddedToken("[R]", rstrip=True),
            AddedToken("é"),
            AddedToken("[LR]", lstrip=True, rstrip=True, normalized=False),
        ]
    )
    return tokenizer


FAMILIES = {
    function.__name__: function
    for function in [
        gpt2,
        opt,
        roberta,
        llama3,
        qwen2,
        smollm2,
        cl100k,
        o200k,
        deepseek,
        llama2,
        mistral,
        metaspace,
        words,
    ]
}
