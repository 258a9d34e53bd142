"""Time, memory and disk space to build and read large panel files."""
