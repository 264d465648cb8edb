"""Command line: fit a model to a table, use a saved model, or run the example session of the
paper.
"""

from __future__ import annotations

import os
import sys
import warnings

from bbl.cli.messages import describe
from bbl.cli.options import option_names, parse
from bbl.cli.sessions import run
from bbl.errors import BBLError, ConvergenceWarning, DataWarning

INTERRUPTED = 130  # exit status after Ctrl-C: 128 + the number of SIGINT, as in shells
PIPE_CLOSED = 141  # exit status if standard output was closed: 128 + the number of SIGPIPE


def main(argv: list[str] | None = None) -> int:
    """Run the command line and return its exit status.

    If an error occurs, print one message to standard error and return 1.
    """
    args = parse(sys.argv[1:] if argv is None else argv)
    options = option_names()  # maps arguments to options: "lambda_" to "--lambda"
    # files on the command line, by the name that messages use for the argument
    files = {
        name: getattr(args, name)
        for name in ("data", "newdata")
        if getattr(args, name, None) is not None
    }

    def print_message(severity: str, message: object) -> None:
        """Print an error or warning to standard error; `severity` is "error" or "warning"."""
        text = (
            describe(message, options, files)
            if isinstance(message, BBLError | DataWarning | ConvergenceWarning)
            else str(message)
        )
        print(f"{severity}: {text}", file=sys.stderr)

    with warnings.catch_warnings():
        # called by Python for each warning
        warnings.showwarning = lambda message, *_, **__: print_message("warning", message)  # type: ignore[assignment]
        try:
            run(args)
            sys.stdout.flush()
        except BrokenPipeError:  # the reader of the pipe, such as head, has closed it
            # otherwise, Python would flush standard output again at exit and fail
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return PIPE_CLOSED
        except BBLError as error:
            print_message("error", error)
            return 1
        except OSError as error:
            print_message(
                "error",
                error if error.filename is None else f"{str(error.filename)!r}: {error.strerror}.",
            )
            return 1
        except (ImportError, MemoryError) as error:
            print_message("error", str(error) or "out of memory.")
            return 1
        except KeyboardInterrupt:
            print_message("error", "interrupted")
            return INTERRUPTED
    return 0


if __name__ == "__main__":
    sys.exit(main())
