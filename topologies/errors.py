"""The errors that Fairbed raises on purpose, each with the exit status the command line ends with."""


class FairbedError(Exception):
    """Something Fairbed could not do: the message says what, and what would help.

    Attributes
    ----------
    exit_status : int
        Status the command line ends with, 1.
    """

    exit_status = 1


class UsageError(FairbedError):
    """Something asked for cannot be: a wrong name, value, unit or combination.

    Attributes
    ----------
    exit_status : int
        Status the command line ends with, 2.
    """

    exit_status = 2
