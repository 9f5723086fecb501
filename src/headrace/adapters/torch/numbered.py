"""How far what hands out batches one by one is, `of` of them a step: as torchdata's `StatefulDataLoader` keeps it."""

from collections.abc import Mapping
from typing import Any

from headrace.errors import PlanError
from headrace.loading import Loader
from headrace.sampling.checks import checked_int

__all__ = ["load_number", "state_at"]

_KEYS = {"batch", "micro", "of", "loader"}


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
    found = set(state) if isinstance(state, Mapping) else type(state).__name__  # pyright: ignore[reportUnnecessaryIsInstance]  # from a file
    if found != _KEYS:
        raise PlanError(
            f"wanted what state_dict() of a {name} returned, with {', '.join(sorted(_KEYS))}; found {found}. Of a state of a "
            "loader take the step: set_step(state['step'])"
        )
    if state["of"] != of:
        raise PlanError(f"of: the state has {state['of']} batches a step, this {name} {of}")
    number = checked_int("batch", state["batch"], least=0)
    loader.load_state_dict(state["loader"])
    if (loader.step, state["micro"]) != (min(number // of, loader.plan.step_limit), number % of):
        raise PlanError(
            f"batch: the state is of batch {number}, with {of} a step, and says step {loader.step}, part {state['micro']}: it is "
            "damaged"
        )
    return number
