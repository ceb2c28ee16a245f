"""Whether the first steps of a contender are those of PyTorch eager in float32.

Everyone is held to first losses within a tolerance. gcomp's bf16 is held to ten losses and ten norms of all gradients together, by
a measure that comes from PyTorch: up to each step its distance to float32 may be TIMES that which PyTorch's own bf16 has reached by
then, or one rounding to bf16. Both round the same products in another order, so that neither is nearer to float32 by design; a
factor of two is the play between two draws of the same error. Peers are not held to that: one that was dropped wrongly would
flatter gcomp.
"""
import math

# (losses that must agree, relative tolerance): where products are rounded, updates may part soon.
TOLERANCES = {"f32": (3, 1e-3), "tf32": (1, 2e-2), "bf16": (1, 2e-2)}
ROUNDING = 2.0**-8  # of bf16, to nearest: 8 significant bits
TIMES = 2


def disagreement(losses, reference, precision):
    """Why these first losses are not those of the reference, or None."""
    if not all(map(math.isfinite, losses)):
        return f"losses {losses}"
    count, tolerance = TOLERANCES[precision]
    for step, (a, b) in enumerate(zip(losses[:count], reference), 1):
        if not math.isclose(a, b, rel_tol=tolerance):
            return f"the loss of step {step} is {a:.6g}, PyTorch's in float32 {b:.6g}"
    return None


def straying(what, found, rounded, reference):
    """Why `found` is farther from the reference than `rounded`, PyTorch's in the same precision, accounts for; or None."""
    if len(found) < len(reference):
        return f"{len(found)} of {len(reference)}: {what}"
    reached = 0
    for step, (ours, theirs, exact) in enumerate(zip(found, rounded, reference), 1):
        reached = max(reached, abs(theirs - exact))
        if not abs(ours - exact) <= max(TIMES * reached, ROUNDING * abs(exact)):
            return f"step {step}, {what}: {ours:.6g}; PyTorch's {theirs:.6g}, in float32 {exact:.6g}"
    return None


def distance(found, reference):
    """The largest relative one of all steps."""
    return max((abs(a - b) / abs(b) for a, b in zip(found, reference)), default=0)
