"""Processes that take training steps of models when asked, and say how long a step takes."""

import multiprocessing
import statistics
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self

if TYPE_CHECKING:
    from torch import Tensor, nn

Loss = Literal["cross_entropy", "mse"]
WARM_UP_STEPS = 5
LEAST_STEPS = 3


@dataclass(frozen=True, slots=True)
class Steps:
    """What a side measured.

    Attributes:
        seconds: median time of a step by the clock.
        cpu_seconds: processor time of the whole process, for one step.
        number: how many steps were taken.
        elapsed: how long they all took by the clock.
    """

    seconds: float
    cpu_seconds: float
    number: int
    elapsed: float


class Side:
    """One process with so many threads for computing, which trains one model at a time.

    Args:
        threads: threads a tensor operation may use.
    """

    def __init__(self, threads: int) -> None:
        # A fresh process instead of a copy of this one, which may hold threads and locks.
        context = multiprocessing.get_context("spawn")
        self._connection, other_end = context.Pipe()
        self._process = context.Process(target=_serve, args=(other_end, threads), daemon=True)
        self._process.start()
        other_end.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._connection.close()
        self._process.join(timeout=10)
        if self._process.is_alive():
            self._process.kill()

    def build(self, module: str, case: str, which: str) -> int:
        """Build a model and take the first steps; return its number of parameters.

        Args:
            module: where ``case_named`` is, which finds a case by its name.
            case: the name.
            which: the case's attribute that makes the model.

        Raises:
            RuntimeError: the process failed; the message holds its traceback.
        """
        self._connection.send(("build", (module, case, which)))
        params: int = self._answer()
        return params

    def start_measuring(self, seconds: float) -> None:
        """Have steps taken for so long; ``measured`` waits for their end."""
        self._connection.send(("measure", (seconds,)))

    def measured(self) -> Steps:
        """Return what ``start_measuring`` led to.

        Raises:
            RuntimeError: the process failed; the message holds its traceback.
        """
        steps: Steps = self._answer()
        return steps

    def measure(self, seconds: float) -> Steps:
        """Take steps for so long, and return what was measured.

        Raises:
            RuntimeError: the process failed; the message holds its traceback.
        """
        self.start_measuring(seconds)
        return self.measured()

    def _answer(self) -> Any:
        try:
            failure, answer = self._connection.recv()
        except EOFError:
            raise RuntimeError("the process that measures ended by itself") from None
        if failure:
            raise RuntimeError(failure)
        return answer


def _serve(connection: Connection, threads: int) -> None:
    import torch

    from models.torchvision_compat import make_torchvision_importable

    torch.set_num_threads(threads)
    make_torchvision_importable()
    step: Callable[[], None] | None = None
    while True:
        try:
            command, arguments = connection.recv()
        except EOFError:
            return
        try:
            if command == "build":
                step, answer = _build(*arguments)
            else:
                assert step is not None, "a model must be built before it is measured"
                answer = take_steps(step, *arguments)
        except Exception:
            connection.send((traceback.format_exc(), None))
        else:
            connection.send((None, answer))


def _build(module: str, name: str, which: str) -> tuple[Callable[[], None], Any]:
    import importlib

    import torch

    case = importlib.import_module(module).case_named(name)
    torch.manual_seed(0)
    model: nn.Module = getattr(case, which)()
    torch.manual_seed(1)
    step = training_step(model, case.inputs(), case.loss)
    for _ in range(WARM_UP_STEPS):
        step()
    return step, sum(parameter.numel() for parameter in model.parameters())


def training_step(model: "nn.Module", inputs: "Tensor", loss: Loss) -> Callable[[], None]:
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


def take_steps(step: Callable[[], None], seconds: float) -> Steps:
    """Take steps for at least so long, and at least three; return how long one takes."""
    taken: list[float] = []
    cpu_before, started = time.process_time(), time.perf_counter()
    now = started
    while now - started < seconds or len(taken) < LEAST_STEPS:
        before = now
        step()
        now = time.perf_counter()
        taken.append(now - before)
    cpu_seconds = (time.process_time() - cpu_before) / len(taken)
    return Steps(statistics.median(taken), cpu_seconds, len(taken), now - started)
