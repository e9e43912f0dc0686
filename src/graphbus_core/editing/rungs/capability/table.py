"""The names that are harmless, and those that have a power, by its code: the data of rung G3, which `judge.py` applies.

A thing is harmless if it computes from its arguments and changes nothing but them: it may be called, passed and stored. A new
use of anything else is refused. Of a module that only computes, everything that it exports is harmless except what
`_POWERS_BY_NAME` names; of plain data, all methods and fields of the types in `_PLAIN_TYPES`.
"""

from __future__ import annotations

import builtins
import importlib
import sys
from collections.abc import Mapping
from enum import Enum
from functools import cache
from types import ModuleType

_CHANGEABLE = 1 << 9
"""The type flag (Py_TPFLAGS_HEAPTYPE) of a class whose attributes can be changed."""


def _words(text: str) -> frozenset[str]:
    """Return the words of a text, separated by spaces."""
    return frozenset(text.split())


def _invert_table(table: dict[str, str]) -> dict[str, str]:
    """Return name -> code, from a table of code -> names that are separated by spaces."""
    return {name: code for code, names in table.items() for name in names.split()}


_ERRORS = frozenset(
    name for name, value in vars(builtins).items() if isinstance(value, type) and issubclass(value, Exception)
)
_BUILTINS = _ERRORS | _words(
    "abs aiter all anext any ascii bin bool bytearray bytes callable chr classmethod complex dict divmod enumerate "
    "filter float format frozenset hash hex id int isinstance issubclass iter len list map max memoryview min next "
    "object oct ord pow print property range repr reversed round set slice sorted staticmethod str sum tuple zip True "
    "False None Ellipsis NotImplemented __name__ __debug__"
)
CALLED_ONLY = _words("getattr hasattr type super")
"""Builtins whose calls are judged by their arguments; as values they could be called with anything."""

BY_NAME = _words("operator.attrgetter operator.methodcaller")
"""Members that are harmless only where they are called with the names of harmless attributes."""

CAUGHT_ONLY = _words("BaseException BaseExceptionGroup SystemExit KeyboardInterrupt GeneratorExit")
"""Builtins that may be caught or named as a type, and not raised."""

_ALL_MEMBERS = _words(
    "__future__ base64 binascii bisect calendar cmath collections collections.abc colorsys contextlib copy csv dataclasses "
    "datetime decimal difflib email.utils errno fnmatch fractions functools graphlib hashlib heapq hmac html http ipaddress "
    "itertools json keyword math numbers pprint queue random re reprlib secrets statistics string struct textwrap time "
    "tomllib typing unicodedata urllib.parse weakref zlib zoneinfo"
)
"""Modules whose exported members are harmless, except those that `_POWERS_BY_NAME` names."""

_PATH_TEXT = (
    "join basename dirname split splitext splitdrive normpath normcase isabs commonpath commonprefix sep altsep extsep "
    "pathsep curdir pardir"
)
_SOME_MEMBERS: Mapping[str, str] = {
    "abc": "ABC abstractmethod",
    "array": "array typecodes",
    "ast": "literal_eval",
    "asyncio": "ALL_COMPLETED Barrier BoundedSemaphore BrokenBarrierError CancelledError Condition Event "
    "FIRST_COMPLETED FIRST_EXCEPTION Future InvalidStateError LifoQueue Lock PriorityQueue Queue QueueEmpty "
    "QueueFull QueueShutDown Semaphore Task TaskGroup Timeout TimeoutError as_completed create_task ensure_future "
    "gather get_running_loop iscoroutine iscoroutinefunction isfuture shield sleep timeout timeout_at to_thread wait "
    "wait_for",
    "bz2": "compress decompress BZ2Compressor BZ2Decompressor",
    "contextvars": "ContextVar Token",
    "enum": "CONFORM CONTINUOUS EJECT Enum EnumCheck Flag FlagBoundary IntEnum IntFlag KEEP NAMED_FLAGS ReprEnum "
    "STRICT StrEnum UNIQUE auto member nonmember property unique verify",
    "gzip": "BadGzipFile compress decompress",
    "inspect": "cleandoc isasyncgen isawaitable isclass iscoroutine iscoroutinefunction isfunction isgenerator ismethod",
    "io": "BytesIO DEFAULT_BUFFER_SIZE SEEK_CUR SEEK_END SEEK_SET StringIO TextIOBase UnsupportedOperation",
    "logging": "CRITICAL DEBUG ERROR FATAL INFO Logger LoggerAdapter NOTSET NullHandler WARN WARNING critical debug "
    "error exception getLevelName getLogger info log warning",
    "lzma": "LZMACompressor LZMADecompressor LZMAError compress decompress",
    "operator": "abs add and_ concat contains countOf eq floordiv ge getitem gt index indexOf inv invert is_ is_not "
    "itemgetter le length_hint lshift lt matmul mod mul ne neg not_ or_ pos pow rshift sub truediv truth xor",
    "os": "PathLike altsep curdir extsep fspath linesep pardir path pathsep sep",
    "os.path": _PATH_TEXT,
    "pathlib": "PurePath PurePosixPath PureWindowsPath Path PosixPath",
    "posixpath": _PATH_TEXT,
    "shlex": "join quote split",
    "sys": "byteorder float_info getsizeof intern maxsize maxunicode platform version version_info",
    "threading": "Barrier BoundedSemaphore BrokenBarrierError Condition Event Lock RLock Semaphore current_thread "
    "get_ident local",
    "traceback": "format_exc format_exception format_exception_only",
    "types": "AsyncGeneratorType CoroutineType EllipsisType GeneratorType MappingProxyType NoneType "
    "NotImplementedType SimpleNamespace TracebackType UnionType",
    "typing_extensions": "ReadOnly TypeAliasType TypeIs deprecated override",  # and what `typing` has
    "uuid": "NAMESPACE_DNS NAMESPACE_OID NAMESPACE_URL NAMESPACE_X500 SafeUUID UUID uuid3 uuid4 uuid5",
    "warnings": "warn",
    "xml.sax.saxutils": "escape quoteattr unescape",
    # third-party packages, if the project uses them
    "attr": "define evolve field frozen asdict",
    "attrs": "define evolve field frozen asdict",
    "msgspec": "Meta Struct UNSET UnsetType ValidationError convert field to_builtins",
    "msgspec.json": "decode encode",
    "msgspec.structs": "asdict replace",
    "pydantic": "BaseModel ConfigDict Field ValidationError computed_field field_serializer field_validator "
    "model_validator",
    # what an agent may use of GraphBus
    "graphbus_core": "Event GraphBusError GraphBusNode Topic depends_on publishes schema_method subscribe",
    "graphbus_core.decorators": "depends_on publishes schema_method subscribe",
    "graphbus_core.errors": "GraphBusError RunError RequestTimeoutError DeadlockError",
    "graphbus_core.model.messages": "Event",
    "graphbus_core.model.state": "State",
    "graphbus_core.node": "GraphBusNode",
}
"""Module -> its harmless members, for modules of which only some are."""

_PLAIN_TYPES = (
    "builtins.str builtins.bytes builtins.bytearray builtins.memoryview builtins.int builtins.float builtins.complex "
    "builtins.list builtins.tuple builtins.dict builtins.set builtins.frozenset builtins.range builtins.slice "
    "builtins.OSError builtins.UnicodeDecodeError builtins.ExceptionGroup builtins.SyntaxError json.JSONDecodeError "
    "collections.Counter collections.deque collections.ChainMap collections.OrderedDict collections.UserDict "
    "datetime.datetime datetime.timedelta datetime.timezone decimal.Decimal decimal.Context fractions.Fraction re.Pattern "
    "re.Match uuid.UUID ipaddress.IPv4Interface ipaddress.IPv6Interface ipaddress.IPv4Network pathlib.PurePath "
    "threading.Condition threading.Event threading.Semaphore threading.Barrier queue.Queue asyncio.Lock asyncio.Queue "
    "asyncio.Task asyncio.Event asyncio.Condition asyncio.TaskGroup asyncio.Timeout asyncio.Barrier random.Random "
    "hashlib.blake2b struct.Struct difflib.SequenceMatcher logging.Logger array.array string.Template "
    "contextlib.AsyncExitStack contextvars.ContextVar contextvars.Token statistics.NormalDist urllib.parse.ParseResult "
    "http.HTTPStatus textwrap.TextWrapper"
)
_FURTHER_ATTRIBUTES = _words(
    "_asdict _fields _make _replace code colno cache_clear cache_info create_future currsize data deadline default "
    "default_factory "
    "description digits sign exponent doc epsilon extra from_iterable full_match getvalue hint hits misses intercept slope "
    "is_client_error is_informational is_redirection is_server_error is_success kwargs key level major micro maps mapping "
    "metadata netmask network_address phrase template text week with_segments tm_gmtoff tm_hour tm_isdst tm_mday tm_min tm_mon "
    "tm_sec tm_wday tm_yday tm_year tm_zone value a b "
    # events of GraphBus
    "topic src payload event_id causation_id correlation_id hops trail published_by"
)
_NOT_HARMLESS = _words("close obj findCaller scanner buffer_info format format_map filter re")

_INSTANCE_ATTRIBUTES: Mapping[str, frozenset[str]] = {
    **dict.fromkeys(
        ("io.StringIO", "io.BytesIO", "builtins.open"),
        _words("write writelines read readline readlines getvalue getbuffer seek tell truncate close closed flush"),
    ),
    **dict.fromkeys(("csv.writer", "csv.DictWriter"), _words("writerow writerows writeheader fieldnames dialect")),
    **dict.fromkeys(("csv.reader", "csv.DictReader"), _words("line_num fieldnames dialect")),
    **dict.fromkeys(("zlib.compressobj", "zlib.decompressobj"), _words("compress flush")),
    "random.Random": _words("seed setstate"),
    "graphbus_core.State": _words("read update_if transaction"),
}
"""Constructor -> further attributes that are harmless on an object that the code has visibly made with it."""

OPEN = _words("types.SimpleNamespace threading.local")
"""Classes whose objects take any attribute, as a dictionary takes any key."""

MUTATORS = _words(
    "add append appendleft clear difference_update discard extend extendleft insert intersection_update move_to_end pop "
    "popitem popleft remove reverse rotate setdefault sort subtract symmetric_difference_update update"
)
"""Methods that change their container; not allowed on containers of other modules and classes."""

NODE = _words("publish request call agent log state on_start on_stop handle_event SUBSCRIBE SYSTEM_PROMPT IS_ARBITER")
"""The public interface of a node."""

INSIDE_OF_NODES = _words("_connection _connected")
"""Attributes of a node that connect it to its graph and belong to GraphBus."""

NOT_TO_REPLACE = _words("publish request call agent log state _connection _connected")
"""Attributes of a node that an agent may not define or set."""

GUARDED: Mapping[str, str] = {"IS_ARBITER": "G3.arbiter", "SYSTEM_PROMPT": "G3.prompt"}
"""Attributes that decide the role of an agent in a negotiation -> code of G3."""

DUNDERS = _words(
    "__init__ __name__ __qualname__ __doc__ __len__ __str__ __repr__ __eq__ __ne__ __hash__ "
    "__iter__ __next__ __aiter__ __anext__ __contains__ __lt__ __le__ __gt__ __ge__ __add__ "
    "__sub__ __mul__ __getitem__ __post_init__ __version__ __module__ __all__ __members__ __cause__ __context__ "
    "__notes__ __abs__ __neg__ __bool__ __float__ __int__ __index__ __round__ __format__ __or__ __and__"
)
"""Dunder attributes that give access to nothing internal and change nothing."""

OF_MODULES = _words("__name__ __doc__ __version__ __all__")
"""Dunder attributes of modules that may be read."""

OF_CLASSES = _words("__name__ __qualname__ __doc__ __module__")
"""Dunder attributes of the class of an object that may be read."""

_GRAPHBUS_DECORATORS = frozenset(
    f"{home}.{name}"
    for home in ("graphbus_core", "graphbus_core.decorators")
    for name in ("subscribe", "publishes", "schema_method")
)
_CHANGING_DECORATORS = _GRAPHBUS_DECORATORS | _words(
    "dataclasses.dataclass functools.wraps functools.total_ordering typing.runtime_checkable enum.unique enum.verify "
    "attrs.define attrs.frozen attr.define attr.frozen"
)
ONLY_DECORATORS = _CHANGING_DECORATORS | _words("graphbus_core.depends_on graphbus_core.decorators.depends_on")
"""Functions that change the class or function that they get: allowed as decorators, but not called on code of others."""

DECORATORS = _CHANGING_DECORATORS | _words(
    "builtins.property builtins.staticmethod builtins.classmethod abc.abstractmethod contextlib.contextmanager "
    "contextlib.asynccontextmanager functools.cache functools.lru_cache functools.cached_property functools.singledispatch "
    "functools.singledispatchmethod typing.overload typing.override typing.final typing_extensions.override "
    "typing_extensions.final typing_extensions.overload pydantic.field_validator pydantic.model_validator "
    "pydantic.computed_field pydantic.field_serializer"
)
"""Decorators that a change may add; `@depends_on` changes the graph and is not among them."""

MADE_BY_CALL = _words("enum.Enum enum.Flag enum.IntEnum enum.IntFlag enum.StrEnum enum.ReprEnum")
"""Enum classes: calling one makes a new class, with any name and module."""

MADE_BY = _words("functools.partial builtins.dict builtins.list builtins.tuple builtins.set builtins.frozenset builtins.iter "
                 "builtins.reversed builtins.sorted builtins.enumerate builtins.zip builtins.next")  # fmt: skip
"""Functions whose result contains their arguments."""

GENERIC = _words("functools.singledispatch functools.singledispatchmethod")
"""Decorators of generic functions, to which other functions register."""

BASES = frozenset(f"builtins.{name}" for name in _ERRORS) | _words(
    "builtins.object builtins.str builtins.int builtins.float builtins.dict builtins.list builtins.set "
    "builtins.tuple builtins.frozenset enum.Flag enum.IntFlag enum.Enum enum.StrEnum enum.IntEnum typing.TypedDict "
    "typing.NamedTuple typing.Protocol typing.Generic typing_extensions.TypedDict typing_extensions.NamedTuple "
    "typing_extensions.Protocol abc.ABC msgspec.Struct pydantic.BaseModel collections.UserDict collections.UserList "
    "contextlib.AbstractContextManager contextlib.AbstractAsyncContextManager contextlib.ContextDecorator "
    "logging.LoggerAdapter string.Template "
    "collections.abc.Mapping collections.abc.MutableMapping collections.abc.Sequence "
    "collections.abc.Iterator collections.abc.Iterable collections.abc.Set collections.abc.Hashable "
    "collections.abc.Sized"
)
"""The bases that a new class may have; an existing class gets no new base."""

SPECIALISED: Mapping[str, str] = {"json.JSONEncoder": "default"}
"""Bases that a new class may have if it defines this one method and nothing else."""

CLASS_KEYWORDS = _words(
    "total frozen kw_only omit_defaults forbid_unknown_fields boundary tag tag_field rename gc order"
)

DEFINED_FREELY = _words(
    "__init__ __post_init__ __repr__ __str__ __format__ __len__ __length_hint__ __iter__ __next__ __reversed__ "
    "__contains__ __getitem__ __setitem__ __delitem__ __missing__ __call__ __enter__ __exit__ __aenter__ __aexit__ "
    "__aiter__ __anext__ __await__ __eq__ __ne__ __lt__ __le__ __gt__ __ge__ __hash__ __bool__ __int__ __float__ "
    "__index__ __complex__ __bytes__ __abs__ __neg__ __pos__ __invert__ __round__ __floor__ __ceil__ __trunc__ __add__ "
    "__radd__ __iadd__ __sub__ __rsub__ __isub__ __mul__ __rmul__ __imul__ __truediv__ __rtruediv__ __floordiv__ "
    "__rfloordiv__ __mod__ __rmod__ __divmod__ __pow__ __rpow__ __and__ __rand__ __iand__ __or__ __ror__ __ior__ "
    "__xor__ __rxor__ __ixor__ __lshift__ __rshift__ __matmul__"
)
"""Dunder methods that only run where the code shows it: by an operator, a statement or a builtin."""

COMPARED = _words("__eq__ __ne__ __lt__ __le__ __gt__ __ge__ __bool__ __contains__ __hash__ __instancecheck__")
"""Dunder methods with which an object decides whether it equals an expected value."""

VALUES = _words(
    "builtins.str builtins.int builtins.float builtins.complex builtins.bytes builtins.bool builtins.tuple "
    "builtins.list builtins.dict builtins.set builtins.frozenset"
)
"""Built-in types whose comparison tests rely on."""

BOUND_FREELY = _words("__all__ __version__ __author__ __slots__ __doc__ __match_args__")
"""Dunder names that may be bound."""

# --- names with powers ---------------------------------------------------------------------------

_POWERS_BY_NAME: Mapping[str, str] = _invert_table(
    {
        "": "http.HTTPStatus http.HTTPMethod urllib.parse",
        "G3.exec": "importlib imp runpy pkgutil zipimport code codeop builtins marshal pickle shelve dill cloudpickle "
        "joblib yaml types timeit cProfile profile pdb bdb doctest unittest trace logging codecs.register "
        "codecs.register_error encodings typing.get_type_hints typing.ForwardRef dataclasses.make_dataclass ensurepip "
        "venv zipapp py_compile compileall pydoc idlelib test copyreg annotationlib builtins.exec builtins.eval "
        "builtins.compile builtins.__import__ builtins.__builtins__ builtins.__loader__ builtins.__spec__ "
        "graphbus_core.build graphbus_core.cli graphbus_core.compiler graphbus_core.editing graphbus_core.negotiation",
        "G3.reflection": "inspect gc operator string.Formatter traceback sys._getframe sys._current_frames sys.modules "
        "sys._getframemodulename linecache dis symtable weakref sys.exc_info sys.last_traceback builtins.globals "
        "builtins.locals builtins.vars builtins.dir builtins.setattr builtins.delattr builtins.__class__ "
        "builtins.__file__ builtins.__dict__ builtins.getattr builtins.hasattr builtins.type builtins.super "
        "asyncio.all_tasks contextvars",
        "G3.process": "posix nt subprocess multiprocessing pty signal resource atexit site sysconfig faulthandler "
        "threading sys pwd grp spwd syslog termios tty readline curses tkinter turtle concurrent sched asyncio os "
        "tracemalloc weakref.finalize _thread builtins.exit builtins.quit builtins.BaseException "
        "builtins.BaseExceptionGroup builtins.input builtins.SystemExit builtins.KeyboardInterrupt "
        "builtins.GeneratorExit builtins.breakpoint platform",
        "G3.network": "socket ssl http urllib ftplib smtplib poplib imaplib nntplib telnetlib xmlrpc socketserver "
        "webbrowser wsgiref asyncore asynchat smtpd antigravity selectors select asyncio.open_connection "
        "email.utils.make_msgid asyncio.start_server asyncio.open_unix_connection asyncio.start_unix_server "
        "asyncio.streams logging.handlers "
        "requests httpx aiohttp urllib3 paramiko websockets",
        "G3.native": "ctypes cffi mmap fcntl msvcrt winreg",
        "G3.files": "shutil tempfile sqlite3 dbm zipfile tarfile fileinput io gzip bz2 lzma wave mailbox pathlib "
        "pathlib.Path.home builtins.open codecs codecs.open logging.FileHandler logging.basicConfig os.chmod os.chown "
        "os.fchmod os.fchown os.fdopen os.ftruncate os.lchown os.link os.makedirs os.mkdir os.mkfifo os.mknod os.open "
        "os.remove os.removedirs os.rename os.renames os.replace os.rmdir os.symlink os.truncate os.unlink os.utime "
        "os.write os.sendfile os.copy_file_range",
        "G3.read": "os.listdir os.scandir os.walk os.stat os.lstat os.access os.readlink os.getcwd os.path os.fwalk "
        "glob filecmp configparser tokenize mimetypes netrc plistlib pathlib.Path.cwd json.tool",
        "G3.environment": "os.environ os.environb os.getenv os.getenvb os.putenv os.unsetenv os.path.expandvars "
        "os.path.expanduser os.getpid os.getppid os.uname os.getuid os.cpu_count getpass sys.argv sys.orig_argv "
        "sys.flags locale",
        "G3.suppression": "warnings",
        "G3.unknown": "difflib.Match unicodedata.UCD urllib.parse.DefragResult urllib.parse.DefragResultBytes "
        "urllib.parse.ParseResultBytes urllib.parse.SplitResultBytes",
        "G3.patch": "typing.get_overloads typing.clear_overloads typing.no_type_check typing.no_type_check_decorator "
        "operator.setitem operator.delitem decimal.getcontext decimal.setcontext decimal.DefaultContext "
        "decimal.BasicContext decimal.ExtendedContext random.seed random.setstate logging.disable logging.root "
        "logging.setLoggerClass logging.addLevelName logging.captureWarnings logging.shutdown calendar.setfirstweekday "
        "csv.register_dialect csv.field_size_limit csv.unregister_dialect re.purge zoneinfo.reset_tzpath "
        "locale.setlocale time.tzset time.clock_settime time.clock_settime_ns functools.update_wrapper enum "
        "asyncio.set_event_loop_policy contextlib.redirect_stdout "
        "contextlib.redirect_stderr contextlib.chdir",
        "G3.node": "graphbus_core",
    }
)
"""Dotted name -> code of its power; the longest known prefix counts. Only names that `is_harmless` denies are looked up."""

ACTING: Mapping[str, str] = _invert_table(
    {
        "G3.files": "write_text write_bytes unlink rmdir touch symlink_to hardlink_to link_to chmod lchmod mkdir "
        "makedirs rmtree truncate rename renames replace write writelines extractall extract copyfile copytree move "
        "tofile save savez to_csv dump executescript execute executemany commit",
        "G3.read": "read_text read_bytes iterdir glob rglob walk exists is_file is_dir is_symlink is_mount stat lstat "
        "owner resolve readlink samefile absolute expanduser home cwd read readline readlines fromfile load",
        "G3.process": "system popen Popen check_output check_call run fork execv execve subprocess_exec "
        "subprocess_shell spawn kill terminate send_signal add_signal_handler remove_signal_handler run_in_executor "
        "set_exception_handler set_default_executor submit shutdown_default_executor run_forever run_until_complete "
        "call_soon call_soon_threadsafe call_later call_at set_debug set_task_factory register start_new_thread "
        "settrace setprofile",
        "G3.exec": "exec_module load_module import_module run_path run_module loads_module",
        "G3.network": "create_connection create_server create_datagram_endpoint create_unix_connection "
        "create_unix_server sock_connect sock_sendall sock_recv sock_accept open_connection connect connect_ex bind "
        "listen accept send sendall sendto recv recvfrom urlopen urlretrieve sendmail send_message",
        "G3.environment": "environ environb getenv putenv expandvars",
        "G3.node": "bus connection",
    }
)
"""Attribute -> code of its power, for objects of unknown type."""

VARIABLES = _words("os.environ os.environb")
"""The mappings of environment variables."""

STREAMS = _words("read readline readlines")
"""Methods that read from an open file; with a path as argument they would open another one."""

FRAMES = _words(
    "gi_frame gi_code gi_yieldfrom cr_frame cr_code cr_await cr_origin ag_frame ag_code ag_await tb_frame tb_next "
    "tb_lasti f_back f_globals f_locals f_builtins f_code f_trace co_code co_consts co_names func_globals func_code mro "
    "with_traceback cell_contents get_stack print_stack get_coro get_context get_loop _loop _coro _func func"
)
"""Attributes that reach the variables of other code: frames, code objects, cells, the order of bases."""

LEADING = _words(
    "handlers handle emit stream buffer manager loggerDict filters formatter propagate disabled addHandler removeHandler "
    "addFilter removeFilter setLevel setFormatter setStream callHandlers makeRecord createLock registry dispatch "
    "add_reader remove_reader add_writer remove_writer call_exception_handler shutdown_asyncgens sock_sendfile sock_sendto "
    "connect_accepted_socket connect_read_pipe connect_write_pipe start_tls sendfile getaddrinfo getnameinfo stop daemon "
    "mutex unfinished_tasks all_tasks_done fileno detach throw athrow seed setstate "
    "_ready _scheduled _selector _selector_cls _default_executor _csock _ssock _signal_handlers _add_callback _call_soon "
    "_run_once _run _callback _callbacks _args _kwargs _target _task _tasks _parent_task _context _fut_waiter _current_handle "
    "_transports _exit_callbacks _asyncgens _exception_handler _task_factory _stopping _add_reader _add_writer _internal_fds "
    "_process_events _write_to_self _handlers _cache _abc_impl _member_map_ _value2member_map_ _value_ _name_ _registry _mapping"
)
"""Attributes that reach into loops, tasks, threads and logs; refused even if a class of the project has one of that name."""

MODULES_INSIDE = _words(
    "os sys io socket shutil subprocess builtins importlib ctypes posix tempfile pickle signal asyncio threading "
    "inspect types codecs gc operator logging"
)
"""Modules that other modules hold, e.g. `random._os`: as an attribute of anything, these names count as the module."""


# --- queries -------------------------------------------------------------------------------------


def is_module(name: str) -> bool:
    """True for a module with harmless members."""
    return name in _ALL_MEMBERS or name in _SOME_MEMBERS


@cache
def _harmless_members(module: str) -> frozenset[str]:
    """Return the harmless members of a module in the table; one whose members are all harmless is imported to list them."""
    if module not in _ALL_MEMBERS:
        more = _harmless_members("typing") if module == "typing_extensions" else frozenset()
        return _words(_SOME_MEMBERS.get(module, "")) | more
    loaded = importlib.import_module(module)
    exported = getattr(loaded, "__all__", None) or [name for name in vars(loaded) if not name.startswith("_")]
    members = {name: getattr(loaded, name) for name in exported if not _POWERS_BY_NAME.get(f"{module}.{name}")}
    return frozenset(name for name, value in members.items() if not isinstance(value, ModuleType))


def is_harmless(dotted: str) -> bool:
    """True if a dotted name is that of a harmless member of a module, or of a harmless attribute of such a member."""
    parts = dotted.split(".")
    if parts[0] == "builtins":
        return len(parts) > 1 and parts[1] in _BUILTINS and all(_is_harmless_part(part, "") for part in parts[2:])
    for count in range(len(parts) - 1, 0, -1):
        module = ".".join(parts[:count])
        if is_module(module):
            return parts[count] in _harmless_members(module) and all(
                _is_harmless_part(part, parts[0]) for part in parts[count + 1 :]
            )
    return False


def _is_harmless_part(attribute: str, package: str) -> bool:
    """True if an attribute of a harmless member of a package is harmless, too."""
    if package == "graphbus_core":
        return attribute in ("__init__", *OF_CLASSES)
    if attribute.isupper() and not attribute.startswith("_"):
        return True  # a constant of a class: `HTTPStatus.NOT_FOUND`
    return attribute in attributes() or attribute in DUNDERS or (attribute == "replace" and package != "pathlib")


@cache
def _load_member(dotted: str) -> object:
    """Return a builtin, or a member of a module of the standard library that the table lists; None for anything else."""
    module, _, name = dotted.rpartition(".")
    is_listed = is_module(module) and module.partition(".")[0] in sys.stdlib_module_names
    return getattr(importlib.import_module(module), name, None) if is_listed or module == "builtins" else None


@cache
def attributes() -> frozenset[str]:
    """Return the attributes of plain data: reading or calling them gives no power, whatever the object is."""
    found = {name for kind in _PLAIN_TYPES.split() for name in dir(_load_member(kind)) if not name.startswith("_")}
    return frozenset((found - ACTING.keys() - FRAMES - LEADING - _NOT_HARMLESS) | _FURTHER_ATTRIBUTES)


def is_of_instance(made: str, name: str) -> bool:
    """True if an attribute is harmless on an object that a call of `made` has returned."""
    if name in _INSTANCE_ATTRIBUTES.get(made, ()):
        return True
    if name in ACTING or name.lstrip("_") in MODULES_INSIDE:
        return False
    if made in OPEN:
        return True
    is_inside = name in LEADING or name.startswith("_") or name in ("open", "replace")
    kind = _load_member(made) if is_harmless(made) else None
    return isinstance(kind, type) and not is_inside and name in dir(kind)


@cache
def attributes_of_classes() -> frozenset[str]:
    """Return the attributes of all classes in the table: setting one on a class would replace it for all code."""
    found = {*NOT_TO_REPLACE - {"state"}, *LEADING}
    for module in (*_ALL_MEMBERS, *_SOME_MEMBERS):
        for kind in (_load_member(f"{module}.{name}") for name in _harmless_members(module)):
            if isinstance(kind, type) and kind.__flags__ & _CHANGEABLE:
                found.update(dir(kind))
    return frozenset(found)


def makes_objects(dotted: str) -> bool:
    """True if calling a harmless member, given by its dotted name, makes a new object, which no other code holds."""
    kind = _load_member(dotted)
    if isinstance(kind, type):
        return not issubclass(kind, Enum)
    return dotted == "decimal.localcontext" or (kind is None and dotted.rpartition(".")[2][:1].isupper())


def code_of(dotted: str) -> str:
    """Return the code of the power of a dotted name, by its longest known prefix; empty if it is unknown.

    A module that another one holds counts under its own name: `random._os.remove` as `os.remove`.
    """
    parts = dotted.split(".")
    for first in range(len(parts) - 1, 0, -1):
        if parts[first].lstrip("_") in MODULES_INSIDE:
            parts = [parts[first].lstrip("_"), *parts[first + 1 :]]
            break
    else:
        parts[0] = parts[0].lstrip("_") or parts[0]
    for count in range(len(parts), 0, -1):
        found = _POWERS_BY_NAME.get(".".join(parts[:count]))
        if found is not None:
            return found
    return ""
