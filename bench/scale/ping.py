"""How fast MPI moves bytes between ranks, through gcomp's own plug-in: the links that `gcomp scale --link` asks for.

    mpirun -n 2 python3 bench/scale/ping.py build/bin/libgcomp_mpi.so        (needs nothing but Python)

Rank 0 prints JSON: the time of each exchange and size, the copy rate of this process, and the line latency + bytes / rate
that fits best, of which each rank sends ranks - 1 messages.
"""
import ctypes
import json
import statistics
import sys
import time

VERSION = 2
SIZES = [1 << power for power in range(10, 25, 2)]  # bytes of one part
MOST_CALLS, SECONDS = 200, 0.3
CHANNEL = 0
EXCHANGE = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)


class Plugin(ctypes.Structure):
    """struct GcompMpiPlugin of runtime/comm/mpi_plugin.h."""
    _fields_ = [("version", ctypes.c_int),
                ("library", ctypes.CFUNCTYPE(ctypes.c_char_p)),
                ("start", ctypes.CFUNCTYPE(ctypes.c_int)),
                ("stop", ctypes.CFUNCTYPE(ctypes.c_int)),
                ("error", ctypes.CFUNCTYPE(ctypes.c_char_p)),
                ("rank", ctypes.CFUNCTYPE(ctypes.c_int)),
                ("size", ctypes.CFUNCTYPE(ctypes.c_int)),
                ("host", ctypes.CFUNCTYPE(ctypes.c_char_p)),
                ("channels", ctypes.CFUNCTYPE(ctypes.c_int)),
                ("all_to_all", EXCHANGE),
                ("all_gather", EXCHANGE),
                ("broadcast", ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)),
                ("abort", ctypes.CFUNCTYPE(None, ctypes.c_int))]


def check(plugin, code):
    if code:
        sys.exit(f"ping.py: MPI: {plugin.error().decode()}")


def timed(plugin, ranks, exchange, part):
    """Seconds of one call, the same number of calls on every rank; a fifth of them were faster, which other work on a machine hardly
    touches."""
    sent, received = ctypes.create_string_buffer(part * ranks), ctypes.create_string_buffer(part * ranks)
    together, byte = ctypes.create_string_buffer(ranks), ctypes.create_string_buffer(1)
    calls = max(10, min(MOST_CALLS, int(SECONDS * 1e9 / part)))
    times = []
    for call in range(calls + 3):
        check(plugin, plugin.all_gather(CHANNEL, byte, together, 1))  # all are here
        begin = time.perf_counter()
        check(plugin, exchange(CHANNEL, sent, received, part))
        if call >= 3:
            times.append(time.perf_counter() - begin)
    return statistics.quantiles(times, n=5)[0]


def copy_rate(size=64 << 20):
    """Bytes a second, read and written together, of one process."""
    source, target = ctypes.create_string_buffer(size), ctypes.create_string_buffer(size)
    times = []
    for _ in range(7):
        begin = time.perf_counter()
        ctypes.memmove(target, source, size)
        times.append(time.perf_counter() - begin)
    return 2 * size / min(times)


def fitted(points):
    """Latency and rate of messages: the least sum of squared relative errors of latency + bytes / rate."""
    # Minimizes sum ((a + b x - y) / y)^2: two linear equations in a and b.
    s = [sum(x ** power / y ** 2 for x, y in points) for power in (0, 1, 2)]
    r = [sum(x ** power / y for x, y in points) for power in (0, 1)]
    determinant = s[0] * s[2] - s[1] * s[1]
    latency, inverse = (r[0] * s[2] - r[1] * s[1]) / determinant, (s[0] * r[1] - s[1] * r[0]) / determinant
    return max(latency, 0.0), 1 / inverse


def main():
    plugin = Plugin.in_dll(ctypes.CDLL(sys.argv[1], mode=ctypes.RTLD_GLOBAL), "gcomp_mpi_plugin")
    if plugin.version != VERSION:
        sys.exit(f"ping.py: {sys.argv[1]} is of version {plugin.version}, wanted {VERSION}")
    check(plugin, plugin.start())
    ranks = plugin.size()
    found = {"ranks": ranks, "library": plugin.library().decode().split(",")[0], "copy_bytes_per_second": copy_rate()}
    messages = []
    for name in ("all_to_all", "all_gather"):
        found[name] = [{"part_bytes": part, "seconds": timed(plugin, ranks, getattr(plugin, name), part)} for part in SIZES]
        messages += [(point["part_bytes"], point["seconds"] / max(1, ranks - 1)) for point in found[name]]
    found["latency_seconds"], found["bytes_per_second"] = fitted(messages)
    found["largest_error"] = max(abs(found["latency_seconds"] + x / found["bytes_per_second"] - y) / y for x, y in messages)
    if plugin.rank() == 0:
        print(json.dumps(found))
    check(plugin, plugin.stop())


if __name__ == "__main__":
    main()
