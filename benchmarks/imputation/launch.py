"""Run one command and report its status, wall time, processor time and peak memory; used by `measure.py`.

usage: python -S -E launch.py REPORT LOG LIMIT_SECONDS COMMAND...

On Linux, the peak memory of a new process starts at that of the process that started it, and the benchmark
itself holds whole data sets. Commands are therefore started by this small process, which imports little.
"""

import os
import signal
import sys
import time

KILLED_BY_LIMIT = "over the time limit"


def main() -> None:
    report, log, limit, *command = sys.argv[1:]
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # an installed program's modules are compiled
    start = time.perf_counter()
    process = os.fork()
    if process == 0:
        os.setsid()  # a group of its own, so that a pipeline is stopped as a whole
        output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        os.dup2(output, 1)
        os.dup2(output, 2)
        try:
            os.execvp(command[0], command)
        except OSError as error:
            os.write(2, f"{command[0]}: {error}\n".encode())
            os._exit(127)

    over_limit = False

    def stop(*_: object) -> None:
        nonlocal over_limit
        over_limit = True
        os.killpg(process, signal.SIGKILL)

    signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, float(limit))
    try:
        _, status, usage = os.wait4(process, 0)
    except BaseException:  # interrupted: nothing may go on running
        os.killpg(process, signal.SIGKILL)
        raise
    seconds = time.perf_counter() - start
    outcome = KILLED_BY_LIMIT if over_limit else f"status {status}" if status else "ok"
    with open(report, "w") as file:
        # of a pipeline, the peak is that of its largest process
        cpu_seconds = usage.ru_utime + usage.ru_stime
        file.write(f"{outcome}\t{seconds}\t{usage.ru_maxrss / 1024}\t{cpu_seconds}")


if __name__ == "__main__":
    main()
