"""Which windows a step reads: pure arithmetic on token positions, no input or output.

`keys` (seed to key words) -> `permutation` (a keyed bijection of window numbers) and `philox` (uniform starts) ->
`windows` (how many windows a corpus has, and which targets they serve) -> `plan` (step, rank -> starts).
"""

from headrace.sampling.plan import Plan

__all__ = ["Plan"]
