"""What names can do, as far as the gate cares. Data only; `capability.py` says how it is read."""

from __future__ import annotations

import re


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


def _by_name(table: dict[str, str]) -> dict[str, str]:
    return {name: code for code, names in table.items() for name in names.split()}


USES: dict[str, str] = _by_name(
    {
        "": "urllib.parse http.HTTPStatus os.path os.sep os.linesep os.fspath os.urandom os.PathLike os.curdir os.getcwd "
        "os.listdir os.stat os.getpid os.cpu_count os.scandir os.walk inspect.isawaitable inspect.iscoroutine "
        "sys.version sys.version_info sys.platform sys.maxsize sys.float_info sys.intern sys.getsizeof sys.byteorder sys.stdout "
        "sys.stderr sys.exc_info sys.exception sys.implementation sys.hexversion sys.flags sys.getrecursionlimit "
        "sys.getdefaultencoding",
        "G3.exec": "importlib imp runpy pkgutil zipimport code codeop builtins marshal pickle shelve dill cloudpickle joblib "
        "yaml.load yaml.unsafe_load types.FunctionType types.CodeType timeit cProfile profile pdb bdb doctest unittest trace "
        "logging.config codecs.register codecs.register_error "
        "encodings types.new_class typing.get_type_hints "
        "typing.ForwardRef dataclasses.make_dataclass ensurepip venv zipapp py_compile "
        "compileall pydoc idlelib test graphbus_core.build graphbus_core.cli graphbus_core.compiler graphbus_core.editing "
        "graphbus_core.negotiation graphbus_core.hosting graphbus_core.runtime graphbus_core.store",
        "G3.reflection": "inspect gc operator.attrgetter operator.methodcaller sys._getframe sys._current_frames sys.modules "
        "sys._getframemodulename string.Formatter traceback.walk_stack traceback.walk_tb traceback.extract_stack",
        "G3.process": "posix nt subprocess multiprocessing pty signal "
        "resource atexit site faulthandler threading.settrace threading.setprofile threading.settrace_all_threads "
        "threading.setprofile_all_threads threading.excepthook threading._shutdown weakref.finalize sys.* "
        "pwd grp spwd syslog termios tty readline curses tkinter turtle "
        "concurrent.futures.ProcessPoolExecutor concurrent.futures.process asyncio.subprocess asyncio.create_subprocess_exec "
        "asyncio.create_subprocess_shell os.system os.popen os.fork os.forkpty os.kill os.killpg os._exit os.abort os.nice "
        "os.execl os.execle os.execlp os.execlpe os.execv os.execve os.execvp os.execvpe os.posix_spawn os.posix_spawnp "
        "os.spawnl os.spawnle os.spawnlp os.spawnlpe os.spawnv os.spawnve os.spawnvp os.spawnvpe os.setuid os.setgid os.setsid",
        "G3.network": "socket ssl http urllib ftplib smtplib poplib imaplib nntplib telnetlib xmlrpc socketserver webbrowser "
        "wsgiref asyncore smtpd antigravity "
        "asyncio.open_connection asyncio.start_server asyncio.open_unix_connection asyncio.streams logging.handlers "
        "requests httpx aiohttp urllib3 paramiko websockets",
        "G3.native": "ctypes _ctypes cffi mmap fcntl msvcrt winreg",
        "G3.files": "shutil tempfile sqlite3 dbm zipfile tarfile fileinput io.open io.FileIO io.open_code codecs.open "
        "gzip.open gzip.GzipFile bz2.open bz2.BZ2File lzma.open lzma.LZMAFile wave mailbox tracemalloc logging.FileHandler "
        "logging.basicConfig os.path.expanduser pathlib.Path.home pathlib.PosixPath.home os.*",
        "G3.environment": "os.environ os.environb os.getenv os.getenvb os.putenv os.unsetenv os.path.expandvars getpass sys.argv "
        "sys.orig_argv",
        "G3.suppression": "warnings.simplefilter warnings.filterwarnings warnings.showwarning",
    }
)
"""Dotted name -> code, empty for harmless; the longest prefix counts, and `os.*` stands for all of `os` that is not listed."""

REACHED_THROUGH_OTHERS = _words(
    "os sys io socket shutil subprocess builtins importlib ctypes posix tempfile pickle signal"
)
"""Modules that other modules hold, `random._os`: behind them their own names count."""

BARE_NAMES: dict[str, str] = _by_name(
    {
        "G3.exec": "exec eval compile __import__ __builtins__ __loader__ __spec__",
        "G3.reflection": "globals locals vars setattr delattr breakpoint __class__",
        "G3.process": "exit quit input SystemExit",
    }
)
"""Built-in names whose mere mention counts."""

METHODS: dict[str, str] = _by_name(
    {
        "G3.files": "write_text write_bytes unlink rmdir touch symlink_to hardlink_to chmod mkdir rmtree truncate expanduser",
        "G3.process": "system popen Popen check_output check_call fork execv execve subprocess_exec subprocess_shell",
        "G3.exec": "exec_module load_module import_module run_path",
        "G3.network": "create_connection create_server create_datagram_endpoint sock_connect open_connection",
    }
)
"""Methods that count on whatever object they are called."""

EVEN_UNCALLED = _words(
    "write_text write_bytes unlink rmdir symlink_to hardlink_to rmtree Popen check_output check_call import_module exec_module"
)
"""Those of them whose names are those of nothing else: they count as values, too."""

FRAMES = _words(
    "gi_frame gi_code cr_frame cr_code ag_frame ag_code tb_frame tb_next f_back f_globals f_locals f_builtins f_code co_code "
    "func_globals func_code mro"
)
"""Attributes that lead to the names of others: frames, code and the order of bases."""

COMPARED = _words("__eq__ __ne__ __lt__ __le__ __gt__ __ge__ __bool__ __contains__ __hash__ __instancecheck__")
"""Methods with which a value decides for itself whether it is the expected one."""

VALUES = _words("str int float complex bytes bool tuple list dict set frozenset")
"""Built-in values whose comparison everybody, tests included, relies on."""

BOUND_FREELY = _words("__all__ __version__ __author__ __slots__ __match_args__ __doc__ __test__")
"""Internal names that may be bound."""

CALLED_ONLY: dict[str, str] = {"open": "G3.files", "getattr": "G3.reflection", "hasattr": "G3.reflection"}
"""Built-in functions whose calls are looked at one by one; as values they could be called anywhere."""

SHARP_MODULES = _words("os sys io codecs operator types asyncio logging yaml")
"""Modules that may be imported but not passed around: behind another name nobody sees what is done with them."""

HARMLESS_DUNDERS = _words(
    "__init__ __name__ __qualname__ __doc__ __class__ __len__ __str__ __repr__ __eq__ __hash__ __enter__ __exit__ __iter__ "
    "__next__ __contains__ __lt__ __post_init__ __version__ __module__ __file__ __all__"
)
"""Attributes with internal names that tell nothing and change nothing."""

MAGIC = _words(
    "__getattr__ __getattribute__ __setattr__ __delattr__ __init_subclass__ __class_getitem__ __del__ __reduce__ "
    "__reduce_ex__ __subclasshook__ __instancecheck__ __subclasscheck__ __set_name__ __new__ __prepare__ __get__ __set__"
)
"""Methods that run without being called by name."""

HARMLESS_DECORATORS = _words(
    "property staticmethod classmethod dataclasses.dataclass abc.abstractmethod contextlib.contextmanager "
    "contextlib.asynccontextmanager functools.cache functools.lru_cache functools.cached_property functools.wraps "
    "functools.total_ordering enum.unique "
    "typing.runtime_checkable typing.overload typing.override typing.final typing_extensions.override "
    "graphbus_core.subscribe graphbus_core.publishes graphbus_core.schema_method graphbus_core.decorators.subscribe "
    "graphbus_core.decorators.publishes graphbus_core.decorators.schema_method"
)
"""What code may newly bear; `@depends_on` changes the graph and is not among them."""

HARMLESS_BASES = _words(
    "object Exception ValueError TypeError KeyError IndexError LookupError RuntimeError ArithmeticError NotImplementedError "
    "AttributeError OSError TimeoutError str int float dict list set tuple enum.Flag enum.IntFlag "
    "typing.TypedDict typing.NamedTuple typing.Protocol enum.Enum enum.StrEnum enum.IntEnum abc.ABC "
    "typing_extensions.TypedDict msgspec.Struct"
)
"""What a new class may be made of; a class that is there already gets no new base."""

HARMLESS_CLASS_KEYWORDS = _words("total frozen kw_only omit_defaults forbid_unknown_fields")

PRIVATE_PATH = re.compile(
    r"^~|^/(?:proc|etc|dev|sys)/|(?:^|/)\.(?:ssh|aws|gnupg|kube|docker|netrc|pgpass|env|git|config)(?:$|[/.])"
    r"|\bid_(?:rsa|dsa|ecdsa|ed25519)\b"
)
"""Where keys and what belongs to the machine are kept."""

SUPPRESSION = re.compile(
    r"#\s*(?:graphbus:|noqa|nosec|type:\s*ignore|pragma:|pyright:|mypy:|pylint:|ruff:|flake8:|isort:|fmt:|yapf:)",
    re.IGNORECASE,
)
INTERNAL = re.compile(r"[.\[]_*__(?:globals|builtins|subclasses|bases|base|mro|code|dict|class|init|import)__")
ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^\s'\"]*|://|\b(?:\d{1,3}\.){3}\d{1,3}\b")
SECRET = re.compile(
    r"sk-[A-Za-z0-9_-]{16,}|AKIA[0-9A-Z]{16}|gh[pousr]_[A-Za-z0-9]{20,}|github_pat_\w{20,}|glpat-[\w-]{16,}"
    r"|xox[abeoprs]-[\w-]{10,}|AIza[\w-]{30,}|-----BEGIN [A-Z ]*PRIVATE KEY-----|eyJ[\w-]{8,}\.eyJ[\w-]{8,}|[sr]k_live_\w{16,}"
)
SECRET_NAME = re.compile(
    r"pass(word|wd|phrase)|secret|api_?key|(access|auth|bearer)_?token|private_?key|credential", re.IGNORECASE
)
SECRET_VALUE = re.compile(r"(?=\S{8,}$)(?=.*\d)(?=.*[A-Za-z])")
