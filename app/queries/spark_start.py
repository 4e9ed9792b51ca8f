"""Starting Apache Spark, and what it says when it cannot: in a sentence, without Java's log.

Java writes its log to the error output of whoever starts it, a hundred lines for a wrong master. It
goes into a file without a name here, from which the reason is read. With ``STEPTAX_DEBUG`` in the
environment it is on the screen.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import re
import shutil
import socket
import sys
import tempfile
import warnings
from collections.abc import Iterator, Mapping
from functools import cache
from typing import IO, TYPE_CHECKING

from steptax.app.errors import IntegrityError, UserError, install_hint

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Said once at the start, where the installation's own configuration says nothing else.
QUIET = {"spark.ui.showConsoleProgress": "false", "spark.ui.enabled": "false"}
#: Whether a master answers is found out before Java, which takes a minute for it.
_ANSWER_S = 10.0
_LOG_HINT = "STEPTAX_DEBUG=1 shows the log of Spark"

#: A line that names an error of Java or Python, and what it says.
_ERROR = re.compile(
    r"^(?:.*? )?(?P<kind>(?:\w+\.)*\w*(?:Exception|Error)): (?P<said>.+)$", re.MULTILINE
)
_CAUSE = re.compile(r"^Caused by: (.*)$", re.MULTILINE)
#: The last line of what Python prints of an error on an executor.
_PYTHON = re.compile(r"\bTraceback \(.*?\n(\w[\w.]*: .+?)$", re.MULTILINE | re.DOTALL)
_KILLED = re.compile(r"has been killed\. Reason: (.*)$", re.MULTILINE)
_NO_FILES = re.compile(
    r'No FileSystem for scheme "?(?P<scheme>\w+)|[Cc]lass (?P<java>[\w.$]*FileSystem) not found'
)

#: What Java, and Spark as it plans and as it runs, say of a file that is not there.
_GONE = re.compile(r"FileNotFoundException|FILE_NOT_EXIST|PATH_NOT_FOUND")


def spark_session(master: str | None = None, settings: Mapping[str, str] = QUIET) -> SparkSession:
    """The session of this process, started on ``master`` (none: as Spark is configured).

    UserError says what is missing where Spark cannot start.
    """
    # It warns of pandas 3 now and again; rows go through Arrow, not through pandas.
    warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas", FutureWarning)
    try:
        from py4j.protocol import Py4JError
        from pyspark.errors import PySparkException
        from pyspark.sql import SparkSession
    except ImportError:
        raise UserError(
            "PySpark is not installed", where="--engine spark", hint=install_hint("spark")
        ) from None
    _seek(master)
    if (master or "local").startswith("local"):
        # Workers of this machine are this very Python, with what is installed beside it.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    given = {"spark.app.name": "steptax", **({"spark.master": master} if master else {})} | {
        **settings
    }
    builder = SparkSession.builder
    for name, value in given.items():
        builder = builder.config(name, value)
    begin = _log_bytes()
    try:
        _start_java(given)
        session = builder.getOrCreate()
        session.sparkContext.setLogLevel("ERROR")
    except (PySparkException, Py4JError) as error:
        is_java = _has_java()
        raise UserError(
            "Spark cannot start: "
            + (_reason(str(error), _log_from(begin)) if is_java else "no Java was found"),
            where=master or "--engine spark",
            hint=f"is that master there? --master spark://host:7077, yarn, local[4]; {_LOG_HINT}"
            if is_java
            else "install Java 17 or newer (JAVA_HOME)",
        ) from error
    # Java that outlives this process looks for it in vain, and says so at length.
    atexit.register(session.stop)
    return session


@contextlib.contextmanager
def said_by_spark(where: str, hadoop: str) -> Iterator[None]:
    """Raise what Spark says while it works as an error for people, without Java's stack.

    ``hadoop`` is the version of the Hadoop inside it. UserError where it has no file system for
    ``where``, IntegrityError for whatever else fails there.
    """
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    try:
        yield
    except (PySparkException, Py4JError) as error:
        if found := _NO_FILES.search(str(error)):
            raise _no_files(where, found["scheme"] or found["java"], hadoop) from error
        raise IntegrityError(
            f"Spark cannot answer: {_reason(str(error), '')}", where=where, hint=_LOG_HINT
        ) from error


def is_of_a_gone_file(error: Exception) -> bool:
    """Whether ``error``, of Python or of Spark, says that a file is not there."""
    return isinstance(error, FileNotFoundError) or _GONE.search(str(error)) is not None


def _no_files(where: str, named: str, hadoop: str) -> UserError:
    """What is to be put into Spark for it to read ``where``."""
    if not where.startswith(("s3://", "s3a://")):
        return UserError(
            f"Spark has no file system for {where.partition(':')[0]}:// ({named})",
            where=where,
            hint="put the Hadoop connector of that store on its class path (spark.jars.packages), "
            "or let DuckDB or --master local[*] read copies on this machine; see docs/spark.md",
        )
    return UserError(
        "Spark cannot read S3 on its cluster: hadoop-aws is not on its class path",
        where=where,
        hint=f"add 'spark.jars.packages org.apache.hadoop:hadoop-aws:{hadoop}' to "
        "spark-defaults.conf in SPARK_CONF_DIR (or --packages or --jars in PYSPARK_SUBMIT_ARGS), "
        "or read copies on this machine by --master local[*]; see docs/spark.md",
    )


# -- starting ------------------------------------------------------------------------------------


def _seek(master: str | None) -> None:
    """UserError where none of the masters of ``spark://host:port,host:port`` answers."""
    if master is None or not master.startswith("spark://"):
        return
    refused = []
    for place in master.removeprefix("spark://").split(","):
        host, _, port = place.rpartition(":")
        if not host or not port.isdecimal() or int(port) > 65_535:
            return  # Spark says itself what is wrong with it
        try:
            socket.create_connection((host.strip("[]"), int(port)), timeout=_ANSWER_S).close()
        except OSError as error:
            refused.append(f"{place}: {error.strerror or error}")
        else:
            return
    raise UserError(
        f"no Spark master answers at {'; '.join(refused)}",
        where=master,
        hint="is it running, and is that its port? --master spark://host:7077, yarn, local[4]",
    )


def _start_java(given: Mapping[str, str]) -> None:
    """Start the Java process of this Python process, unless there is one."""
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway

    if SparkContext._gateway is not None:
        return
    conf = SparkConf().setAll([*given.items()])
    log = None if "STEPTAX_DEBUG" in os.environ else _java_log()
    gateway = launch_gateway(conf, popen_kwargs={"stderr": log})
    SparkContext._ensure_initialized(gateway=gateway)


@cache
def _java_log() -> IO[bytes]:
    """What Java writes of itself: a file that nobody else finds, gone with the two processes."""
    log = tempfile.TemporaryFile(prefix="steptax-spark-")  # noqa: SIM115  # as long as Java
    atexit.register(log.close)
    return log


def _log_bytes() -> int:
    return os.fstat(_java_log().fileno()).st_size


def _log_from(begin: int) -> str:
    # Not read as files are: Java writes at the place where both of us are in it.
    return os.pread(_java_log().fileno(), _log_bytes() - begin, begin).decode(errors="replace")


def _has_java() -> bool:
    """Whether there is a Java where Spark looks for one."""
    home = os.environ.get("JAVA_HOME")
    return shutil.which(os.path.join(home, "bin", "java") if home else "java") is not None


def _reason(said: str, log: str) -> str:
    """What went wrong, in one line, from an error of Spark and from what its Java wrote."""
    if found := _KILLED.search(log):
        return found[1].strip()
    # Of a Java process that ended, and of a context that gave up, PySpark knows that alone.
    is_told = log and ("JAVA_GATEWAY_EXITED" in said or "stopped SparkContext" in said)
    text = log if is_told else said
    if python := _PYTHON.findall(text):
        return str(python[-1])
    causes = _CAUSE.findall(text)
    if named := _ERROR.search(causes[-1] if causes else text):
        return named["said"].strip()
    lines = [*causes[-1:], *(line.strip() for line in text.splitlines())]
    return next((line for line in lines if line), "unknown")
