"""The model in the package recalls what a long document says, also through a compressed cache."""

import pytest
import torch

from engine.lab.recall import tasks
from engine.lab.recall.batch import IGNORE, BatchShape, make_batch
from engine.lab.recall.compressed import BOTH, FULL, Compression, quantised, selected
from engine.lab.recall.evaluate import Asking, Work, measure, measure_task
from engine.lab.recall.task import KEY
from engine.lab.recall.train import BatchAttend
from engine.model import Decoder
from engine.weights.shipped import load_shipped


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def shipped() -> Decoder:
    return load_shipped()[1]


def test_the_shipped_model_is_small_and_ready_to_serve(shipped: Decoder):
    config = load_shipped()[0]
    assert config == shipped.config
    assert sum(weight.numel() for weight in shipped.parameters()) == 3_672_320
    assert all(weight.dtype == torch.float32 and not weight.requires_grad for weight in shipped.parameters())


@pytest.mark.parametrize("compression", [FULL, BOTH], ids=lambda compression: compression.name)
def test_it_recalls_a_4k_document_token_by_token(shipped: Decoder, compression: Compression):
    score = measure(shipped, Work(4096, documents=1, walks=6, steps=96), compression)
    assert score.checked == 576
    assert score.accuracy >= 0.99


@pytest.mark.slow
@pytest.mark.parametrize("compression", [FULL, BOTH], ids=lambda compression: compression.name)
def test_it_recalls_an_8k_document_token_by_token(shipped: Decoder, compression: Compression):
    score = measure(shipped, Work(8192, documents=1, walks=8, steps=64), compression)
    assert score.checked == 512
    assert score.accuracy >= 0.99


@pytest.mark.parametrize("name", tasks.names())
def test_it_answers_both_turns_of_every_task(shipped: Decoder, name: str):
    first, second = measure_task(shipped, Asking(name, 1024, documents=1, dialogues=12), FULL)
    # A key that is not there is the one thing that it does not always know in so short a document.
    assert first.accuracy >= (0.6 if name == "unanswerable" else 0.97)
    assert second.accuracy >= 0.97


def test_it_answers_later_questions_behind_earlier_ones(shipped: Decoder):
    shape = BatchShape(batch=1, length=2048, spacing=24, walks=4, steps=16)
    batch = make_batch(shape, torch.Generator().manual_seed(5))
    hidden = shipped(batch.tokens.flatten(), torch.arange(shape.length), BatchAttend(1))
    asked = batch.targets.flatten() != IGNORE
    right = shipped.logits(hidden[asked]).argmax(-1) == batch.targets.flatten()[asked]
    assert right.float().mean() >= 0.99


def test_a_training_batch_asks_only_for_facts_of_its_own_document():
    shape = BatchShape(batch=3, length=512, spacing=8, walks=3, steps=24)
    batch = make_batch(shape, torch.Generator().manual_seed(1))
    for tokens, targets in zip(batch.tokens.tolist(), batch.targets.tolist(), strict=True):
        document = tokens[: batch.document_tokens]
        facts = {document[i + 1]: document[i + 2] for i, token in enumerate(document) if token == KEY}
        asked = [(tokens[i], target) for i, target in enumerate(targets) if target != IGNORE]
        assert len(facts) == shape.facts
        assert len(asked) == shape.walks * shape.steps
        assert all(facts[key] == value for key, value in asked)


def test_quantised_rows_are_off_by_at_most_half_a_step():
    rows = torch.randn(20, 2, 64, generator=torch.Generator().manual_seed(1))
    half_step = rows.abs().amax(-1, keepdim=True) / 127 / 2
    assert ((quantised(rows, 8) - rows).abs() <= half_step * 1.001).all()
    assert torch.equal(quantised(rows, None), rows)


def test_selection_reads_the_sink_the_recent_window_and_the_best_block_within_its_share():
    generator = torch.Generator().manual_seed(1)
    keys = 0.1 * torch.randn(1, 2, 1024 + 7, 64, generator=generator)
    query = torch.randn(1, 2, 2, 64, generator=generator)
    keys[0, 1, 500] = query[0, 1, 0]
    kept = selected(query, keys, 0.25)
    assert kept.shape == (1, 2, 1031)
    assert kept[..., :32].all()
    assert kept[..., -128:].all()
    assert kept[0, 1, 480:512].all()
    assert (kept.sum(-1) <= 0.25 * 1056).all()


def test_a_missing_file_is_named_with_its_remedy(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("engine.weights.shipped.CONFIG_FILE", "absent.json")
    with pytest.raises(FileNotFoundError, match=r"no absent\.json: reinstall .* engine\.lab\.recall\.train"):
        load_shipped()
