"""What the machine gives, by PyTorch: the copy rate, products of every precision, and memory-bound operations as shares of the copy.

    python rates.py [--size full|smoke] [--device cuda|cpu] [--modes eager compile] [--steps 30]

Prints one line of JSON. Bytes of an operation are the least that it must move: each operand read once, each result written once.
"""
import argparse
import json
import statistics

import torch
import torch.nn.functional as F

from torch_peer import times_ms

PRODUCTS = {"f32": (torch.float32, "highest"), "tf32": (torch.float32, "high"), "f16": (torch.float16, "high"),
            "bf16": (torch.bfloat16, "high")}
MODES = {"eager": lambda operation: operation, "compile": torch.compile}


def rate(run, work, options):
    """Work a second, by the median time."""
    for _ in range(5):
        run()
    milliseconds = statistics.median(times_ms(run, options.steps, options.device))
    return {"us": 1e3 * milliseconds, "per_second": work / milliseconds * 1e3}


def copy_rate(options):
    count = (1 << 28) if options.size == "full" else 1 << 22
    source = torch.randn(count, device=options.device)
    target = torch.empty_like(source)
    return rate(lambda: target.copy_(source), 8 * count, options)


def product_rates(options):
    """Random data: on zeros a GPU draws less power and runs faster than it can on anything real."""
    n, rates = 8192 if options.size == "full" else 64, {}
    for name, (dtype, precision) in PRODUCTS.items():
        if options.device == "cpu" and name != "f32":
            continue
        torch.set_float32_matmul_precision(precision)
        a, b = (torch.randn(n, n, device=options.device).to(dtype) for _ in range(2))
        c = torch.empty(n, n, device=options.device, dtype=dtype)
        rates[name] = rate(lambda: torch.mm(a, b, out=c), 2 * n**3, options)
    return rates


def forward_and_backward(operation, x):
    gradient = torch.randn_like(x)

    def run():
        return torch.autograd.grad(operation(x), x, gradient)

    return run


def operations(options):
    """{name: (function to compile or not, what to time with it, bytes)}; N is x's bytes."""
    rows, columns = (32768, 4096) if options.size == "full" else (64, 32)
    x = torch.randn(rows, columns, device=options.device)
    bias = torch.randn(columns, device=options.device)
    trained = x.clone().requires_grad_()
    plain = lambda operation: lambda: operation(x)
    both = lambda operation: forward_and_backward(operation, trained)
    size = 4 * x.numel()
    norm = lambda x: F.layer_norm(x, (columns,), bias, bias)
    return {
        "bias + gelu": (lambda x: F.gelu(x + bias, approximate="tanh"), plain, 2 * size),
        "softmax": (lambda x: torch.softmax(x, -1), plain, 2 * size),
        "softmax, forward and backward": (lambda x: torch.softmax(x, -1), both, 5 * size),
        "layer norm": (norm, plain, 2 * size),
        "layer norm, forward and backward": (norm, both, 5 * size),
        "column sum": (lambda x: x.sum(0), plain, size),
        "transpose": (lambda x: x.t().contiguous(), plain, 2 * size),
    }


def operation_rates(options):
    rates = {}
    for name, (operation, timed, work) in operations(options).items():
        rates[name] = {mode: rate(timed(MODES[mode](operation)), work, options) for mode in options.modes}
    weight = torch.nn.Parameter(torch.randn(1 << (26 if options.size == "full" else 12), device=options.device))
    weight.grad = torch.randn_like(weight)
    rates["Adam"] = {"eager": rate(torch.optim.Adam([weight], fused=True).step, 28 * weight.numel(), options)}
    return rates


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--size", choices=("full", "smoke"), default="full")
    options.add_argument("--device", default="cuda")
    options.add_argument("--modes", nargs="*", choices=MODES, default=list(MODES))
    options.add_argument("--steps", type=int, default=30)
    options = options.parse_args()
    print(json.dumps({"copy": copy_rate(options), "products": product_rates(options), "operations": operation_rates(options)}))


if __name__ == "__main__":
    main()
