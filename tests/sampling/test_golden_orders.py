"""Every order is pinned by values that another implementation wrote down."""

import json
from pathlib import Path

import numpy as np
import pytest

from headrace.sampling import Plan
from headrace.sampling.document_keys import document_keys
from headrace.sampling.keys import Stream, key_words
from headrace.sampling.permutation import ROUNDS, invert, permute

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "orders.json").read_text(encoding="utf-8"))


def test_golden_file_is_what_its_maker_writes(model):
    """The file was not edited by hand, and the model still agrees with it."""
    assert json.loads(json.dumps(model.golden())) == GOLDEN


@pytest.mark.parametrize("case", GOLDEN["keys"], ids=lambda case: str(case["of"]))
def test_key_words_are_pinned(case):
    """Key words of a seed, epoch and stream never change, with numpy versions neither; a short key begins a long one."""
    seed, epoch, stream = case["of"]
    assert key_words(seed, epoch, Stream(stream), ROUNDS).tolist() == case["words"]
    assert key_words(seed, epoch, Stream(stream), 2).tolist() == case["words"][:2]


@pytest.mark.parametrize("case", GOLDEN["permutations"], ids=lambda case: str(case["length"]))
def test_permutations_are_pinned(case):
    """The places of first, middle and last indices never change, up to a domain of 2**63."""
    key = key_words(0, 0, Stream.BLOCKS, ROUNDS)
    indices = np.array(case["indices"], np.uint64)
    places = np.array(case["places"], np.uint64)
    np.testing.assert_array_equal(permute(indices, length=case["length"], key=key), places)
    np.testing.assert_array_equal(invert(places, length=case["length"], key=key), indices)


@pytest.mark.parametrize("case", GOLDEN["builds"], ids=lambda case: str(case["document"]))
def test_keys_of_documents_are_pinned(case):
    """The order of a build with a seed never changes; keys are the same however many are asked for at once."""
    *source, number = case["document"]
    before = min(number, 7)
    assert int(document_keys(*source, number, 1)[0]) == case["key"]
    assert int(document_keys(*source, number - before, before + 5)[before]) == case["key"]
    assert document_keys(*source, number, 0).shape == (0,)


@pytest.mark.parametrize("case", GOLDEN["plans"], ids=lambda case: "-".join(map(str, case["plan"].values())))
def test_orders_are_pinned(case):
    """The starts of every order never change; nor does the fingerprint, by which a checkpoint knows the order."""
    plan = Plan(**case["plan"])
    assert plan.fingerprint == case["fingerprint"]
    assert len(case["starts"]) >= 2
    numbers = plan.documents_many if plan.order == "documents" else plan.starts_many
    for step, starts in case["starts"].items():
        assert numbers(int(step), 1).tolist() == [starts]
