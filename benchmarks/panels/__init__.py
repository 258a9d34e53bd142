"""What building, keeping and reading large panel files takes."""
