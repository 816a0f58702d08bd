"""What part of a cluster each of its studies takes."""

import itertools
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hsweep.ray_tune.environment import prepare_ray

prepare_ray()

from hsweep.ray_tune import sharing as ray_sharing  # noqa: E402
from hsweep.ray_tune.sharing import Sharing  # noqa: E402


class Head:
    """A cluster's head, with what drivers have left there, and a clock."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.now, self.claims = 0.0, dict[str, str]()
        number = itertools.count()
        clock = SimpleNamespace(monotonic=lambda: self.now, time=lambda: float(next(number)))
        patch.setattr(ray_sharing, "time", clock)
        patch.setattr(ray_sharing, "exchange", self.exchange)

    def exchange(self, key: str, claim: str) -> dict[str, str]:
        self.claims[key] = claim
        return dict(self.claims)


@pytest.fixture
def head(monkeypatch: pytest.MonkeyPatch) -> Head:
    return Head(monkeypatch)


def parts(*wants: tuple[int, int], fitting: int = 8, device: str = "CPU") -> list[int]:
    """What studies get that have a priority and want so many slots, once all have said so."""
    studies = [Sharing(f"study {n}", priority) for n, (priority, _) in enumerate(wants)]
    for _ in range(2):
        got = [
            study.slots(device, wanted, fitting)
            for study, (_, wanted) in zip(studies, wants, strict=True)
        ]
    return got


@pytest.mark.usefixtures("head")
@pytest.mark.parametrize(
    ("wants", "expected"),
    [
        ([(0, 100)], [8]),
        ([(0, 100), (1, 100)], [0, 8]),
        ([(0, 100), (1, 3)], [5, 3]),
        ([(0, 100), (0, 100)], [4, 4]),
        ([(0, 100), (0, 100), (0, 100)], [3, 3, 2]),
        ([(0, 100), (0, 1), (0, 100)], [4, 1, 3]),
        ([(-1, 100), (7, 2), (0, 100), (0, 100)], [0, 2, 3, 3]),
    ],
)
def test_higher_priorities_come_first_and_equals_share_evenly(
    wants: list[tuple[int, int]], expected: list[int]
) -> None:
    assert parts(*wants) == expected


@given(
    wants=st.lists(st.tuples(st.integers(0, 2), st.integers(1, 9)), min_size=1, max_size=6),
    fitting=st.integers(1, 9),
)
def test_no_slot_is_left_over_while_one_is_wanted_nor_given_twice(
    wants: list[tuple[int, int]], fitting: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        Head(patch)
        got = parts(*wants, fitting=fitting)
        assert sum(got) == min(fitting, sum(wanted for _, wanted in wants))


def test_studies_on_other_devices_and_drivers_that_are_silent_take_nothing(head: Head) -> None:
    first, second, third = Sharing("first", 0), Sharing("second", 9), Sharing("third", 9)
    assert second.slots("CPU", 8, 8) == 8
    assert third.slots("GPU", 8, 8) == 8
    assert first.slots("CPU", 8, 8) == 0
    assert first.rivals == ["second"]
    head.now += 20
    second.slots("CPU", 8, 8)
    head.now += 20
    assert first.slots("CPU", 8, 8) == 0
    head.now += 31
    assert first.slots("CPU", 8, 8) == 8
    assert first.rivals == []
