"""Prints command lines and how vLLM reads them, one JSON object a line.

usage: PYTHON generate.py >vllm-RELEASE.jsonl, with the python of an installed vLLM. The lines are made up from a fixed
seed: flags in all their spellings, in any order, given twice, and in a configuration file.
"""

import json
import random
import tempfile

from vllm.entrypoints.launchers.cli_args import make_arg_parser
from vllm.utils.argparse_utils import FlexibleArgumentParser

LINES = 150
random.seed(7)


def parser():
    root = FlexibleArgumentParser()
    serve = root.add_subparsers(dest="subparser").add_parser("serve")
    make_arg_parser(serve)
    return root


def spell(name):
    return "--" + (name if random.random() < 0.6 else name.replace("-", "_"))


def give(name, value):
    """One flag with one value, as one word or two."""
    return [f"{spell(name)}={value}"] if random.random() < 0.4 else [spell(name), value]


def events():
    config = {"enable_kv_cache_events": random.random() < 0.8}
    for key, value in [
        ("publisher", "zmq"),
        ("endpoint", f"tcp://*:{random.randint(1, 9)}557"),
        ("replay_endpoint", f"tcp://*:{random.randint(1, 9)}657"),
        ("topic", random.choice(["kv-events", "kv@pod@m", ""])),
    ]:
        if random.random() < 0.7:
            config[key] = value
    if random.random() < 0.7:
        return give("kv-events-config", json.dumps(config))
    words = []
    for key, value in config.items():
        value = value if isinstance(value, str) else json.dumps(value)
        words += give(f"kv-events-config.{key}", value or '""')
    return [w.replace("--kv_events_config", "--kv-events-config") for w in words]


def parts():
    """Flags with their values; the order of parts means nothing."""
    number = lambda top: str(random.randint(1, top))  # noqa: E731
    local = random.randint(1, 4)
    possible = [
        lambda: give("port", number(60000)),
        lambda: give("host", random.choice(["0.0.0.0", "::", "127.0.0.1"])),
        lambda: [random.choice(["-tp", spell("tensor-parallel-size")]), number(8)],
        lambda: [random.choice(["-dp", spell("data-parallel-size")]), str(local + random.randint(0, 4))],
        lambda: [random.choice(["-dpl", spell("data-parallel-size-local")]), str(local)],
        lambda: [random.choice(["-dpr", spell("data-parallel-start-rank")]), number(3)],
        lambda: give("block-size", random.choice(["16", "32", "64"])),
        lambda: [spell("served-model-name")] + [f"name-{n}" for n in range(random.randint(1, 3))],
        lambda: [spell("enable-lora")] + [spell("lora-modules")] + random.sample(["a=/a", "b=/b", '{"name":"c","path":"/c"}'], random.randint(1, 3)),
        lambda: [random.choice(["--enable-prefix-caching", "--no-enable-prefix-caching", "--enable_prefix_caching"])],
        events,
        events,
        lambda: give("kv-transfer-config", json.dumps({"kv_connector": "OffloadingConnector", "kv_role": "kv_both"})),
        lambda: [random.choice(["-O3", "-O2", "--enforce-eager", "--trust-remote-code", "--disable-log-stats", "--headless"])],
        lambda: give("max-model-len", random.choice(["4096", "8k", "-1"])),
        lambda: ["--no-enable-log-requests"],
        lambda: ["-cc.mode=3"],
        lambda: give("seed", "-1"),
        lambda: ["--api-key", "k1", "k2"],
    ]
    return [make() for make in random.sample(possible, random.randint(1, len(possible)))]


def configuration():
    lines = []
    for line in [
        "port: 7000",
        "tensor-parallel-size: 2",
        "served-model-name: [from-file, second]",
        "enable-lora: true",
        "enable-prefix-caching: false",
        "kv-events-config:\n  enable_kv_cache_events: true\n  endpoint: tcp://*:5999",
        "kv_transfer_config: '{\"kv_connector\": \"NixlConnector\", \"kv_role\": \"kv_producer\"}'",
        "lora-modules:\n  - x=/x",
    ]:
        if random.random() < 0.4:
            lines.append(line)
    return "\n".join(lines) + "\n" if lines else ""


def line(root):
    model, flags, text = f"org/model-{random.randint(0, 99)}", parts(), ""
    words = [w for part in flags for w in part]
    if random.random() < 0.7:
        words = [model] + words
    else:
        words += give("model", model)
    parsed = words
    if random.random() < 0.3 and (text := configuration()):
        file = tempfile.NamedTemporaryFile("w", suffix=".yaml", delete=False)
        file.write(text)
        file.close()
        words, parsed = words + ["--config", "/config.yaml"], words + ["--config", file.name]
    args = root.parse_args(["serve"] + parsed)
    events_config = args.kv_events_config
    return {
        "args": words,
        "config": text,
        "want": {
            "model": args.model_tag or args.model,
            "names": args.served_model_name,
            "host": args.host,
            "port": args.port,
            "tensorParallel": args.tensor_parallel_size,
            "ranks": [args.data_parallel_size, args.data_parallel_size_local, args.data_parallel_start_rank],
            "blockSize": args.block_size,
            "lora": bool(args.enable_lora),
            "adapters": [m.name for m in args.lora_modules or []],
            "prefixCaching": args.enable_prefix_caching is not False,
            "headless": args.headless,
            "events": {
                key: getattr(events_config, key)
                for key in ("enable_kv_cache_events", "publisher", "endpoint", "replay_endpoint", "topic")
            }
            if events_config
            else None,
            "connector": args.kv_transfer_config.kv_connector if args.kv_transfer_config else None,
        },
    }


def main():
    root, seen = parser(), 0
    while seen < LINES:
        try:
            made = line(root)
        except (SystemExit, Exception):  # vLLM refuses the line, so that it starts no engine
            continue
        seen += 1
        print(json.dumps(made))


if __name__ == "__main__":
    main()
