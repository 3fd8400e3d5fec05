"""Fetch, start, freeze and end a real Kafka broker: one node, on ports of this machine, gone with its test.

In: Maven's repository, through the Ivy that Spark brings along, once a machine. Out: `Broker`. What is
fetched is pinned by version and checksum, and is only what such a broker needs.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path

VERSION = "4.3.1"
CACHE = Path.home() / ".cache" / "mirrorlib-tests"
# Organisation, artifact, version, SHA-256 of the jar.
JARS = """
at.yawk.lz4 lz4-java 1.10.2 252dabd586d22149a31661a8afc1a50747714eb1a298bd4a6e780c8c91a13866
com.fasterxml.jackson.core jackson-annotations 2.21 53ca085f4a150f703f49e1aabd935bd03b43e1ea3d55d135438292af22cef56b
com.fasterxml.jackson.core jackson-core 2.21.2 12e8655b100267b44d0f14d01b1f5082a5105e616174dc4307be1a761e92407b
com.fasterxml.jackson.core jackson-databind 2.21.2 8c982f01f148d805f0aaac2339011244757e0df7c6ff8951f2fa3f433b8ed849
com.fasterxml.jackson.dataformat jackson-dataformat-yaml 2.21.2 d25551812fa0c14f37cabaa9401e63eadcea42ce36311183af5622d5bc8a1bc7
com.google.re2j re2j 1.8 7b52c72156dd7f98b3237a5b35c1d34fba381b21048c89208913ad80a45dfbd7
com.typesafe.scala-logging scala-logging_2.13 3.9.6 0ad0c3f4d89d538b3b6c300158555e266aa69cf1b5f6522aba8b5bad238eb994
com.yammer.metrics metrics-core 2.2.0 6b7a14a6f34c10f8683f7b5e2f39df0f07b58c7dff0e468ebbc713905c46979c
commons-validator commons-validator 1.10.1 ed74711a78d793ca37f6075e4a1e93d107233dfd20d0bb17e32bad88d38e56aa
net.sf.jopt-simple jopt-simple 5.0.4 df26cc58f235f477db07f753ba5a3ab243ebe5789d9f89ecf68dd62ea9a66c28
net.sourceforge.argparse4j argparse4j 0.7.0 65ceb669d88f63306c680f8088bbf765bbca72d288a61a03703000076c3d3f56
org.apache.kafka kafka-clients 4.3.1 52501b7b47510c66f898871adaf6d2968ab7246561d44ced43643a8a587f0b36
org.apache.kafka kafka-coordinator-common 4.3.1 66a86b8c89718216ffa72fe4e44b9d1bdf3472e4cb9200c36a0742a25febbdba
org.apache.kafka kafka-group-coordinator 4.3.1 4ab56d002e1624185c874199e9e0ffb243dbeb9f68b4d0cadf48ce2f617a1126
org.apache.kafka kafka-group-coordinator-api 4.3.1 d81bc1a3739ff6c9b21815baae00022306342a16d3d94e6a2621201b9980a30d
org.apache.kafka kafka-metadata 4.3.1 4d73a96c6474a4ebdd67a1cee14da1a94cfd6bb9e6e252685ba5667d8ab7f898
org.apache.kafka kafka-raft 4.3.1 46abbf89806dd22d848e997cdfb1431524cab4ec88e38a7d2806e20b24a70609
org.apache.kafka kafka-server 4.3.1 01d736599ec3b0cdbb0480c15219170b28cdae189785e7f0c6f1f26e528eaebc
org.apache.kafka kafka-server-common 4.3.1 d7c719f749579a399011f0df7414de8a78f10f074a6122caa550fdb141351575
org.apache.kafka kafka-share-coordinator 4.3.1 8ceeed7346127e652ea5c650b217890aaff14919f967d27fadce420745bd3066
org.apache.kafka kafka-storage 4.3.1 97e3facddd2914a58f28ec91ef35f8da69963eab3651196e97f487924f6dac98
org.apache.kafka kafka-transaction-coordinator 4.3.1 c64aaa2a88d8fd382c4800204872917686e542043c7916c9e8797d939d8eb313
org.apache.kafka kafka_2.13 4.3.1 b098abef5ff878e76f60cd6c559b9baa5663ccb1b55f2837558b22c329d32423
org.apache.logging.log4j log4j-api 2.25.4 c4b642a7f047275215de117e0e3847eb2c7711d84a0aa7433e7b3c096daf341d
org.apache.logging.log4j log4j-core 2.25.4 10fee2c0485d54fa44ee75d314f6295508f7b932281873db61a91b88073200e6
org.hdrhistogram HdrHistogram 2.2.2 22d1d4316c4ec13a68b559e98c8256d69071593731da96136640f864fa14fad8
org.pcollections pcollections 4.0.2 2bbeef5797a241300c4f7513cd546239629ed7deda4fc0c31df90bb95f5f13ef
org.scala-lang scala-library 2.13.18 4e85d96ff7bc7dc627985523c3541b9917aaa08e956391380c42db21a2c4e5a0
org.slf4j slf4j-api 1.7.36 d3ef575e3e4979678dc01bf1dcce51021493b4d11fb7f1be8ad982877c16a1c0
"""
USER, PASSWORD = "app", "p;ss&w=rd %41"  # what a URL has to carry
STRANGER = "eve"  # who may log in, and nothing else
_SETTINGS = """
<ivysettings>
  <settings defaultResolver="central"/>
  <caches defaultCacheDir="{cache}"/>
  <resolvers><ibiblio name="central" m2compatible="true" usepoms="false"/></resolvers>
</ivysettings>
"""
_PATIENCE = 60.0  # seconds until a broker that does not answer is given up
_JAVA = ("java", "-Xmx320m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData")
# Java takes the shell's place; its group ends when the pipe to the parent does, however the parent has ended.
_TIED = 'exec 3<&0; (cat <&3 >/dev/null; kill -KILL 0) & exec "$@" 3<&- </dev/null'
_CLUSTER = "MkU3OEVBNTcwNTJENDM2Qg"
_PROPERTIES = """
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAIN://127.0.0.1:{port},GUARDED://127.0.0.1:{guarded},CONTROLLER://127.0.0.1:{controller}
listener.security.protocol.map=PLAIN:PLAINTEXT,GUARDED:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT
controller.listener.names=CONTROLLER
inter.broker.listener.name=PLAIN
listener.name.guarded.sasl.enabled.mechanisms=PLAIN
listener.name.guarded.plain.sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required \\
  user_{user}="{password}" user_{stranger}="{password}";
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
super.users=User:ANONYMOUS;User:{user}
log.dirs={data}
num.partitions=3
offsets.topic.num.partitions=1
offsets.topic.replication.factor=1
transaction.state.log.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.abort.timed.out.transaction.cleanup.interval.ms=500
"""


class NotFetchedError(Exception):
    """The broker's jars are not on this machine, and cannot be brought here."""


def fetch_jars() -> Path:
    """Return the folder that holds the broker's jars; fetch them when they are not there."""
    place = CACHE / f"kafka-{VERSION}"
    if place.is_dir():
        return place
    CACHE.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(dir=CACHE, prefix="fetching-"))
    try:
        _retrieve(work)
        _check(work / "jars")
        try:
            (work / "jars").rename(place)
        except OSError:  # another worker was faster
            if not place.is_dir():
                raise
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return place


def _retrieve(work: Path) -> None:
    ivy = [*_spark_jars().glob("ivy-*.jar")]
    if not ivy or not shutil.which("java"):
        msg = "Spark's Ivy or Java is missing"
        raise NotFetchedError(msg)
    wanted = "".join(
        f'<dependency org="{group}" name="{name}" rev="{version}" transitive="false"/>'
        for group, name, version, _ in map(str.split, JARS.strip().splitlines())
    )
    module = '<info organisation="tests" module="broker"/>'
    (work / "settings.xml").write_text(_SETTINGS.format(cache=work / "cache"))
    (work / "ivy.xml").write_text(
        f'<ivy-module version="2.0">{module}<dependencies>{wanted}</dependencies></ivy-module>'
    )
    pattern = f"{work}/jars/[artifact]-[revision].[ext]"
    files = ["-settings", str(work / "settings.xml"), "-ivy", str(work / "ivy.xml")]
    command = ["java", "-jar", str(ivy[0]), *files, "-retrieve", pattern, "-warn"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    if done.returncode:
        raise NotFetchedError((done.stdout + done.stderr)[-500:])


def _check(folder: Path) -> None:
    """See that each jar is the one that was pinned."""
    for _, name, version, digest in map(str.split, JARS.strip().splitlines()):
        file = folder / f"{name}-{version}.jar"
        found = hashlib.sha256(file.read_bytes()).hexdigest() if file.exists() else "nothing"
        if found != digest:
            msg = f"{file.name} is not the one that is pinned: {found}"
            raise NotFetchedError(msg)


def _spark_jars() -> Path:
    found = find_spec("pyspark")
    places = (found.submodule_search_locations if found else None) or [""]
    return Path(places[0]) / "jars"


class Broker:
    """A broker that runs.

    Attributes:
        address: HOST:PORT, where everybody may do everything.
        guarded: HOST:PORT, where one has to log in.

    """

    def __init__(self, folder: Path) -> None:
        """Start it, with its data in an empty folder; it answers once `wait` has returned."""
        jars = fetch_jars()
        port, guarded, controller = _free_ports(3)
        self.address, self.guarded = f"127.0.0.1:{port}", f"127.0.0.1:{guarded}"
        properties = folder / "server.properties"
        properties.write_text(
            _PROPERTIES.format(
                port=port,
                guarded=guarded,
                controller=controller,
                data=folder / "data",
                user=USER,
                password=PASSWORD,
                stranger=STRANGER,
            )
        )
        java = [*_JAVA, "-cp", f"{jars}/*"]
        self._log = folder / "broker.log"
        with self._log.open("wb") as log:
            subprocess.run(
                [*java, "kafka.tools.StorageTool", "format", "-t", _CLUSTER, "-c", str(properties)],
                stdout=log,
                stderr=log,
                check=True,
            )
            self._process = subprocess.Popen(
                ["/bin/sh", "-c", _TIED, "sh", *java, "kafka.Kafka", str(properties)],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                process_group=0,
            )

    def wait(self) -> None:
        """Wait until it answers."""
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import AdminClient

        end = time.monotonic() + _PATIENCE
        while True:
            client = AdminClient({"bootstrap.servers": self.address, "log_level": 0})
            try:
                client.list_topics(timeout=1)
            except KafkaException:
                if self._process.poll() is not None or time.monotonic() > end:
                    raise AssertionError(self._log.read_text()[-3000:]) from None
            else:
                return

    def freeze(self) -> None:
        """Let it fall silent, as behind a broken line: connections stay, no answer comes."""
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it go on."""
        self._process.send_signal(signal.SIGCONT)

    def stop(self) -> None:
        """End it."""
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.communicate()


def _free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [server.getsockname()[1] for server in sockets]
    for server in sockets:
        server.close()
    return ports


if __name__ == "__main__":
    sys.stdout.write(f"{fetch_jars()}\n")
