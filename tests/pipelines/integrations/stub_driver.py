"""A driver without Spark: it listens, counts batches, and has `sleep`s for executors.

What it is to do wrong stands in the conf of its plan: throw, query failed, refuse, die (killed before its
first batch), silent (no channel), stuck (scale does not work), finish, idle (no batch).
"""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

from models.errors import NotReady
from profiling_jobs.driver.channel import ControlServer
from profiling_jobs.driver.launch_file import SOCKET, Ended, LaunchFile, Listening
from profiling_jobs.driver.progress import ProgressFile


def main():
    orders = LaunchFile.read(Path(sys.argv[1]))
    plan, number = orders.plan, orders.incarnation
    wrong = orders.conf.get(f"stub.{number}", orders.conf.get("stub", ""))
    executors = []
    batches = 0

    def fill(count):
        while len(executors) > count:
            gone = executors.pop()
            os.killpg(gone.pid, signal.SIGKILL)
            gone.wait()
        while len(executors) < count:
            script = "sleep 300 & echo; wait"
            words = ["sh", "-c", script, "x", str(len(executors)), f"app-1-{number:04d}"]
            environment = {**os.environ, "HEADROOM_ROLE": f"executor.{plan.name}"}
            started = subprocess.Popen(words, env=environment, start_new_session=True, stdout=subprocess.PIPE)
            with started.stdout:  # what it writes shows that its environment can be read, and has a child
                started.stdout.readline()
            executors.append(started)

    def end(how, reason):
        Ended(number, how, reason, batches).write(orders.folder)
        time.sleep(0.1)
        os._exit(0 if how == "stopped" else 1)

    def status(request):
        query = {"id": "q", "run_id": f"run-{number}", "name": plan.name}
        ids = [str(index) for index, _ in enumerate(executors)]
        return {"state": "running", "executors": ids, "queries": [query], "unsettled": "", "batches": batches}

    def scale(request):
        if wrong == "stuck":
            raise NotReady("1 of 2 executors registered within 0 s")
        if wrong == "dies scaling":
            os.kill(os.getpid(), signal.SIGKILL)
        fill(int(request["scale_out"]))
        return {}

    def stop(request):
        threading.Thread(target=end, args=("stopped", "between batches")).start()
        return {"stopped": "between batches"}

    if wrong == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    if wrong == "throw":
        end("threw", "job.stub.build: the job failed before its first batch was finished: ValueError: boom")
    if wrong == "query failed":
        end("query failed", "job.stub.build: the job failed before its first batch was finished: cancelled")
    if wrong == "refuse":
        end("refused", "job.stub.inputs.events: there is no topic 'nowhere'")
    if wrong == "not ready":
        end("not ready", "brokers.bootstrap: h:1 does not answer")
    if wrong != "silent":
        calls = {"status": status, "scale": scale, "stop_between_batches": stop}
        token = (orders.folder / "token").read_text()
        ControlServer(calls, token=token, address=orders.folder / SOCKET).start()
        fill(plan.scale_out)
        Listening(number).write(orders.folder)
    events = ProgressFile(orders.folder / "progress.jsonl", incarnation=number)
    while True:
        time.sleep(0.1)
        if wrong == "idle":
            continue
        batches += 1
        events.write("progress", progress={"durationMs": {"addBatch": 1}})
        if wrong == "finish":
            end("finished", "the program came to its end")
        if wrong == "throw later" and batches == 3:
            end("threw", "job.stub.build: the job failed after 3 batches: OSError: broker away")


main()
