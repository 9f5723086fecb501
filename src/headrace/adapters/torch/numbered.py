"""How far what hands out batches one by one is, `of` of them a step: as torchdata's `StatefulDataLoader` keeps it."""

from collections.abc import Mapping
from typing import Any

from headrace.errors import PlanError
from headrace.loading import Loader
from headrace.sampling.checks import checked_int

__all__ = ["load_number", "state_at"]


def state_at(loader: Loader, number: int, of: int) -> dict[str, Any]:
    """Return what comes next, and of what.

    Args:
        loader: makes the batches; it is moved to their step.
        number: of the next batch, counted from step 0 on.
        of: batches of a step.
    """
    step, micro = divmod(number, of)
    loader.step = min(step, loader.plan.step_limit)
    return {"batch": number, "micro": micro, "of": of, "loader": loader.state_dict()}


def load_number(state: Mapping[str, Any], loader: Loader, of: int, name: str) -> int:
    """Let a loader go on where a state was taken, and return the number of the next batch.

    Args:
        state: what `state_at` returned.
        loader: of the same run.
        of: batches of a step.
        name: what has the state, for messages.

    Raises:
        PlanError: it is of another run; see `Loader.load_state_dict`.
    """
    if state["of"] != of:
        raise PlanError(f"of: the state has {state['of']} batches a step, this {name} {of}")
    loader.load_state_dict(state["loader"])
    return checked_int("batch", state["batch"], least=0)
