"""The commands of the command line, and how they print."""

from hsweep.workspace import pin_imports

# The commands import this project's packages, and `python -m hsweep` may be called in a folder that
# has others of these names.
pin_imports()
