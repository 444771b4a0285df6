"""A real Kafka broker of our own on this machine, without a container engine or an installation.

One node in KRaft mode, started from the locked jars on free loopback ports, data under `.headroom/kafka`.
What it has acknowledged survives a SIGKILL of the process: it lies in the log files, and the kernel still
has them. A restart keeps the ports, so clients reconnect by themselves. The broker holds a lock on its
folder for as long as it lives, so no second one starts there.
"""

from __future__ import annotations

import base64
import fcntl
import hashlib
import os
import re
import secrets
import shutil
import signal
import time
import uuid
from pathlib import Path

from models.errors import NotReady, Unsafe
from profiling_jobs import secret_file
from profiling_jobs.brokers import MODULES, OUR_USER, Brokers, jaas
from profiling_jobs.driver.launch_file import write_text

from ..processes.owner import Owner
from ..processes.processes import Process
from . import jars, java, ports

ATTEMPTS = 5  # judgement: twice in a row another program is quicker on a random port
READY_S = 120.0  # judgement: 4 s on an idle machine, 20 s seen on a loaded one
STOP_S = 30.0  # judgement: a clean stop takes 1–2 s
STARTED = "Kafka Server started"
TAKEN = ("Address already in use", "BindException")

# Everything that is sized for a fleet by default, sized for one node and one or two clients.
SETTINGS = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=CLIENTS://{host}:{broker},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=CLIENTS://{host}:{broker}
inter.broker.listener.name=CLIENTS
controller.listener.names=CONTROLLER
log.dirs={data}
# One node: no second replica to wait for.
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
offsets.topic.num.partitions=4
transaction.state.log.num.partitions=4
share.coordinator.state.topic.num.partitions=4
num.network.threads=2
num.io.threads=4
background.threads=2
log.cleaner.dedupe.buffer.size=16777216
group.initial.rebalance.delay.ms=0
# An unknown topic is a mistake in the settings.
auto.create.topics.enable=false
# After a SIGKILL the controller waits for the old session's end; yet a starved broker must not lose its own.
broker.heartbeat.interval.ms=500
broker.session.timeout.ms=4000
# A disk is finite: old records and deleted topics leave soon.
log.retention.hours=24
log.segment.bytes=268435456
log.retention.check.interval.ms=60000
file.delete.delay.ms=1000
"""

SECURITY = """\
listener.security.protocol.map=CLIENTS:SASL_PLAINTEXT,CONTROLLER:SASL_PLAINTEXT
sasl.enabled.mechanisms={mechanism},PLAIN
sasl.mechanism.inter.broker.protocol=PLAIN
sasl.mechanism.controller.protocol=PLAIN
listener.name.controller.sasl.enabled.mechanisms=PLAIN
listener.name.clients.{scram}.sasl.jaas.config={module} required;
listener.name.clients.plain.sasl.jaas.config={plain}
listener.name.controller.plain.sasl.jaas.config={plain}
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
super.users=User:{user};User:{node}
allow.everyone.if.no.acl.found=false
"""
SECURED = "authorizer.class.name="
MECHANISM = "SCRAM-SHA-512"
NODE = "broker"
"""The user as whom the broker itself logs in."""
NODE_PASSWORD = re.compile(rf'user_{NODE}="(\w+)"')
ITERATIONS = 4096  # the fewest that Kafka takes; the password is random, and not to be guessed

# Measured on two cores: half the processor time to start (2.8 s instead of 5.4 s), and no more per record
# than with the optimising compiler and its threads (3–4 s instead of 4–8 s for two million of 100 bytes).
LIGHT = (
    "-XX:TieredStopAtLevel=1",
    "-XX:+UseSerialGC",
    "-XX:+ExitOnOutOfMemoryError",
    "-Djava.awt.headless=true",
)

LOGGING = """\
status=error
appender.out.type=Console
appender.out.name=out
appender.out.layout.type=PatternLayout
appender.out.layout.pattern=%d{ISO8601} %p %c{1}: %m%n
logger.started.name=kafka.server.KafkaRaftServer
logger.started.level=info
# A warning for each connection without the password would fill the disk.
logger.selector.name=org.apache.kafka.common.network.Selector
logger.selector.level=error
rootLogger.level=warn
rootLogger.appenderRef.out.ref=out
"""


class EmbeddedBroker:
    """One Kafka broker of ours, one per folder."""

    def __init__(self, owner: Owner, *, name: str = "kafka", host: str = ports.HOST) -> None:
        self._owner = owner
        self._host = host
        self._role = name
        self.folder = owner.folder / name

    @property
    def process(self) -> Process | None:
        """The broker, if it runs; also one that an earlier owner of the folder has started."""
        return next(iter(self._owner.running(self._role)), None)

    @property
    def brokers(self) -> Brokers:
        """Its address, also while it is down: a restart keeps it."""
        return Brokers(
            self._address,
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism=MECHANISM,
            password_file=str(self.folder / "password"),
        )

    @property
    def _address(self) -> str:
        kept = ports.kept(self.folder)
        if kept is None:
            raise NotReady("the embedded broker was never started")
        return f"{self._host}:{kept[0]}"

    @property
    def log(self) -> Path:
        """Log file of the broker."""
        return self._owner.log(self._role)

    def ensure(self, *, keep_ports: bool = False) -> Brokers:
        """A running broker: the one that is there, or a new one, as `start` starts it."""
        process = self.process
        if process is not None and SECURED not in (self.folder / "server.properties").read_text():
            self.stop()  # an earlier version has started it, open to every user of the machine
            return self.start(keep_ports=True)
        if process is None:
            return self.start(keep_ports=keep_ports)
        if process.frozen:
            process.signal(signal.SIGCONT)
        self._wait(process, since=None)
        return self.brokers

    def start(self, *, keep_ports: bool = False) -> Brokers:
        """Start it, and return once it answers. Refused where one runs already.

        It gets the ports it had; when another program has taken them, others, unless `keep_ports`.
        """
        self.folder.mkdir(mode=0o700, exist_ok=True)
        lock = self._lock()
        try:
            temporary = self._new_temporary()
            runtime = java.find()
            found = jars.fetch("broker", marks=self._owner.marks(f"{self._role}-jars"))
            for attempt in range(ATTEMPTS):
                chosen = self._choose_ports(keep=keep_ports, fresh=attempt > 0)
                self._configure(chosen)
                command: list[str | Path] = [
                    runtime.command,
                    *("-Xmx512m", *LIGHT, f"-Djava.io.tmpdir={temporary}"),
                    f"-Dlog4j2.configurationFile={self.folder / 'log4j2.properties'}",
                    *("-cp", os.pathsep.join(map(str, found))),
                ]
                self._format(command)
                since = self._owner.log_size(self._role)
                process = self._owner.start(
                    self._role, [*command, "kafka.Kafka", self.folder / "server.properties"], keep_open=[lock]
                )
                try:
                    self._wait(process, since=since)
                except NotReady:
                    said = self._owner.written(self._role, since=since)
                    taken = any(word in said for word in TAKEN)
                    self._owner.stop(process)
                    if keep_ports or not taken:
                        raise
                    continue
                except BaseException:
                    self._owner.stop(process)
                    raise
                return self.brokers
            raise NotReady(f"in {ATTEMPTS} attempts another program took the broker's ports: try again")
        finally:
            os.close(lock)  # the broker has its own

    def stop(self, *, kill: bool = False) -> None:
        """Stop it in order, or with `kill` as a crash would. Stopping what does not run is not an error."""
        process = self.process
        if process is not None:
            self._owner.stop(process, grace_s=STOP_S, kill=kill)

    def _lock(self) -> int:
        """A lock that the broker inherits: it is held until the last of us has gone."""
        lock = os.open(self.folder / "broker.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            process = self.process
            who = f"process {process.pid}" if process else "a process that we have not recorded"
            raise Unsafe(f"a broker already runs on {self.folder} ({who}): stop it first") from None
        return lock

    def _new_temporary(self) -> Path:
        """Java's folder for temporary files: what unpacks batches is unpacked there, and left by a kill."""
        temporary = self.folder / "tmp"
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir(mode=0o700)
        return temporary

    def _choose_ports(self, *, keep: bool, fresh: bool) -> tuple[int, int]:
        kept = ports.kept(self.folder)
        if kept and not fresh and ports.wait_until_free(kept, timeout_s=10.0 if keep else 2.0):
            return kept
        if kept and keep:
            raise NotReady(
                f"another program listens on the broker's ports {kept[0]} and {kept[1]}: try again"
            )
        broker, controller = ports.free_ports(2)
        return broker, controller

    def _configure(self, chosen: tuple[int, int]) -> None:
        broker, controller = chosen
        text = SETTINGS.format(
            host=self._host, broker=broker, controller=controller, data=self.folder / "data"
        )
        write_text(self.folder / "server.properties", text + self._security())
        (self.folder / "log4j2.properties").write_text(LOGGING)
        ports.keep(self.folder, chosen)

    def _security(self) -> str:
        """The settings that keep others out; beside them a file for clients of the user's own."""
        login = jaas(MECHANISM, OUR_USER, secret_file.kept(self.folder / "password"))
        client = {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": MECHANISM,
            "sasl.jaas.config": login,
        }
        write_text(self.folder / "client.properties", "".join(f"{k}={v}\n" for k, v in client.items()))
        node = secrets.token_hex(32)
        return SECURITY.format(
            mechanism=MECHANISM,
            scram=MECHANISM.lower(),
            module=MODULES[MECHANISM],
            plain=jaas("PLAIN", NODE, node)[:-1] + f' user_{NODE}="{node}";',
            user=OUR_USER,
            node=NODE,
        )

    def _admit(self) -> bool:
        """Check that the broker knows our password, and set it at the first start."""
        from kafka import KafkaAdminClient
        from kafka.admin import ScramMechanism, UserScramCredentialUpsertion
        from kafka.errors import KafkaError

        password = secret_file.kept(self.folder / "password")
        known = self.folder / "data" / "knows.sha256"  # gone with the data
        digest = hashlib.sha256(password.encode()).hexdigest()
        if known.exists() and known.read_text() == digest:
            return True
        found = NODE_PASSWORD.search((self.folder / "server.properties").read_text())
        if found is None:  # it asks for none
            return True
        node = {
            **self.brokers.client(),
            "sasl_mechanism": "PLAIN",
            "sasl_plain_username": NODE,
            "sasl_plain_password": found[1],
        }
        verifier = UserScramCredentialUpsertion(
            OUR_USER, ScramMechanism.SCRAM_SHA_512, password, iterations=ITERATIONS
        )
        try:
            admin = KafkaAdminClient(**node, bootstrap_timeout_ms=2000, request_timeout_ms=5000)
            try:
                refused = admin.alter_user_scram_credentials([verifier])[OUR_USER]
            finally:
                admin.close()
        except (KafkaError, OSError, RuntimeError):
            return False
        if refused:
            raise NotReady(f"the broker took no password: {refused}")
        write_text(known, digest)
        return True

    def _format(self, command: list[str | Path]) -> None:
        if (self.folder / "data" / "meta.properties").exists():
            return
        cluster = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        role = f"{self._role}-format"
        since = self._owner.log_size(role)
        process = self._owner.start(
            role,
            [
                *command,
                *("kafka.tools.StorageTool", "format", "--ignore-formatted"),
                f"--cluster-id={cluster}",  # one in 64 begins with a dash, and would pass for an option
                *("-c", self.folder / "server.properties"),
            ],
        )
        process.wait(READY_S)
        code = self._owner.exit_code(process)
        self._owner.stop(process)
        if code != 0:
            raise NotReady(f"the broker's folder could not be formatted: {self._said(role, since)}")

    def _wait(self, process: Process, *, since: int | None) -> None:
        """Wait until it serves. It is asked only after it said that it started: the port may be another's."""
        until = time.monotonic() + READY_S
        started = since is None
        while time.monotonic() < until:
            if not process.alive:
                raise NotReady(f"the broker ended while starting: {self._said(self._role, since or 0)}")
            started = started or STARTED in self._owner.written(self._role, since=since or 0)
            if started and self._admit() and self._serves():
                return
            time.sleep(0.05)
        raise NotReady(f"the broker did not answer within {READY_S:.0f} s: see {self._owner.log(self._role)}")

    def _serves(self) -> bool:
        """Whether it answers, and every partition has its leader back."""
        from kafka import KafkaAdminClient
        from kafka.errors import KafkaError

        try:
            admin = KafkaAdminClient(
                **self.brokers.client(), bootstrap_timeout_ms=2000, request_timeout_ms=5000
            )
        except (KafkaError, OSError, RuntimeError):
            return False
        try:
            topics = admin.describe_topics()
            return all(part["leader_id"] >= 0 for topic in topics for part in topic["partitions"])
        except (KafkaError, OSError, RuntimeError):
            return False
        finally:
            admin.close()

    def _said(self, role: str, since: int) -> str:
        return self._owner.written(role, since=since)[-600:] or "it said nothing"
