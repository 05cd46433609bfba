"""One command a file; each has ``configure(parser)`` and ``run(arguments) -> ExitCode``."""
