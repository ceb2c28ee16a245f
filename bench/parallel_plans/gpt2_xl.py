"""What a step of GPT-2 XL takes on 8 H200 when data, tensors or layers are divided, by gcomp's plan and the rates of the links: the
table of docs/parallel-plans.md. Needs nothing but Python.

    python3 bench/parallel_plans/gpt2_xl.py [--link-bytes 450e9] [--link-seconds 3e-6]

What a layer takes is the difference of two plans, of one layer and of two, in bf16 with AdamW, for 4 and for 8 rows of 1,024 tokens:

    gcomp compile gpt2.onnx --train --loss cross_entropy --optimizer adamw --batch 4 --precision bf16 --target cuda:sm_90 --emit plan

where gpt2.onnx is that of bench/gpu/make_models.py with vocabulary=50257, width=1600, heads=25 and layers=1 or 2, and gpt2.weights an
empty file of the length that it wants (truncate -s). Times are the least that the plan names: what bytes or flops allow.
"""
import argparse
import dataclasses
import math

LAYERS, WIDTH, LENGTH, VOCABULARY = 48, 1600, 1024, 50257
ROWS = 64  # of the global batch
GPUS, BYTES_OF_GPU = 8, 141e9
UPDATE_SECONDS = LAYERS * 185.87e-6 + 571.71e-6  # AdamW of all parameters on one GPU


@dataclasses.dataclass
class Planned:
    """Seconds and bytes of one micro-batch on an undivided GPU."""
    layer: float             # products, attention and kernels that heads and columns divide
    layer_whole: float       # layer norms and residuals, which every rank of a tensor group does
    rest: float              # embedding, head and loss
    rest_whole: float
    kept: float              # bytes of a layer that wait for the backward pass
    kept_whole: float        # of these the residuals
    rest_arena: float        # of the head: logits and their gradient


MIB = 2**20
PLANNED = {  # rows of a micro-batch
    4: Planned(1228.4e-6 - 98e-6, 98e-6, 3126.5e-6 - 55e-6, 55e-6, 222 * MIB, 50 * MIB, 575 * MIB),
    8: Planned(2385.2e-6 - 195e-6, 195e-6, 5984.4e-6 - 104e-6, 104e-6, 453 * MIB, 100 * MIB, 983 * MIB),
}


def parameters():
    layer = 12 * WIDTH**2 + 13 * WIDTH
    table = VOCABULARY * WIDTH
    return LAYERS * layer + table + LENGTH * WIDTH + 2 * WIDTH, layer, table


@dataclasses.dataclass
class Plan:
    name: str
    data: int = 1
    tensor: int = 1
    stages: int = 1
    rows: int = 8            # of a micro-batch

    @property
    def micro_batches(self):
        """That one group of ranks computes in a step."""
        return ROWS // self.data // self.rows


def moved(link, bytes_of_array, ranks):
    """Seconds of a reduce_scatter or an all_gather of an array of so many bytes: N - 1 of N parts go out."""
    return 0.0 if ranks == 1 else (ranks - 1) / ranks * bytes_of_array / link.bytes + link.seconds


def stage_seconds(plan):
    """Of a micro-batch on the slowest stage, layers being divided so that head and loss count as layers."""
    p = PLANNED[plan.rows]
    layer, rest = p.layer / plan.tensor + p.layer_whole, p.rest / plan.tensor + p.rest_whole
    if plan.stages == 1:
        return LAYERS * layer + rest
    head = rest / layer
    own = max(0, round((LAYERS + head) / plan.stages - head))  # layers beside the head
    return max(math.ceil((LAYERS - own) / (plan.stages - 1)) * layer, own * layer + rest)


def step(plan, link):
    """The parts of a step in seconds, and bytes of a GPU."""
    total, layer, table = parameters()
    p, m = PLANNED[plan.rows], plan.micro_batches
    own = total / plan.tensor / plan.stages
    compute = m * stage_seconds(plan)
    bubble = (plan.stages - 1) * stage_seconds(plan)
    activations = plan.rows * LENGTH * WIDTH * 4  # f32: sums over ranks are wide
    tensor = m * (LAYERS / plan.stages) * 4 * 2 * moved(link, activations, plan.tensor)
    passed = 0 if plan.stages == 1 else (m + plan.stages - 1) * 2 * (activations / link.bytes + link.seconds)
    exchange = 2 * moved(link, 4 * own, plan.data)
    # Of the exchange, half may go under the backward pass of the last micro-batch, two thirds of it, and half under the next forward.
    last = stage_seconds(plan)
    hidden = max(0, exchange / 2 - 2 / 3 * last) + max(0, exchange / 2 - 1 / 3 * last)
    update = UPDATE_SECONDS / GPUS
    buffers = math.floor(math.log2(m)) + 1  # a binary counter of sums
    kept = (LAYERS / plan.stages) * (p.kept_whole + (p.kept - p.kept_whole) / plan.tensor) * min(m, plan.stages)
    memory = own * (4 + 2 + 4 * buffers) + total * 8 / GPUS + kept + p.rest_arena / plan.tensor
    return dict(compute=compute, bubble=bubble, tensor=tensor, passed=passed, exchange=exchange, update=update,
                total=compute + bubble + tensor + passed + exchange + update,
                overlapped=compute + bubble + tensor + passed + hidden + update, memory=memory)


PLANS = [Plan("ZeRO-1 over 8", data=8), Plan("tensor 2 x data 4", data=4, tensor=2), Plan("stages 4 x data 2", data=2, stages=4, rows=4),
         Plan("tensor 8", tensor=8)]


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--link-bytes", dest="bytes", type=float, default=450e9, help="of a GPU, a second and each way")
    options.add_argument("--link-seconds", dest="seconds", type=float, default=3e-6, help="that a collective takes by itself")
    link = options.parse_args()
    total, layer, table = parameters()
    print(f"GPT-2 XL: {total:,} parameters, {layer:,} a layer, {table:,} in the table of tokens")
    print(f"{ROWS} rows of {LENGTH} tokens a step on {GPUS} H200, links {link.bytes / 1e9:g} GB/s, {link.seconds * 1e6:g} us; ms")
    names = ["compute", "bubble", "tensor", "passed", "exchange", "update", "total", "overlapped"]
    print(f"| {'plan':17} | " + " | ".join(f"{name:>10}" for name in names) + " | tokens/s | GB a GPU |")
    print(f"|{'-' * 19}|" + "------------|" * len(names) + "----------|----------|")
    for plan in PLANS:
        cost = step(plan, link)
        rate = ROWS * LENGTH / cost["overlapped"]
        print(f"| {plan.name:17} | " + " | ".join(f"{cost[name] * 1e3:10.1f}" for name in names) + f" | {rate:8,.0f} | {cost['memory'] / 1e9:8.1f} |")


if __name__ == "__main__":
    main()
