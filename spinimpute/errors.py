"""The one exception that stands for a user's mistake."""


class InputError(Exception):
    """Bad input: the message says what was found, where, and what to do.

    The command line prints the message alone and exits with 2; nothing else of the library is caught there.
    """
