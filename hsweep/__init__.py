"""How many heads, how deep, how wide does my transformer need? Sweeps with evidence.

A sweep file needs nothing but the names of ``hsweep.api``, all of which are found here, a task from
``tasks`` and a model from ``models``. A script that a study runs needs ``report`` alone.
"""

from typing import TYPE_CHECKING, Any

from hsweep.reporting import report

if TYPE_CHECKING:
    from hsweep.api import *  # noqa: F403
    from hsweep.api import __all__ as _NAMES

    __all__ = [*_NAMES, "report"]


# The other names are imported when they are asked for: a script has its own `models` and `tasks`,
# and should not wait for what it does not use.
def __getattr__(name: str) -> Any:
    if name.startswith("_") and name != "__all__":
        raise AttributeError(f"module 'hsweep' has no attribute {name!r}")
    from hsweep.workspace import pin_imports

    # Before anything else: the packages imported next must be this installation's, even in a
    # folder that has its own `models` or `tasks`.
    pin_imports()
    import hsweep.api

    if name == "__all__":
        return [*hsweep.api.__all__, "report"]
    return getattr(hsweep.api, name)
