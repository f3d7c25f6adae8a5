"""Byte-pair vocabularies: from `tokenizer.json` or from the metadata of a GGUF file, with the model's chat template."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from difflib import get_close_matches
from typing import Any, NoReturn

from jinja2 import TemplateError
from jinja2.sandbox import ImmutableSandboxedEnvironment
from tokenizers import AddedToken, Regex, pre_tokenizers
from tokenizers import Tokenizer as Fast
from tokenizers.decoders import ByteLevel as BytesToText
from tokenizers.models import BPE

from engine.tokenizer import Conversation, Message, TextError

CONTROL = 3
"""Token type of GGUF: a token that is no text."""
USER_DEFINED = 4
_CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_LETTERS = r"[^\r\n\p{L}\p{N}]?\p{L}+"
_REST = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_SPLITS = {
    "llama-bpe": rf"{_CONTRACTIONS}|{_LETTERS}|\p{{N}}{{1,3}}|{_REST}",
    "qwen2": rf"{_CONTRACTIONS}|{_LETTERS}|\p{{N}}|{_REST}",
}
"""How text is cut before merging, by GGUF's name for it; their tokenizer.json files hold the same patterns."""


class Vocabulary:
    """A tokenizer of the `tokenizers` library plus a chat template (Jinja, as models carry it)."""

    def __init__(self, fast: Fast, stop_ids: frozenset[int], template: str | None, specials: Mapping[str, str]) -> None:
        self.stop_ids = stop_ids
        self._fast, self._specials = fast, dict(specials)
        self._template = _environment().from_string(template) if template else None

    @property
    def size(self) -> int:
        return int(self._fast.get_vocab_size())

    def encode(self, text: str) -> list[int]:
        ids: list[int] = self._fast.encode(text).ids
        return ids

    def decode(self, ids: Sequence[int]) -> str:
        text: str = self._fast.decode(list(ids), skip_special_tokens=True)
        return text

    def chat(self, messages: Sequence[Message]) -> Conversation:
        """The template decides what is said before the first turn; that counts as part of it."""
        if self._template is None:
            raise TextError("this model has no chat template: use /v1/completions")
        try:
            tokens = self._render(messages, ask=True)
        except TemplateError as error:
            raise TextError(f"the model's chat template does not take this conversation: {error}") from None
        try:
            ends = [len(self._render(messages[:count], ask=False)) for count in range(1, len(messages))]
        except TemplateError:  # it takes whole conversations only
            return Conversation(tokens)
        return Conversation(tokens, (0, *ends))

    def _render(self, messages: Sequence[Message], *, ask: bool) -> list[int]:
        assert self._template is not None
        text = self._template.render(messages=list(messages), add_generation_prompt=ask, **self._specials)
        ids: list[int] = self._fast.encode(text, add_special_tokens=False).ids
        return ids


def from_gguf(metadata: Mapping[str, Any]) -> Vocabulary:
    """Rebuild the tokenizer a GGUF file carries; ValueError for a kind that is not byte-pair encoding."""
    model = metadata.get("tokenizer.ggml.model")
    if model != "gpt2":
        raise ValueError(f"tokenizer {model!r} in GGUF metadata; expected 'gpt2' (or a tokenizer.json beside the file)")
    tokens: list[str] = metadata["tokenizer.ggml.tokens"]
    merges = [tuple(merge.split(" ", 1)) for merge in metadata["tokenizer.ggml.merges"]]
    ids = {token: number for number, token in enumerate(tokens)}
    fast = Fast(BPE(vocab=ids, merges=merges, ignore_merges=metadata.get("tokenizer.ggml.pre") == "llama-bpe"))
    fast.pre_tokenizer = _splitter(str(metadata.get("tokenizer.ggml.pre", "default")))
    fast.decoder = BytesToText()
    kinds = metadata.get("tokenizer.ggml.token_type", ())
    for kind, added in ((CONTROL, fast.add_special_tokens), (USER_DEFINED, fast.add_tokens)):
        added([AddedToken(tokens[at], normalized=False) for at, found in enumerate(kinds) if found == kind])
    if metadata.get("tokenizer.ggml.add_bos_token"):
        _begin_with(fast, tokens[metadata["tokenizer.ggml.bos_token_id"]])
    numbers = {name: metadata.get(f"tokenizer.ggml.{name}_token_id") for name in ("bos", "eos", "eot")}
    specials = {f"{name}_token": tokens[at] for name, at in numbers.items() if at is not None}
    stops = frozenset(at for name, at in numbers.items() if at is not None and name != "bos")
    return Vocabulary(fast, stops, metadata.get("tokenizer.chat_template"), specials)


def from_json(text: str, stop_ids: frozenset[int], template: str | None, specials: Mapping[str, str]) -> Vocabulary:
    """Read the contents of a tokenizer.json; ValueError when it is none."""
    try:
        fast = Fast.from_str(text)
    except Exception as error:  # the library raises plain Exception for whatever it cannot read
        raise ValueError(f"tokenizer.json cannot be read: {error}") from None
    return Vocabulary(fast, stop_ids, template, specials)


def _splitter(name: str) -> Any:
    if name == "smollm":
        return pre_tokenizers.Sequence(
            [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
        )
    if name in ("default", "gpt-2", "gpt2"):
        return pre_tokenizers.ByteLevel(add_prefix_space=False)
    if name not in _SPLITS:
        known = ("smollm", "gpt-2", *_SPLITS)
        near = get_close_matches(name, known, n=1)
        hint = f", nearest is {near[0]!r}" if near else ""
        raise ValueError(f"pre-tokenizer {name!r} in GGUF metadata; expected one of {', '.join(known)}{hint}")
    cut = pre_tokenizers.Split(Regex(_SPLITS[name]), behavior="isolated")
    return pre_tokenizers.Sequence([cut, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def _begin_with(fast: Fast, token: str) -> None:
    from tokenizers.processors import TemplateProcessing

    number = fast.token_to_id(token)
    fast.post_processor = TemplateProcessing(single=f"{token} $A", special_tokens=[(token, number)])


def _environment() -> ImmutableSandboxedEnvironment:
    """Templates come with the weights: they run in a sandbox, with the helpers that published templates use."""
    made = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"])
    made.globals["raise_exception"] = _refuse
    made.globals["strftime_now"] = lambda layout: datetime.now().strftime(layout)
    return made


def _refuse(message: str) -> NoReturn:
    raise TemplateError(message)
