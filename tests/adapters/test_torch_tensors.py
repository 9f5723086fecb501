"""headrace.torch: what becomes of a batch's arrays, pinned buffers, and vocabularies."""

import h5py
import numpy as np
import pytest
import torch

import headrace
from headrace.errors import PlanError, TokenIdError
from headrace.testing.corpora import random_documents, small_corpus
from headrace.torch import PinnedBatches, as_tensors, check_vocabulary

IGNORED = -100


def test_tensors_share_the_batch_s_memory(make_loader):
    """int64 tokens are not copied on their way to torch; narrow ones are widened to the same values."""
    loader = make_loader()
    batch = loader.batch(4)
    tensors = as_tensors(batch)
    assert tensors["input_ids"].data_ptr() == batch.input_ids.ctypes.data
    assert tensors["targets"].data_ptr() == batch.targets.ctypes.data
    narrow = as_tensors(make_loader(dtype=loader.corpus.dtype).batch(4))
    assert {name: tensor.dtype for name, tensor in narrow.items()} == dict.fromkeys(
        ("input_ids", "targets"), torch.int64
    )
    assert torch.equal(narrow["input_ids"], tensors["input_ids"])


@pytest.mark.parametrize("targets", ["next", "inside"])
def test_what_does_not_count_is_ignored(make_loader, targets):
    """The loss with ignore_index is the mean over what the mask keeps: labels are shifted by the model, targets are not."""
    batch = make_loader(plan_targets=targets, boundary_loss="both").batch(2)
    assert not batch.loss_mask.all()
    tensors = as_tensors(batch, ignore_index=IGNORED)
    assert "loss_mask" not in tensors
    torch.testing.assert_close(tensors["input_ids"].numpy(), batch.input_ids)
    scores = torch.randn(*batch.input_ids.shape, 257, generator=torch.Generator().manual_seed(0))
    if targets == "next":
        predicted, wanted, plain, mask = scores, tensors["targets"], batch.targets, batch.loss_mask
    else:  # as the models of transformers do
        predicted, wanted = scores[:, :-1], tensors["labels"][:, 1:]
        plain, mask = batch.labels[:, 1:], batch.loss_mask[:, :-1]
    loss = torch.nn.functional.cross_entropy(predicted.flatten(0, 1), wanted.flatten(), ignore_index=IGNORED)
    each = torch.nn.functional.cross_entropy(
        predicted.flatten(0, 1), torch.from_numpy(plain.copy()).flatten(), reduction="none"
    )
    torch.testing.assert_close(loss, each[torch.from_numpy(mask.copy()).flatten()].mean())


@pytest.mark.parametrize("narrow", [False, True])
@pytest.mark.parametrize("ignore_index", [None, IGNORED])
@pytest.mark.parametrize("options", [{}, {"plan_targets": "inside"}, {"boundary_loss": "both", "document_ids": True}])
def test_pinned_batches_are_the_batches(make_loader, narrow, ignore_index, options):
    """Through two buffers that are filled again and again, wide or narrow, all batches stay what they are."""
    reference = make_loader(**options)
    loader = make_loader(**options, **({"dtype": reference.corpus.dtype} if narrow else {}))
    loader.step = 3
    kept = []
    for tensors in PinnedBatches(loader, "cpu", of=2, ignore_index=ignore_index):
        kept.append(tensors)
        assert loader.step == 3 + len(kept) // 2
        if len(kept) == 9:
            break
    for number, tensors in enumerate(kept):
        wanted = as_tensors(reference.batch(3 + number // 2, micro=number % 2, of=2), ignore_index)
        assert tensors.keys() == wanted.keys()
        for name, tensor in wanted.items():
            assert tensors[name].dtype == tensor.dtype
            assert torch.equal(tensors[name], tensor), (number, name)


def test_pinned_batches_end_with_a_finite_plan(make_loader):
    """A finite plan is handed out whole, once, its last step included; a step that is set in the loop is the next one."""
    loader = make_loader(plan_order="sequential")
    assert len(list(PinnedBatches(loader, "cpu"))) == loader.plan.steps
    seen = []
    for tensors in PinnedBatches(loader, "cpu"):
        seen.append(tensors["input_ids"][0])
        if len(seen) == 2:
            loader.step = loader.plan.steps - 1
    assert len(seen) == 3
    np.testing.assert_array_equal(
        seen[2].numpy(), make_loader(plan_order="sequential").batch(loader.plan.steps - 1).input_ids[0]
    )


def test_ids_of_the_upper_half(tmp_path):
    """Ids from 2**15 on, which travel as negative int16, arrive as they are; so do those of uint32 corpora."""
    for vocabulary in (65_536, 200_000):
        corpus = headrace.open(
            small_corpus(
                tmp_path / str(vocabulary), random_documents(1, [40], vocab_size=vocabulary), vocab_size=vocabulary
            )
        )
        plan = headrace.Plan(order="random", token_count=len(corpus), window=8, batch_size=16)
        narrow = headrace.Loader(corpus, plan, dtype=corpus.dtype)
        wanted = headrace.Loader(corpus, plan).batch(0).input_ids
        assert wanted.max() >= vocabulary // 2
        np.testing.assert_array_equal(next(iter(PinnedBatches(narrow, "cpu")))["input_ids"].numpy(), wanted)


@pytest.mark.parametrize("dtype", ["u1", ">u2", ">u4", ">i4", "<i4", ">i8"])
def test_ids_of_every_form(tmp_path, dtype):
    """Files of others hold tokens of one byte, or the wrong way round: narrow, they arrive as what they are."""
    tokens = np.random.default_rng(0).integers(0, 250 if dtype == "u1" else 50_000, 300).astype(dtype)
    with h5py.File(tmp_path / "tokens.h5", "w") as file:
        file["tokens"] = tokens
    corpus = headrace.open(tmp_path / "tokens.h5")
    plan = headrace.Plan(order="random", token_count=len(corpus), window=8, batch_size=16)
    batches = PinnedBatches(headrace.Loader(corpus, plan, dtype=corpus.dtype), "cpu")
    for step, batch in zip(range(3), batches, strict=False):
        starts = plan.starts(step)[:, np.newaxis]
        np.testing.assert_array_equal(batch["input_ids"].numpy(), tokens[starts + np.arange(8)])
        np.testing.assert_array_equal(batch["targets"].numpy(), tokens[starts + np.arange(1, 9)])


def test_a_model_s_vocabulary_is_compared(make_loader):
    """A model with fewer ids than the corpus is refused with both numbers; one with as many or more is not."""
    corpus = make_loader().corpus
    check_vocabulary(257, corpus)
    for known in (_Model(300), torch.nn.Embedding(300, 2), np.int64(257)):
        check_vocabulary(known, corpus)
    for model in (256, _Model(256)):
        with pytest.raises(TokenIdError, match="0 to 255, the corpus' vocabulary has 257"):
            check_vocabulary(model, corpus)
    with pytest.raises(TypeError, match="does not say"):
        check_vocabulary(object(), corpus)
    with pytest.raises(TypeError, match="bool does not say"):
        check_vocabulary(True, corpus)


class _Model(torch.nn.Module):
    def __init__(self, ids: int) -> None:
        super().__init__()
        self.embedding = torch.nn.Embedding(ids, 2)

    def get_input_embeddings(self) -> torch.nn.Embedding:
        return self.embedding


def test_parts_of_pinned_batches_must_divide(make_loader):
    """Parts that do not divide the rows are refused before anything is copied."""
    with pytest.raises(PlanError, match="of must divide"):
        next(iter(PinnedBatches(make_loader(), "cpu", of=3)))
    for wrong in (0, 1.0, None):
        with pytest.raises(PlanError, match="of must be"):
            PinnedBatches(make_loader(), "cpu", of=wrong)
