"""The command line: parse, call the library, turn errors into messages."""
