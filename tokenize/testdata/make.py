#!/usr/bin/env python3
"""Trains the small tokenizers in models/ and writes golden.json: what the reference library makes of texts.

usage: make.py      needs the packages that hack/test-tokenizers.sh installs
"""
import json
import pathlib

from texts import CODE, SCRIPTS, texts
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

HERE = pathlib.Path(__file__).parent
CORPUS = list(SCRIPTS.values()) * 3 + list(CODE.values()) * 3
CL100K = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
SPECIAL = ["<|start|>", "<|end|>", "<|tool|>"]

TEMPLATE = """{%- if tools %}{{ '<|tool|>' }}{% for tool in tools %}{{ tool | tojson }}
{% endfor %}{% endif %}
{%- for message in messages %}
{{- '<|start|>' + message.role + '\\n' }}
{%- if message.content is string %}{{ message.content | trim }}
{%- else %}{% for part in message.content %}{{ part.text }}{% endfor %}{% endif %}
{%- for call in message.tool_calls or [] %}{{ '\\n' ~ call.function.name ~ call.function.arguments | tojson }}{% endfor %}
{{- '<|end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|start|>assistant\\n' }}{% if not (enable_thinking | default(true)) %}{{ 'no thinking\\n' }}{% endif %}{% endif %}"""


def byte_level(pattern, normalizer=None, **options):
    t = Tokenizer(models.BPE(**options))
    t.normalizer = normalizer
    t.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(pattern), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
    ])
    t.decoder = decoders.ByteLevel()
    t.train_from_iterator(CORPUS, trainers.BpeTrainer(vocab_size=700, special_tokens=SPECIAL, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
    return t


def qwen_like():
    return byte_level(CL100K.replace("{1,3}", ""), normalizers.NFC())


def llama3_like():
    t = byte_level(CL100K)
    t.post_processor = processors.TemplateProcessing(single="<|start|> $A", special_tokens=[("<|start|>", t.token_to_id("<|start|>"))])
    return t


def own_pattern():
    """A pattern that the fast core has no grammar for: the slow one serves it."""
    return byte_level(r"\p{L}+|\p{N}{2,4}|[^\p{L}\p{N}]+")


def llama2_like():
    t = Tokenizer(models.BPE(byte_fallback=True, unk_token="<unk>", fuse_unk=True))
    t.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    alphabet = ["<unk>", "<s>", "</s>"] + [f"<0x{b:02X}>" for b in range(256)]
    t.train_from_iterator(CORPUS, trainers.BpeTrainer(vocab_size=700, special_tokens=alphabet, limit_alphabet=150, show_progress=False))
    t = json.loads(t.to_str())
    t["added_tokens"] = [token for token in t["added_tokens"] if not token["content"].startswith("<0x")]
    t = Tokenizer.from_str(json.dumps(t))
    t.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    return t


def bert_like():
    t = Tokenizer(models.WordPiece(unk_token="[UNK]", max_input_chars_per_word=100))
    t.normalizer = normalizers.BertNormalizer(lowercase=True)
    t.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    t.train_from_iterator(CORPUS, trainers.WordPieceTrainer(vocab_size=500, special_tokens=["[UNK]", "[CLS]", "[SEP]"], show_progress=False))
    t.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 1), ("[SEP]", 2)])
    t.enable_truncation(16)  # as bert-base-uncased has it: engines switch it off
    t.enable_padding(length=32)
    return t


def word_level():
    t = Tokenizer(models.WordLevel(unk_token="[UNK]"))
    t.pre_tokenizer = pre_tokenizers.Whitespace()
    t.train_from_iterator(CORPUS, trainers.WordLevelTrainer(vocab_size=300, special_tokens=["[UNK]", "[SEP]"], show_progress=False))
    t.add_special_tokens([AddedToken("[MASK]", lstrip=True, rstrip=True, single_word=True)])
    return t


MODELS = {
    "small/qwen-like": qwen_like, "small/llama3-like": llama3_like, "own-pattern": own_pattern, "small/llama2-like": llama2_like,
    "bert-like": bert_like, "word-level": word_level,
}


def main():
    golden = []
    for name, make in MODELS.items():
        folder = HERE / "models" / name
        path = folder / "tokenizer.json"
        if not path.exists():  # training differs between runs; delete the file to train anew
            folder.mkdir(parents=True, exist_ok=True)
            make().save(str(path), pretty=False)
        if name == "small/qwen-like":
            config = {"bos_token": None, "eos_token": {"__type": "AddedToken", "content": "<|end|>"}, "chat_template": TEMPLATE}
            (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=1) + "\n")
        tokenizer = Tokenizer.from_file(str(path))
        tokenizer.no_truncation()
        tokenizer.no_padding()
        special = [t.content for t in tokenizer.get_added_tokens_decoder().values()]
        for text in texts(special, large=False):
            golden.append({"model": name, "text": text, "ids": tokenizer.encode(text, add_special_tokens=False).ids,
                           "special": tokenizer.encode(text).ids})
    lines = ",\n".join(json.dumps(case, separators=(",", ":")) for case in golden)
    (HERE / "golden.json").write_text(f"[\n{lines}\n]\n")
    print(len(golden), "cases")


main()
