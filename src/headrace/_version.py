"""The version, alone so that the build backend can read it without importing the package."""

__version__ = "0.1.0"
