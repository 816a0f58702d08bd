"""How the wall time of a command is divided."""

import time

from hypothesis import given
from hypothesis import strategies as st

from hsweep.running.phases import PHASES, Phases

TIMES = st.floats(0, 1e6)


@given(TIMES, st.dictionaries(st.sampled_from(PHASES), TIMES))
def test_no_time_is_in_two_phases_and_none_is_lost_up_to_the_last_end(
    begun: float, ends: dict[str, float]
) -> None:
    phases = Phases(begun)
    for phase, at in ends.items():
        phases.end(phase, at)
    found = phases.seconds()
    assert [*found] == [phase for phase in PHASES if phase in ends]
    assert all(seconds >= 0 for seconds in found.values())
    # Each is rounded to a hundredth.
    total = max([begun, *ends.values()]) - begun
    assert abs(sum(found.values()) - total) <= 0.01 * max(1, len(found))


def test_phases_of_a_process_began_before_it_could_ask() -> None:
    assert Phases.of_process().begun <= time.time()


def test_a_phase_that_ended_before_the_one_before_it_took_no_time() -> None:
    phases = Phases(10.0)
    phases.end("planning", 12.0)
    phases.end("starting", 11.0)
    phases.end("training", 15.0)
    assert phases.seconds() == {"planning": 2.0, "starting": 0.0, "training": 3.0}
