"""Byte-pair vocabularies from GGUF metadata and from tokenizer.json, and the chat template that comes with them."""

from __future__ import annotations

from typing import Any

import pytest

from engine.tokenizer import ByteTokenizer, NumberTokenizer, TextError
from engine.weights.smollm2 import path as smollm2_path

tokenizers = pytest.importorskip("tokenizers")
pytest.importorskip("jinja2")

from engine import vocabulary  # noqa: E402 (needs the libraries above)

TEMPLATE = (
    "{% for m in messages %}{{ '<s>' + m['role'] + ':' + m['content'] + '</s>' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<s>assistant:' }}{% endif %}"
)
LETTERS = [chr(number) for number in (*range(33, 127), *range(161, 173), *range(174, 256))]
"""How byte-level vocabularies write 188 of the bytes; the others, blanks among them, are at 256 and on."""
TOKENS = ["<s>", "</s>", *LETTERS, *(chr(256 + number) for number in range(68)), "he", "ll", "hell", "Ġhe"]


def metadata(**changes: Any) -> dict[str, Any]:
    keys = {
        "model": "gpt2",
        "pre": "smollm",
        "tokens": TOKENS,
        "token_type": [3, 3, *[1] * (len(TOKENS) - 2)],
        "merges": ["h e", "l l", "he ll", "Ġ he"],
        "bos_token_id": 0,
        "eos_token_id": 1,
        **changes,
    }
    return {f"tokenizer.ggml.{name}": value for name, value in keys.items()} | {"tokenizer.chat_template": TEMPLATE}


def spelled(made: vocabulary.Vocabulary, text: str) -> list[str]:
    return [TOKENS[token] for token in made.encode(text)]


def test_text_is_merged_as_the_file_says_and_comes_back_whole() -> None:
    made = vocabulary.from_gguf(metadata())
    assert spelled(made, "hello he12") == ["hell", "o", "Ġhe", "1", "2"]
    for text in ("hello world", "Grüße, 你好 🙂\n\tend", "  two  blanks "):
        assert made.decode(made.encode(text)) == text
    assert made.stop_ids == {1}


def test_control_tokens_are_read_as_one_and_not_shown() -> None:
    made = vocabulary.from_gguf(metadata())
    assert made.encode("<s>he</s>") == [0, TOKENS.index("he"), 1]
    assert made.decode([0, TOKENS.index("he"), 1]) == "he"
    assert spelled(vocabulary.from_gguf(metadata(add_bos_token=True)), "he") == ["<s>", "he"]


def test_a_conversation_is_laid_out_by_the_template_with_its_turns() -> None:
    made = vocabulary.from_gguf(metadata())
    messages = [{"role": "system", "content": "a"}, {"role": "user", "content": "he"}]
    tokens, turns = made.chat(messages)
    assert tokens == made.encode("<s>system:a</s><s>user:he</s><s>assistant:")
    assert turns == (0, len(made.encode("<s>system:a</s>")))


def test_a_template_cannot_reach_out_of_its_sandbox() -> None:
    hostile = metadata() | {"tokenizer.chat_template": "{{ ''.__class__.__mro__[1].__subclasses__() }}"}
    with pytest.raises(TextError, match="does not take this conversation"):
        vocabulary.from_gguf(hostile).chat([{"role": "user", "content": "x"}])
    refusing = metadata() | {"tokenizer.chat_template": "{{ raise_exception('only user turns') }}"}
    with pytest.raises(TextError, match="only user turns"):
        vocabulary.from_gguf(refusing).chat([{"role": "user", "content": "x"}])


def test_what_cannot_be_read_is_named() -> None:
    with pytest.raises(ValueError, match="tokenizer 'llama' in GGUF metadata; expected 'gpt2'"):
        vocabulary.from_gguf(metadata(model="llama"))
    with pytest.raises(ValueError, match=r"pre-tokenizer 'smolm'.*nearest is 'smollm'"):
        vocabulary.from_gguf(metadata(pre="smolm"))
    with pytest.raises(ValueError, match=r"tokenizer\.json cannot be read"):
        vocabulary.from_json("{}", frozenset(), None, {})
    with pytest.raises(TextError, match="no chat template"):
        vocabulary.from_gguf({**metadata(), "tokenizer.chat_template": None}).chat([])


def test_a_tokenizer_json_says_the_same_as_the_metadata_it_was_made_from() -> None:
    made = vocabulary.from_gguf(metadata())
    again = vocabulary.from_json(made._fast.to_str(), made.stop_ids, TEMPLATE, {})
    text = "hello <s>wörld</s> 42"
    assert again.encode(text) == made.encode(text)
    assert again.chat([{"role": "user", "content": text}]) == made.chat([{"role": "user", "content": text}])


def test_smollm2_reads_its_own_vocabulary() -> None:
    try:
        file = smollm2_path()
    except FileNotFoundError as error:
        pytest.skip(str(error))
    from engine.gguf import GGUFFile

    made = vocabulary.from_gguf(GGUFFile(file).metadata)
    assert made.size == 49152
    assert made.encode("The capital of France is") == [504, 3575, 282, 4649, 314]
    for text in ("Grüße, 你好 🙂\n\tend 2024", "def f(x):\n    return x+1"):
        assert made.decode(made.encode(text)) == text
    tokens, turns = made.chat([{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Yes"}])
    assert tokens[:2] == [1, 9690]
    assert tokens[turns[1]] == 1


def test_models_without_text_take_numbers_and_random_weights_take_any_text() -> None:
    numbers, anything = NumberTokenizer(10), ByteTokenizer(300)
    assert numbers.encode(numbers.decode([3, 9])) == [3, 9]
    for wrong in ("10", "hello", "-1", "²"):
        with pytest.raises(TextError, match="token numbers from 0 to 9"):
            numbers.encode(wrong)
    assert anything.encode("aé") == [97, 195, 169]
    assert len(anything.decode([5, 299, 0])) == 3
    assert anything.chat([{"role": "user", "content": "a"}]).tokens == list(b"user: a")
