"""How long a training step of every model family takes, beside the library's own module.

Equal shape, data, loss, precision, optimizer and number of threads on both sides, in one process
that takes steps of one side and of the other in turn. A step is forward, loss, backward and the
optimizer's update; its time is that of the processor, which for one thread is the clock's where
nothing else runs, and hardly grows where something does.
"""

import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

import click

from benchmarks.pairs import Pairing, environment, in_turn, measured, show

if TYPE_CHECKING:
    from torch import Tensor, nn

    from benchmarks.step_cases import Case, Loss

BURST_SECONDS: Final = 0.2
QUICK_SECONDS: Final = 0.01
QUICK: Final = ("retrieval, T = 8", "rank encoder, small")
WARM_UP_STEPS: Final = 5
LEAST_STEPS: Final = 3


@click.command("steps")
@click.option("--only", help="Beginnings of families' names, with commas between; all by default.")
@measured(pairs=11)
def command(only: str | None, pairs: int, quick: bool, strict: bool) -> None:
    """Measure a training step of every model family beside the library's own module."""
    import torch

    try:
        cases = cases_of(None if only is None else only.split(","))
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--only") from None
    if quick and only is None:
        cases = tuple(case for case in cases if case.name in QUICK)
    about = environment()
    torch.set_num_threads(1)
    rows = [_pairing(case, pairs, QUICK_SECONDS if quick else BURST_SECONDS) for case in cases]
    show("steps", rows, about, strict=strict)


def cases_of(families: Iterable[str] | None) -> "tuple[Case, ...]":
    """Return the cases whose name begins with one of these, all of them for None.

    Raises:
        ValueError: a name that no case begins with.
    """
    from benchmarks.step_cases import CASES

    if families is None:
        return CASES
    chosen: dict[str, Case] = {}
    for family in families:
        of_family = {c.name: c for c in CASES if c.name.lower().startswith(family.lower())}
        if not of_family:
            names = ", ".join(dict.fromkeys(case.name.split(",")[0] for case in CASES))
            raise ValueError(f"no model family begins with {family!r}; there are {names}")
        chosen |= of_family
    return tuple(chosen.values())


def _pairing(case: "Case", pairs: int, seconds: float) -> Pairing:
    import torch

    from models.torchvision_compat import make_torchvision_importable

    make_torchvision_importable()
    steps: list[Callable[[], None]] = []
    params: list[int] = []
    for build in (case.ours, case.theirs):
        torch.manual_seed(0)
        model = build()
        torch.manual_seed(1)
        steps.append(training_step(model, case.inputs(), case.loss))
        params.append(sum(parameter.numel() for parameter in model.parameters()))
        for _ in range(WARM_UP_STEPS):
            steps[-1]()
    ours, theirs = steps
    return Pairing(
        name=case.name,
        ours="hsweep",
        theirs=case.library,
        unit="ms",
        is_better="less",
        pairs=in_turn(
            lambda: 1e3 * seconds_a_step(ours, seconds),
            lambda: 1e3 * seconds_a_step(theirs, seconds),
            pairs,
        ),
        bar=case.bar,
        facts={"batch": case.batch, "config": repr(case.config), "params": params},
    )


def training_step(model: "nn.Module", inputs: "Tensor", loss: "Loss") -> Callable[[], None]:
    """Return what takes one training step: forward, loss, backward, and our optimizer's update.

    Args:
        model: any; it is put into training mode.
        inputs: the batch of every step.
        loss: ``cross_entropy`` over the outputs' last axis, against classes drawn at random, or
            ``mse`` against random numbers of the outputs' shape.
    """
    import torch
    from torch.nn import functional as F

    from hsweep.design.recipe import Recipe
    from hsweep.training.optimizers import build_optimizer

    model.train()
    optimizer = build_optimizer(model, Recipe(lr=1e-4, weight_decay=0.01))
    with torch.no_grad():
        outputs = model(inputs)
    torch.manual_seed(2)  # again, because dropout takes random numbers
    if loss == "mse":
        targets = torch.randn_like(outputs)
    else:
        targets = torch.randint(outputs.shape[-1], outputs.shape[:-1])

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        outputs = model(inputs)
        if loss == "mse":
            error = F.mse_loss(outputs, targets)
        else:
            error = F.cross_entropy(outputs.flatten(0, -2), targets.flatten())
        error.backward()  # type: ignore[no-untyped-call]
        optimizer.step()

    return step


def seconds_a_step(step: Callable[[], None], seconds: float) -> float:
    """Take steps for at least so long, and at least three; return the processor time of one."""
    number = 0
    before, started = time.process_time(), time.perf_counter()
    while number < LEAST_STEPS or time.perf_counter() - started < seconds:
        step()
        number += 1
    return (time.process_time() - before) / number
