"""How many heads, how deep, how wide does my transformer need? Sweeps with evidence.

A sweep file needs nothing but the names of ``hsweep.api``, all of which are found here, a task from
``tasks`` and a model from ``models``. A script that a study runs needs ``report`` alone. ``plan``,
``run``, ``load`` and ``studies`` do in Python what the commands do in a shell.
"""

from typing import TYPE_CHECKING, Any, Final

from hsweep.reporting import report as report

if TYPE_CHECKING:
    from hsweep.api import *  # noqa: F403
    from hsweep.python import load as load
    from hsweep.python import plan as plan
    from hsweep.python import run as run
    from hsweep.python import studies as studies

_COMMANDS: Final = ("load", "plan", "run", "studies")


# The other names are imported when they are asked for: a script has its own `models` and `tasks`,
# and should not wait for what it does not use.
def __getattr__(name: str) -> Any:
    if name.startswith("_") and name != "__all__":
        raise AttributeError(f"module 'hsweep' has no attribute {name!r}")
    from hsweep.workspace import pin_imports

    # Before anything else: the packages imported next must be this installation's, even in a
    # folder that has its own `models` or `tasks`.
    pin_imports()
    if name in _COMMANDS:
        import hsweep.python

        return getattr(hsweep.python, name)
    import hsweep.api

    if name == "__all__":
        names = [name for name in vars(hsweep.api) if not name.startswith("_")]
        return [*names, *_COMMANDS, "report"]
    return getattr(hsweep.api, name)
