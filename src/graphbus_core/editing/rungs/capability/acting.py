"""What is known to act, and which power that is: data only. Whether it is refused, `harmless.py` decides.

Texts that are signs of their own stand here, too: addresses, keys, private paths, comments that silence checks.
"""

from __future__ import annotations

import re
from collections.abc import Mapping


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


def _by_name(table: dict[str, str]) -> dict[str, str]:
    return {name: code for code, names in table.items() for name in names.split()}


USES: Mapping[str, str] = _by_name(
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
        "asyncio.start_server asyncio.open_unix_connection asyncio.start_unix_server asyncio.streams logging.handlers "
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
        "G3.patch": "operator.setitem operator.delitem decimal.getcontext decimal.setcontext decimal.DefaultContext "
        "decimal.BasicContext decimal.ExtendedContext random.seed random.setstate logging.disable logging.root "
        "logging.setLoggerClass logging.addLevelName logging.captureWarnings logging.shutdown calendar.setfirstweekday "
        "csv.register_dialect csv.field_size_limit csv.unregister_dialect re.purge zoneinfo.reset_tzpath "
        "locale.setlocale time.tzset enum asyncio.set_event_loop_policy contextlib.redirect_stdout "
        "contextlib.redirect_stderr contextlib.chdir",
        "G3.node": "graphbus_core",
    }
)
"""Dotted name -> code, the longest known prefix counts: which power it is that is refused. Whether it is, `harmless.py` says."""

ACTING: Mapping[str, str] = _by_name(
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
"""Attributes that act on whatever object has them, where `harmless.ATTRIBUTES` and the project do not say otherwise."""

VARIABLES = _words("os.environ os.environb")
"""Mappings of environment variables: what is asked of them says which one it is."""

STREAMS = _words("read readline readlines")
"""Attributes that read on in what is open; with a name they would open something."""

FRAMES = _words(
    "gi_frame gi_code gi_yieldfrom cr_frame cr_code cr_await cr_origin ag_frame ag_code ag_await tb_frame tb_next "
    "tb_lasti f_back f_globals f_locals f_builtins f_code f_trace co_code co_consts co_names func_globals func_code mro "
    "with_traceback cell_contents get_stack print_stack get_coro get_context get_loop _loop _coro _func func"
)
"""Attributes that lead to the names of others: frames, code, cells and the order of bases."""

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
"""Attributes that lead into loops, tasks, threads and logs: that the project has one of this name is no excuse."""

MODULES_INSIDE = _words(
    "os sys io socket shutil subprocess builtins importlib ctypes posix tempfile pickle signal asyncio threading "
    "inspect types codecs gc operator logging"
)
"""Modules that other modules hold, `random._os`: as an attribute of anything they are a module as a value."""

# --- text ---------------------------------------------------------------------------------------

PRIVATE_PATH = re.compile(
    r"^~|^/(?:proc|etc|dev|sys)/|(?:^|/)\.(?:ssh|aws|gnupg|kube|docker|netrc|pgpass|env|git|config)(?:$|[/.])"
    r"|\bid_(?:rsa|dsa|ecdsa|ed25519)\b"
)
"""Where keys and what belongs to the machine are kept."""

SUPPRESSION = re.compile(
    r"#[\s#]{0,16}(?:graphbus\s*:|noqa|nosec|nosemgrep|nosonar|lgtm|codeql|gitleaks|trufflehog|skipcq|checkov|bandit|semgrep|type:\s*ignore"
    r"|(?:pragma|pyright|pyre|pytype|mypy|pylint|ruff|flake8|isort|fmt|black|yapf|autopep8|pyrefly|ty|sonar|deepsource|coverage)\b"
    r"\s*[:\[-])",
    re.IGNORECASE,
)
INTERNAL = re.compile(r"[.\[]_{0,8}__(?:globals|builtins|subclasses|bases|base|mro|code|dict|class|init|import)__")
SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]{0,30}\Z")
ADDRESS = re.compile(
    r"://[^\s'\"]{0,200}|\b(?:\d{1,3}\.){3}\d{1,3}\b"
    r"|(?<![\w:])(?:[0-9A-Fa-f]{1,4}:){4,7}[0-9A-Fa-f]{1,4}\b|(?<![\w:])(?:[0-9A-Fa-f]{1,4}:){1,6}:[0-9A-Fa-f]"
)
SECRET = re.compile(
    r"sk-[A-Za-z0-9_-]{16}|AKIA[0-9A-Z]{16}|gh[pousr]_[A-Za-z0-9]{20}|github_pat_\w{20}|glpat-[\w-]{16}"
    r"|xox[abeoprs]-[\w-]{10}|AIza[\w-]{30}|-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----"
    r"|eyJ[\w-]{8,400}\.eyJ[\w-]{8}|[sr]k_live_\w{16}"
)
SECRET_NAME = re.compile(
    r"pass(word|wd|phrase)|secret|api_?key|(access|auth|bearer)_?token|private_?key|credential", re.IGNORECASE
)
SECRET_VALUE = re.compile(r"(?=\S{8,400}$)(?=.*\d)(?=.*[A-Za-z])")


def code_of(dotted: str) -> str:
    """Say what a dotted name can do, by its longest known prefix; empty: nobody knows.

    A module that another one holds counts by its own name: `random._os.remove` as `os.remove`.
    """
    parts = dotted.split(".")
    for first in range(len(parts) - 1, 0, -1):
        if parts[first].lstrip("_") in MODULES_INSIDE:
            parts = [parts[first].lstrip("_"), *parts[first + 1 :]]
            break
    else:
        parts[0] = parts[0].lstrip("_") or parts[0]
    for count in range(len(parts), 0, -1):
        found = USES.get(".".join(parts[:count]))
        if found is not None:
            return found
    return ""
