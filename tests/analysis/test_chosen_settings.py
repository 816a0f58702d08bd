"""Settings given as texts."""

import pytest

from analysis.questions.lean.result import LeanSettings
from analysis.questions.pareto.result import ParetoSettings
from analysis.questions.settings import with_settings
from analysis.questions.transition.result import TransitionSettings
from hsweep.errors import UserError


def test_texts_become_settings() -> None:
    texts = ["alpha=0.01", "max_growth = 0.2", "B=50"]
    assert with_settings(TransitionSettings(), texts) == TransitionSettings(
        alpha=0.01, max_growth=0.2, B=50
    )
    assert with_settings(ParetoSettings(), ["draws=4"]) == ParetoSettings(draws=4)
    assert with_settings(LeanSettings(), []) == LeanSettings()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("delta_t=0.1", "unknown setting 'delta_t'; known: .*max_growth"),
        ("alpha", "a setting is NAME=VALUE, not 'alpha'; names: alpha, max_growth"),
        ("alpha=1.5", "setting alpha must lie between 0 and 1"),
        ("alpha=high", "setting alpha is a number, not 'high'"),
        ("B=2.5", "setting B is a whole number, not '2.5'"),
        ("B=0", "setting B must be at least 1"),
        ("rho=0.5", "unknown setting 'rho'"),
        ("rng_seed=-1", "setting rng_seed must be at least 0"),
        ("min_drop=nan", "setting min_drop must be a number from 0"),
        ("max_growth=inf", "setting max_growth must be a number from 0"),
        ("assumed_sd=0", "setting assumed_sd must be above 0"),
    ],
)
def test_what_is_no_setting_is_refused(text: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        with_settings(TransitionSettings(), [text])
