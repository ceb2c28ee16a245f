"""The clock of everyone but gcomp, which has its own."""
import time


def times_ms(step, steps, warm_up=10, least_seconds=0.0):
    """Of so many steps, and of more where they do not fill that time."""
    for _ in range(warm_up):
        step()
    times, begin = [], time.perf_counter()
    while len(times) < steps or time.perf_counter() - begin < least_seconds:
        start = time.perf_counter()
        step()
        times.append(1e3 * (time.perf_counter() - start))
    return times
