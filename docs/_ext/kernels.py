"""Kernels of pages: forks of one process that has imported what pages need, so that this is not
done for each page.

Sphinx starts the process (`serve`), and Jupyter, for each page, a client in place of a kernel
(`ask`): it hands its arguments, folder and environment over, and lives as long as the fork that
runs the kernel.
"""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path


def serve(address: str) -> None:
    """Fork for each client that connects, until the standard input ends; kernels that still run end
    then, too.
    """
    import select

    os.environ["JPY_PARENT_PID"] = str(os.getpid())  # kernels ask whether it lives
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(address)
    listener.listen()
    print("ready", flush=True)
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # nobody reads on
    while sys.stdin not in select.select([listener, sys.stdin], [], [])[0]:
        connection = listener.accept()[0]
        request = json.loads(connection.makefile().readline())
        import_packages(request["imports"])
        if os.fork() == 0:
            run(request)  # the connection stays open until the fork ends
        connection.close()
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def import_packages(names: list[str]) -> None:
    """Import packages, and the public names that they import when asked for them."""
    for name in names:
        module = __import__(name, fromlist=["__all__"])
        for public in getattr(module, "__all__", ()) if name.split(".")[0] == "bbl" else ():
            getattr(module, public)


def run(request: dict) -> None:
    """Run a module with arguments, as `python -m` does, and end the process."""
    import runpy

    os.setsid()
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    sys.argv[1:] = request["arguments"]
    status = 1
    try:
        runpy.run_module(request["module"], run_name="__main__", alter_sys=True)
        status = 0
    except SystemExit as end:
        status = int(end.code or 0)
    finally:
        sys.stdout.flush()
        os._exit(status)


def ask(address: str, imports: str, module: str, *arguments: str) -> None:
    """Have a module run in a fork, and wait for its end."""
    request = {
        "imports": imports.split(","),
        "module": module,
        "arguments": arguments,
        "folder": os.getcwd(),
        "environment": dict(os.environ),
    }
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Jupyter sends one before it asks a kernel to end
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(address)
        connection.sendall(json.dumps(request).encode() + b"\n")
        connection.recv(1)


def start(folder: str) -> tuple[subprocess.Popen, str]:
    """Start the process that forks; return it and its address, below a folder."""
    address = str(Path(folder) / "socket")
    server = subprocess.Popen(  # noqa: S603
        [sys.executable, __file__, "serve", address],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert server.stdout is not None and server.stdout.readline() == "ready\n"  # noqa: S101
    return server, address


IMPORTS = "bbl,bbl.networks,bbl.datasets,bbl.sklearn,matplotlib.pyplot,ipykernel.kernelapp"


def serve_pages(app) -> None:
    """Start the process, and let Jupyter find the client as its kernel `python3`."""
    if app.config.nb_execution_mode == "off":
        return
    folder = tempfile.TemporaryDirectory(prefix="bbl")
    server, address = start(folder.name)
    command = [sys.executable, "-S", "-E", __file__, "ask", address, IMPORTS, "ipykernel_launcher"]
    spec = {
        "argv": [*command, "-f", "{connection_file}"],
        "display_name": "Python 3",
        "language": "python",
    }
    kernel = Path(folder.name) / "kernels" / "python3"
    kernel.mkdir(parents=True)
    (kernel / "kernel.json").write_text(json.dumps(spec), encoding="utf-8")
    os.environ["JUPYTER_PATH"] = os.pathsep.join(
        filter(None, [folder.name, os.environ.get("JUPYTER_PATH")])
    )

    def end(*_: object) -> None:
        server.communicate()
        folder.cleanup()

    app.connect("build-finished", end)


def setup(app) -> dict:
    """Start the process before pages are read, where a process can fork."""
    if hasattr(os, "fork"):
        app.connect("builder-inited", serve_pages)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


if __name__ == "__main__":
    {"serve": serve, "ask": ask}[sys.argv[1]](*sys.argv[2:])
