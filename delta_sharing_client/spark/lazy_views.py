"""Temporary views of a classic session that are loaded when a query first uses them.

The text of such a view calls a table function, and its columns are those of the call (SCHEMA EVOLUTION). To
analyse a query over the view, Spark calls the builder of the function, which is in this process.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from delta_sharing_client.errors import DeltaSharingError, SparkError
from delta_sharing_client.messages import module_logger
from delta_sharing_client.secrets import redact_text
from delta_sharing_client.spark.session import is_connect
from delta_sharing_client.spark.spark_schema import quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

logger = module_logger(__name__)

_PREFIX: Final = "delta_sharing_view_"
#: The builders by the context and the session, and the name that their view was given.
_registered: Final[dict[tuple[str, str], list[_Builder]]] = {}


def lazy_views(session: SparkSession) -> LazyViews | None:
    """Return what creates such views in a session; None if a trial shows that its Spark cannot use them."""
    if is_connect(session):
        return None
    try:
        return LazyViews(session)
    except Exception as error:  # noqa: BLE001  # whatever a release without these internals raises
        logger.info("views are loaded when they are created: %s", _short(error))
        return None


class LazyViews:
    """Creates views in a session, after a trial.

    Raises:
        SparkError: the trial failed.
        Exception: this Spark lacks something that these views need.
    """

    def __init__(self, session: SparkSession) -> None:
        from py4j.clientserver import ClientServer
        from pyspark.java_gateway import ensure_callback_server_started

        gateway: Any = session.sparkContext._gateway
        if not isinstance(gateway, ClientServer):  # what a builder calls would wait for the lock of its caller
            raise SparkError("calls of Python by Java have threads of their own (PYSPARK_PIN_THREAD)")
        ensure_callback_server_started(gateway)  # type: ignore[no-untyped-call]
        self._session = session
        self._jvm: Any = gateway.jvm
        state: Any = session._jsparkSession.sessionState()
        self._catalog, self._functions = state.catalog(), state.tableFunctionRegistry()
        self._as_builder = _builders(self._jvm)
        application = session.sparkContext.applicationId
        for key in [
            key for key in _registered if not key[0].startswith(application)
        ]:  # of a context that is stopped
            del _registered[key]
        self._id = f"{application}/{session._jsparkSession.hashCode()}"
        name = _PREFIX + secrets.token_hex(8)
        try:
            self._register(_Builder(session, name, name, "", session.range(0).select))
            session.sql(f"CREATE TEMPORARY VIEW {name} AS SELECT * FROM {name}()")  # noqa: S608  # no input
            self._template: Any = self._catalog.getRawTempView(name).get().tableMeta()
            names = [self._template.productElementName(i) for i in range(self._template.productArity())]
            self._fields = {
                field: getattr(self._template, f"copy$default${i}")() for i, field in enumerate(names, 1)
            }
            self._try(name)
        finally:
            self._catalog.dropTempView(name)
            for function in (name, *(each.function for each in _registered.pop((self._id, name), []))):
                self._catalog.dropTempFunction(function, True)

    def create(self, name: str, table: str, load: Callable[[], DataFrame]) -> None:
        """Create or replace a view.

        Each view has a function of its own, because it may be renamed. The function remains after the first use: a
        query that another thread analyses, and the copies of the session that streams make, may still call it. It
        is dropped when another view takes the place.

        Args:
            name: the name of the view.
            table: the full name of the table, for errors.
            load: called when a query first uses the view; again by the next query if it raised.
        """
        builder = _Builder(self._session, _PREFIX + secrets.token_hex(8), name, table, load)
        self._register(builder)
        builder.view = self._relation(name, builder.function)
        old = self._catalog.getRawTempView(name)
        if old.isDefined() and old.get().plan().isDefined() and self._session.catalog.isCached(quoted(name)):
            self._session.catalog.uncacheTable(quoted(name))
        self._catalog.createTempView(name, builder.view, True)
        before = _registered.get((self._id, name), [])
        renamed = [
            each for each in before if not each.is_loaded and not (old.isDefined() and each.is_view(old.get()))
        ]
        for each in before:
            if each not in renamed:
                self._catalog.dropTempFunction(each.function, True)
        _registered[self._id, name] = [*renamed, builder]

    def _try(self, name: str) -> None:
        loads = []

        def load() -> DataFrame:
            loads.append(name)
            return self._session.range(0)

        self.create(name, "", load)
        created = len(loads)
        columns = self._session.table(name).columns
        plan = self._catalog.getRawTempView(name).get().plan()
        if created or len(loads) != 1 or columns != ["id"] or plan.isEmpty():
            raise SparkError("a view on trial was not loaded by its first query")

    def _register(self, builder: _Builder) -> None:
        self._functions.createOrReplaceTempFunction(builder.function, self._as_builder(builder), "python_udtf")

    def _relation(self, name: str, function: str) -> Any:
        """Return a view, for Spark's catalog, of what a table function returns in each query."""
        catalyst, option = self._jvm.org.apache.spark.sql.catalyst, self._jvm.scala.Option
        properties = self._fields["properties"].updated("view.schemaMode", "EVOLUTION")
        changed = {
            "identifier": catalyst.TableIdentifier(name),
            "properties": properties.updated("view.referredTempFunctionsNames", json.dumps([function])),
            "viewText": option.apply(f"SELECT * FROM {quoted(function)}()"),  # noqa: S608  # quoted
        }
        meta = self._template.copy(*(self._fields | changed).values())
        return catalyst.catalog.TemporaryViewRelation(meta, option.empty())


def _builders(jvm: Any) -> Callable[[_Builder], Any]:
    """Return what makes a builder Spark's: a Function1 that takes the plan from its Try, or raises its failure.

    py4j itself raises what fails in Python as an exception of its own, with the traceback as its message.
    """
    handles, proxies, method_type = (
        getattr(jvm.java.lang.invoke, name) for name in ("MethodHandles", "MethodHandleProxies", "MethodType")
    )
    any_class, function, function1, attempt = map(
        jvm.java.lang.Class.forName,
        ("java.lang.Object", "java.util.function.Function", "scala.Function1", "scala.util.Try"),
    )
    lookup, mapped = handles.publicLookup(), method_type.methodType(any_class, any_class)
    get = lookup.findVirtual(attempt, "get", method_type.methodType(any_class)).asType(mapped)
    apply = handles.filterReturnValue(lookup.findVirtual(function, "apply", mapped), get)
    return lambda builder: proxies.asInterfaceInstance(function1, apply.bindTo(builder))


class _Builder:
    """The builder of a table function; loads a table and replaces the view by an ordinary one.

    No lock: Java calls this holding the lock of a catalog, which `load` needs.
    """

    class Java:
        """The interface that Java sees."""

        implements: Final = ["java.util.function.Function"]

    def __init__(
        self, session: SparkSession, function: str, name: str, table: str, load: Callable[[], DataFrame]
    ) -> None:
        self.function = function
        self.view: Any = None
        #: Whether an ordinary view has the place of the view.
        self.is_loaded = False
        self._session = session
        self._name = name
        self._table = table
        self._load = load
        self._frame: DataFrame | None = None

    def apply(self, _arguments: Any) -> Any:
        """Return a Try of the plan of the table."""
        jvm: Any = self._session._jvm
        try:
            if self._frame is None:
                self._frame = self._load()
            self._replace(self._frame)
            return jvm.scala.util.Success(self._frame._jdf.queryExecution().analyzed())
        except BaseException as error:  # noqa: BLE001  # py4j would show a traceback, or not survive Ctrl-C
            text = f"The view {self._name} of the shared table {self._table} cannot be loaded: {_short(error)}"
            return jvm.scala.util.Failure(jvm.java.lang.IllegalArgumentException(text))

    def _replace(self, frame: DataFrame) -> None:
        """Make the view an ordinary one, unless it has been renamed, replaced or dropped."""
        current = self._session._jsparkSession.sessionState().catalog().getRawTempView(self._name)
        if current.isDefined() and self.is_view(current.get()):
            frame.createOrReplaceTempView(quoted(self._name))
            self.is_loaded = True

    def is_view(self, view: Any) -> bool:
        """Return whether a view of Spark's catalog is the one that calls this builder."""
        return self.view is not None and bool(view.equals(self.view))


def _short(error: BaseException) -> str:
    """Return the message of an error without secrets and Java's stack."""
    if isinstance(error, DeltaSharingError):
        return str(error)
    return redact_text(" ".join([f"{type(error).__name__}:", *str(error).split("\n")[:2]]))
