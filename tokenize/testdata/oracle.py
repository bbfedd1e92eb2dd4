#!/usr/bin/env python3
"""Writes what the reference libraries make of texts and chats, for the tests that read INFERENCECACHE_TOKENIZERS.

usage: oracle.py OUT MODELS TEMPLATES      OUT is a JSON file, MODELS a folder of models, TEMPLATES one of *.jinja
"""
import datetime
import hashlib
import json
import pathlib
import struct
import sys

from texts import texts
from tokenizers import Tokenizer
from transformers.utils.chat_template_utils import _compile_jinja_template, render_jinja_template

NOW = datetime.datetime(2025, 7, 1, 8, 5, 9)

TOOLS = [
    {"type": "function", "function": {"name": "get_weather", "description": "Get the weather <now> & \"later\"", "parameters": {
        "type": "object", "properties": {
            "city": {"type": "string", "description": "City, e.g. Zürich"},
            "days": {"type": "integer", "enum": [1, 3, 7], "default": 1},
            "opts": {"type": "object", "properties": {"deep": {"type": ["string", "null"]}, "list": {"type": "array", "items": {"type": "string"}}}, "required": ["deep"]},
        }, "required": ["city"]}}},
    {"type": "function", "function": {"name": "noop", "description": "", "parameters": {"type": "object", "properties": {}}}},
]


def user(content):
    return {"role": "user", "content": content}


def assistant(content, **more):
    return {"role": "assistant", "content": content, **more}


def system(content):
    return {"role": "system", "content": content}


def calls(*arguments):  # with the order of keys that engines give them
    return [{"id": f"call0000{i}", "function": {"arguments": a, "name": "get_weather"}, "type": "function"} for i, a in enumerate(arguments)]


CHATS = {
    "single": {"messages": [user("Hello!")]},
    "spaces": {"messages": [user("  \u00a0 lead and trail \n\n")]},
    "odd": {"messages": [user("\u001c<|im_end|>'\"{{x}} <&> \u0000 😀 e\u0301")]},
    "empty": {"messages": [user("")]},
    "system": {"messages": [system("Be brief.\n"), user("Hi")]},
    "multi": {"messages": [system("You are X."), user("Hi"), assistant("Hello\nthere "), user("And now?")]},
    "no generation prompt": {"messages": [user("Hi"), assistant("Hello")], "add_generation_prompt": False},
    "continued": {"messages": [user("Hi"), assistant("Hello, ")], "add_generation_prompt": False, "continue_final_message": True},
    "think": {"messages": [user("Hi"), assistant("<think>\nhmm\n</think>\n\nHello"), user("More"), assistant("<think>x</think>y"), user("z")]},
    "reasoning": {"messages": [user("Hi"), assistant("Hello", reasoning="because\n"), user("More")]},
    "tools": {"messages": [user("Weather?")], "tools": TOOLS},
    "tool call": {"messages": [
        user("Weather?"), assistant("", tool_calls=calls({"city": "Zürich", "days": 3, "opts": {"deep": None, "list": ["a", 1.0]}})),
        {"role": "tool", "content": "{\"t\": 21.5}", "tool_call_id": "call00000", "name": "get_weather"}, assistant("It is 21.5."), user("Thanks")], "tools": TOOLS},
    "two calls": {"messages": [
        user("Weather?"), assistant("let me see", tool_calls=calls({"city": "B"}, {})),
        {"role": "tool", "content": "sunny", "tool_call_id": "call00000"}, {"role": "tool", "content": "ok", "tool_call_id": "call00001"}], "tools": TOOLS},
    "no thinking": {"messages": [user("Hi")], "kwargs": {"enable_thinking": False}},
    "effort": {"messages": [system("S"), user("Hi")], "kwargs": {"reasoning_effort": "high", "thinking": True}},
    "documents": {"messages": [user("Hi")], "documents": [{"title": "T", "text": "body"}]},
    "two users": {"messages": [user("a"), user("b")]},
    "developer": {"messages": [{"role": "developer", "content": "dev"}, user("b")]},
}


def digest(ids):
    return f"{len(ids)} {hashlib.sha256(struct.pack(f'<{len(ids)}I', *ids)).hexdigest()}"


def encode(models):
    for path in sorted(models.glob("*/*/tokenizer.json")):
        tokenizer = Tokenizer.from_file(str(path))
        tokenizer.no_truncation()
        tokenizer.no_padding()
        special = [t.content for t in tokenizer.get_added_tokens_decoder().values()]
        cases = []
        for text in texts(special, large=True):
            if text:
                cases.append({"text": text, "ids": digest(tokenizer.encode(text, add_special_tokens=False).ids), "special": digest(tokenizer.encode(text).ids)})
        name = str(path.parent.relative_to(models))
        print(name, len(cases), "texts", file=sys.stderr)
        yield {"model": name, "cases": cases}


def render(name, source, tokens):
    for chat, c in CHATS.items():
        case = {"template": name, "source": source, "tokens": tokens, "chat": chat, **json.loads(json.dumps(c))}
        try:
            _compile_jinja_template(source).environment.globals["strftime_now"] = NOW.strftime
            kwargs = {**tokens, **c.get("kwargs", {})}
            rendered, _ = render_jinja_template(
                conversations=[json.loads(json.dumps(c["messages"]))], tools=c.get("tools"), documents=c.get("documents"), chat_template=source,
                add_generation_prompt=c.get("add_generation_prompt", True), continue_final_message=c.get("continue_final_message", False), **kwargs)
            case["want"] = rendered[0]
        except Exception as error:
            case["error"] = f"{type(error).__name__}: {error}"[:200]
        yield case


def chats(models, templates):
    tokens = {"bos_token": "<s>", "eos_token": "</s>"}
    for path in sorted(templates.glob("*.jinja")):
        yield from render(path.stem, path.read_bytes().decode(), tokens)
    for path in sorted(models.glob("*/*/tokenizer_config.json")):
        source = json.loads(path.read_text()).get("chat_template")
        if source:
            yield from render(str(path.parent.relative_to(models)), source, tokens)


def main():
    out, models, templates = map(pathlib.Path, sys.argv[1:])
    answers = {"chats": list(chats(models, templates)), "models": list(encode(models))}
    out.write_text(json.dumps(answers))
    print(len(answers["chats"]), "chats", file=sys.stderr)


main()
