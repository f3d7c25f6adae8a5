"""The vocabulary that comes with a model; without the libraries for it, text is refused when it is asked for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from engine.gguf import GGUFFile
from engine.tokenizer import Conversation, Message, TextError, Tokenizer
from probes import border

NEEDS = ("tokenizers", "jinja2")


class NoText:
    """Stands in for a vocabulary that cannot be had: prompts of token numbers still work; text says why it does not."""

    def __init__(self, why: str, stop_ids: frozenset[int] = frozenset()) -> None:
        self.why, self.stop_ids = why, stop_ids

    def encode(self, text: str) -> list[int]:
        raise TextError(self.why)

    def decode(self, ids: Sequence[int]) -> str:
        return "".join(f"{token} " for token in ids)

    def chat(self, messages: Sequence[Message]) -> Conversation:
        raise TextError(self.why)


def of_gguf(file: GGUFFile) -> Tokenizer:
    """From a tokenizer.json beside the file if there is one, else from its metadata."""
    ends = (file.metadata.get(f"tokenizer.ggml.{name}_token_id") for name in ("eos", "eot"))
    stops = frozenset(end for end in ends if end is not None)
    if missing := _missing():
        return NoText(missing, stops)
    from engine import vocabulary

    if not (beside := file.path.with_name("tokenizer.json")).is_file():
        return vocabulary.from_gguf(file.metadata)
    tokens = file.metadata.get("tokenizer.ggml.tokens", ())
    specials = {
        f"{name}_token": tokens[number]
        for name in ("bos", "eos")
        if (number := file.metadata.get(f"tokenizer.ggml.{name}_token_id")) is not None and number < len(tokens)
    }
    template = file.metadata.get("tokenizer.chat_template")
    return vocabulary.from_json(beside.read_text(), stops, template, specials)


def of_directory(folder: Path, config: Mapping[str, Any]) -> Tokenizer:
    """From tokenizer.json, its config, generation_config.json and chat_template.jinja, as far as they exist."""
    settings, generation = read_json(folder / "tokenizer_config.json"), read_json(folder / "generation_config.json")
    ends = generation.get("eos_token_id", config.get("eos_token_id"))
    stops = frozenset(ends if isinstance(ends, list) else [] if ends is None else [ends])
    if missing := _missing():
        return NoText(missing, stops)
    if not (folder / "tokenizer.json").is_file():
        return NoText(f"{folder} has no tokenizer.json: send prompts as lists of token numbers", stops)
    from engine import vocabulary

    specials = {
        name: value["content"] if isinstance(value, dict) else value
        for name, value in settings.items()
        if name.endswith("_token") and isinstance(value, str | dict)
    }
    written = folder / "chat_template.jinja"
    template = written.read_text() if written.is_file() else settings.get("chat_template")
    if isinstance(template, list):
        template = next((item["template"] for item in template if item.get("name") == "default"), None)
    return vocabulary.from_json((folder / "tokenizer.json").read_text(), stops, template, specials)


def read_json(path: Path) -> dict[str, Any]:
    """The object in a file, empty where there is no file; ValueError when it holds something else."""
    if not path.is_file():
        return {}
    try:
        found = border.document(border.read_file(path, 1 << 28), str(path))
    except ValueError as error:
        raise ValueError(f"{path}: not JSON ({error})") from None
    if not isinstance(found, dict):
        raise ValueError(f"{path}: expected a JSON object, not {type(found).__name__}")
    return found


def _missing() -> str:
    absent = [name for name in NEEDS if find_spec(name) is None]
    return f"text needs {', '.join(absent)}: pip install 'kvscope[engine]'" if absent else ""
