def version() -> str:
    """The version of the engine, for example ``0.1.0``."""
