"""The recall model that comes with the project."""

from __future__ import annotations

from importlib import resources

from safetensors import SafetensorError
from safetensors.torch import load as read_safetensors

from engine.model import Decoder, ModelConfig
from engine.tokenizer import NumberTokenizer
from engine.weights._base import Loaded, frozen

FOLDER = resources.files("engine.weights") / "recall"
CONFIG_FILE, WEIGHTS_FILE = "recall.json", "recall.safetensors"


class Shipped:
    FORM = "shipped"

    def claims(self, text: str) -> bool:
        return text == self.FORM

    def load(self, text: str, device: str) -> Loaded:
        config, model = load_shipped()
        return Loaded("recall", config, model.to(device), NumberTokenizer(config.vocab_size), recall=True)


SOURCE = Shipped()


def load_shipped() -> tuple[ModelConfig, Decoder]:
    """The recall model: float32, on the CPU, no gradients."""
    config = ModelConfig.from_json(_read(CONFIG_FILE).decode())
    return config, from_safetensors(config, _read(WEIGHTS_FILE), WEIGHTS_FILE)


def from_safetensors(config: ModelConfig, data: bytes, name: str) -> Decoder:
    """Build a float32 decoder from a safetensors image; ValueError says which tensor does not fit `config`."""
    try:
        tensors = read_safetensors(data)
    except SafetensorError as error:
        raise ValueError(f"{name}: not a readable safetensors file ({error})") from None
    model = Decoder(config)
    wanted = {key: tuple(value.shape) for key, value in model.state_dict().items()}
    found = {key: tuple(value.shape) for key, value in tensors.items()}
    for key in sorted(wanted.keys() | found.keys()):
        if wanted.get(key) != found.get(key):
            have, want = found.get(key, "nothing"), wanted.get(key, "nothing")
            raise ValueError(f"{name}: tensor {key} is {have}; its config expects {want}")
    model.load_state_dict({key: value.float() for key, value in tensors.items()})
    return frozen(model)


def _read(name: str) -> bytes:
    try:
        return (FOLDER / name).read_bytes()
    except FileNotFoundError:
        raise FileNotFoundError(
            f"engine/weights/recall has no {name}: reinstall the project, or make it with "
            f"`python -m engine.lab.recall.train --out DIR`"
        ) from None
