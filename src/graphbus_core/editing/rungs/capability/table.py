"""What is known to be harmless, and what is known to act and which power that is: data; `judge.py` says how it is read.

Harmless is what computes from its arguments and changes nothing but what it was given: it may be called, passed and stored.
Everything else is refused where it is new.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Mapping
from functools import cache

_CHANGEABLE = 1 << 9
"""The flag of a class that was made by Python code."""


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


def _by_name(table: dict[str, str]) -> dict[str, str]:
    return {name: code for code, names in table.items() for name in names.split()}


BUILTINS = _words(
    "abs aiter all anext any ascii bin bool bytearray bytes callable chr classmethod complex dict divmod enumerate "
    "filter float format frozenset hash hex id int isinstance issubclass iter len list map max memoryview min next "
    "object oct ord pow print property range repr reversed round set slice sorted staticmethod str sum tuple zip True "
    "False None Ellipsis NotImplemented __name__ __debug__ ArithmeticError AssertionError AttributeError "
    "BlockingIOError BrokenPipeError BufferError BytesWarning ChildProcessError ConnectionAbortedError ConnectionError "
    "ConnectionRefusedError ConnectionResetError DeprecationWarning EOFError EncodingWarning EnvironmentError Exception "
    "ExceptionGroup FileExistsError FileNotFoundError FloatingPointError FutureWarning IOError ImportError "
    "ImportWarning IndexError InterruptedError IsADirectoryError KeyError LookupError MemoryError ModuleNotFoundError "
    "NameError NotADirectoryError NotImplementedError OSError OverflowError PendingDeprecationWarning PermissionError "
    "ProcessLookupError RecursionError ReferenceError ResourceWarning RuntimeError RuntimeWarning StopAsyncIteration "
    "StopIteration SyntaxError SyntaxWarning SystemError TabError TimeoutError TypeError UnboundLocalError "
    "UnicodeDecodeError UnicodeEncodeError UnicodeError UnicodeTranslateError UnicodeWarning UserWarning ValueError "
    "Warning ZeroDivisionError"
)
CALLED_ONLY = _words("getattr hasattr type super")
"""Builtins whose calls are looked at one by one; as values they could be called with anything."""

CAUGHT_ONLY = _words("BaseException BaseExceptionGroup SystemExit KeyboardInterrupt GeneratorExit")
"""Builtins that may be caught or named as a type, and not raised."""

BY_NAME = _words("operator.attrgetter operator.methodcaller")
"""Members that are harmless only where they are called with the names of harmless attributes."""

_TYPING = (
    "AbstractSet Annotated Any AnyStr AsyncContextManager AsyncGenerator AsyncIterable AsyncIterator Awaitable BinaryIO "
    "Callable ChainMap ClassVar Collection Concatenate Container ContextManager Coroutine Counter DefaultDict Deque "
    "Dict Final FrozenSet Generator Generic Hashable IO ItemsView Iterable Iterator KeysView List Literal LiteralString "
    "Mapping MappingView Match MutableMapping MutableSequence MutableSet NamedTuple Never NewType NoReturn NotRequired "
    "Optional OrderedDict ParamSpec ParamSpecArgs ParamSpecKwargs Pattern Protocol ReadOnly Required Reversible Self "
    "Sequence Set Sized SupportsAbs SupportsBytes SupportsComplex SupportsFloat SupportsIndex SupportsInt SupportsRound "
    "TYPE_CHECKING Text TextIO Tuple Type TypeAlias TypeAliasType TypeGuard TypeIs TypeVar TypeVarTuple TypedDict Union "
    "Unpack ValuesView assert_never assert_type cast dataclass_transform deprecated final get_args get_origin "
    "is_typeddict overload override reveal_type runtime_checkable"
)
_PATHS = "PurePath PurePosixPath PureWindowsPath Path PosixPath"
_PATH_TEXT = (
    "join basename dirname split splitext splitdrive normpath normcase isabs commonpath commonprefix sep altsep extsep "
    "pathsep curdir pardir"
)

MODULES: Mapping[str, frozenset[str]] = {
    module: _words(names)
    for module, names in {
        "__future__": "annotations division generators generator_stop print_function unicode_literals absolute_import "
        "with_statement nested_scopes",
        "abc": "ABC abstractmethod",
        "array": "array typecodes",
        "ast": "literal_eval",
        "asyncio": "ALL_COMPLETED Barrier BoundedSemaphore BrokenBarrierError CancelledError Condition Event "
        "FIRST_COMPLETED FIRST_EXCEPTION Future InvalidStateError LifoQueue Lock PriorityQueue Queue QueueEmpty "
        "QueueFull QueueShutDown Semaphore Task TaskGroup Timeout TimeoutError as_completed create_task ensure_future "
        "gather get_running_loop iscoroutine iscoroutinefunction isfuture shield sleep timeout timeout_at to_thread wait "
        "wait_for",
        "base64": "a85decode a85encode b16decode b16encode b32decode b32encode b32hexdecode b32hexencode b64decode "
        "b64encode b85decode b85encode decodebytes encodebytes standard_b64decode standard_b64encode urlsafe_b64decode "
        "urlsafe_b64encode",
        "binascii": "Error Incomplete a2b_base64 a2b_hex b2a_base64 b2a_hex crc32 crc_hqx hexlify unhexlify",
        "bisect": "bisect bisect_left bisect_right insort insort_left insort_right",
        "bz2": "compress decompress BZ2Compressor BZ2Decompressor",
        "calendar": "Calendar FRIDAY HTMLCalendar IllegalMonthError MONDAY SATURDAY SUNDAY THURSDAY TUESDAY TextCalendar "
        "WEDNESDAY calendar day_abbr day_name firstweekday isleap leapdays month month_abbr month_name monthcalendar "
        "monthrange timegm weekday weekheader",
        "cmath": "acos acosh asin asinh atan atanh cos cosh e exp inf infj isclose isfinite isinf isnan log log10 nan "
        "nanj phase pi polar rect sin sinh sqrt tan tanh tau",
        "collections": "ChainMap Counter OrderedDict UserDict UserList UserString defaultdict deque namedtuple",
        "collections.abc": "AsyncGenerator AsyncIterable AsyncIterator Awaitable Buffer ByteString Callable Collection "
        "Container Coroutine Generator Hashable ItemsView Iterable Iterator KeysView Mapping MappingView MutableMapping "
        "MutableSequence MutableSet Reversible Sequence Set Sized ValuesView",
        "colorsys": "hls_to_rgb hsv_to_rgb rgb_to_hls rgb_to_hsv rgb_to_yiq yiq_to_rgb",
        "contextlib": "AbstractAsyncContextManager AbstractContextManager AsyncExitStack ContextDecorator ExitStack "
        "aclosing asynccontextmanager closing contextmanager nullcontext suppress",
        "contextvars": "ContextVar Token",
        "copy": "copy deepcopy replace",
        "csv": "DictReader DictWriter Error QUOTE_ALL QUOTE_MINIMAL QUOTE_NONE QUOTE_NONNUMERIC Sniffer excel excel_tab "
        "reader unix_dialect writer",
        "dataclasses": "Field FrozenInstanceError InitVar KW_ONLY MISSING asdict astuple dataclass field fields "
        "is_dataclass replace",
        "datetime": "MAXYEAR MINYEAR UTC date datetime time timedelta timezone tzinfo",
        "decimal": "Clamped Context ConversionSyntax Decimal DecimalException DecimalTuple DivisionByZero "
        "DivisionImpossible DivisionUndefined FloatOperation Inexact InvalidContext InvalidOperation MAX_EMAX MAX_PREC "
        "MIN_EMIN MIN_ETINY Overflow ROUND_05UP ROUND_CEILING ROUND_DOWN ROUND_FLOOR ROUND_HALF_DOWN ROUND_HALF_EVEN "
        "ROUND_HALF_UP ROUND_UP Rounded Subnormal Underflow localcontext",
        "difflib": "Differ HtmlDiff IS_CHARACTER_JUNK IS_LINE_JUNK SequenceMatcher context_diff get_close_matches ndiff restore "
        "unified_diff",
        "email.utils": "format_datetime formataddr formatdate getaddresses parseaddr parsedate_to_datetime",
        "enum": "CONFORM CONTINUOUS EJECT Enum EnumCheck Flag FlagBoundary IntEnum IntFlag KEEP NAMED_FLAGS ReprEnum "
        "STRICT StrEnum UNIQUE auto member nonmember property unique verify",
        "errno": "EACCES EAGAIN ECONNREFUSED ECONNRESET EEXIST EINTR EINVAL EIO ENOENT ENOSPC EPERM EPIPE ETIMEDOUT "
        "errorcode",
        "fnmatch": "filter fnmatch fnmatchcase translate",
        "fractions": "Fraction",
        "functools": "WRAPPER_ASSIGNMENTS WRAPPER_UPDATES cache cached_property cmp_to_key lru_cache partial "
        "partialmethod reduce singledispatch singledispatchmethod total_ordering wraps",
        "graphlib": "CycleError TopologicalSorter",
        "gzip": "BadGzipFile compress decompress",
        "hashlib": "algorithms_available algorithms_guaranteed blake2b blake2s md5 new pbkdf2_hmac scrypt sha1 sha224 "
        "sha256 sha384 sha3_224 sha3_256 sha3_384 sha3_512 sha512 shake_128 shake_256",
        "heapq": "heapify heappop heappush heappushpop heapreplace merge nlargest nsmallest",
        "hmac": "HMAC compare_digest digest new",
        "html": "escape unescape",
        "http": "HTTPMethod HTTPStatus",
        "inspect": "cleandoc isasyncgen isawaitable isclass iscoroutine iscoroutinefunction isfunction isgenerator ismethod",
        "io": "BytesIO DEFAULT_BUFFER_SIZE SEEK_CUR SEEK_END SEEK_SET StringIO TextIOBase UnsupportedOperation",
        "ipaddress": "AddressValueError IPv4Address IPv4Interface IPv4Network IPv6Address IPv6Interface IPv6Network "
        "NetmaskValueError collapse_addresses ip_address ip_interface ip_network summarize_address_range",
        "itertools": "accumulate batched chain combinations combinations_with_replacement compress count cycle "
        "dropwhile filterfalse groupby islice pairwise permutations product repeat starmap takewhile tee zip_longest",
        "json": "JSONDecodeError JSONDecoder JSONEncoder dump dumps load loads",
        "keyword": "iskeyword kwlist softkwlist",
        "logging": "CRITICAL DEBUG ERROR FATAL INFO Logger LoggerAdapter NOTSET NullHandler WARN WARNING critical debug "
        "error exception getLevelName getLogger info log warning",
        "lzma": "LZMACompressor LZMADecompressor LZMAError compress decompress",
        "math": "acos acosh asin asinh atan atan2 atanh cbrt ceil comb copysign cos cosh degrees dist e erf erfc exp "
        "exp2 expm1 fabs factorial floor fma fmod frexp fsum gamma gcd hypot inf isclose isfinite isinf isnan isqrt lcm "
        "ldexp lgamma log log10 log1p log2 modf nan nextafter perm pi pow prod radians remainder sin sinh sqrt sumprod "
        "tan tanh tau trunc ulp",
        "numbers": "Complex Integral Number Rational Real",
        "operator": "abs add and_ concat contains countOf eq floordiv ge getitem gt index indexOf inv invert is_ is_not "
        "itemgetter le length_hint lshift lt matmul mod mul ne neg not_ or_ pos pow rshift sub truediv truth xor",
        "os": "PathLike altsep curdir extsep fspath linesep pardir path pathsep sep",
        "os.path": _PATH_TEXT,
        "pathlib": _PATHS,
        "posixpath": _PATH_TEXT,
        "pprint": "PrettyPrinter pformat pp pprint",
        "queue": "Empty Full LifoQueue PriorityQueue Queue ShutDown SimpleQueue",
        "random": "Random SystemRandom betavariate binomialvariate choice choices expovariate gammavariate gauss "
        "getrandbits lognormvariate normalvariate paretovariate randbytes randint random randrange sample shuffle "
        "triangular uniform vonmisesvariate weibullvariate",
        "re": "A ASCII DOTALL I IGNORECASE M MULTILINE Match NOFLAG Pattern PatternError RegexFlag S U UNICODE VERBOSE "
        "X compile error escape findall finditer fullmatch match search split sub subn",
        "reprlib": "Repr recursive_repr repr",
        "secrets": "SystemRandom choice compare_digest randbelow randbits token_bytes token_hex token_urlsafe",
        "shlex": "join quote split",
        "statistics": "NormalDist StatisticsError correlation covariance fmean geometric_mean harmonic_mean "
        "linear_regression mean median median_grouped median_high median_low mode multimode pstdev pvariance quantiles "
        "stdev variance",
        "string": "Template ascii_letters ascii_lowercase ascii_uppercase capwords digits hexdigits octdigits printable "
        "punctuation whitespace",
        "struct": "Struct calcsize error iter_unpack pack unpack unpack_from",
        "sys": "byteorder float_info getsizeof intern maxsize maxunicode platform version version_info",
        "textwrap": "TextWrapper dedent fill indent shorten wrap",
        "threading": "Barrier BoundedSemaphore BrokenBarrierError Condition Event Lock RLock Semaphore current_thread "
        "get_ident local",
        "time": "asctime ctime gmtime localtime mktime monotonic monotonic_ns perf_counter perf_counter_ns process_time "
        "process_time_ns sleep strftime strptime struct_time thread_time thread_time_ns time time_ns timezone tzname",
        "tomllib": "TOMLDecodeError loads",
        "traceback": "format_exc format_exception format_exception_only",
        "types": "AsyncGeneratorType CoroutineType EllipsisType GeneratorType MappingProxyType NoneType "
        "NotImplementedType SimpleNamespace TracebackType UnionType",
        "typing": _TYPING,
        "typing_extensions": _TYPING,
        "unicodedata": "bidirectional category combining decimal decomposition digit east_asian_width is_normalized "
        "lookup mirrored name normalize numeric",
        "urllib.parse": "ParseResult SplitResult parse_qs parse_qsl quote quote_from_bytes quote_plus unquote "
        "unquote_plus unquote_to_bytes urldefrag urlencode urljoin urlparse urlsplit urlunparse urlunsplit",
        "uuid": "NAMESPACE_DNS NAMESPACE_OID NAMESPACE_URL NAMESPACE_X500 SafeUUID UUID uuid3 uuid4 uuid5",
        "warnings": "warn",
        "weakref": "ReferenceType WeakKeyDictionary WeakMethod WeakSet WeakValueDictionary proxy ref",
        "xml.sax.saxutils": "escape quoteattr unescape",
        "zlib": "adler32 compress compressobj crc32 decompress decompressobj error",
        "zoneinfo": "ZoneInfo ZoneInfoNotFoundError available_timezones",
        # packages of other people, where the project has them
        "attr": "define evolve field frozen asdict",
        "attrs": "define evolve field frozen asdict",
        "msgspec": "Meta Struct UNSET UnsetType ValidationError convert field to_builtins",
        "msgspec.json": "decode encode",
        "msgspec.structs": "asdict replace",
        "pydantic": "BaseModel ConfigDict Field ValidationError computed_field field_serializer field_validator "
        "model_validator",
        # what an agent may know of GraphBus
        "graphbus_core": "Event GraphBusError GraphBusNode depends_on publishes schema_method subscribe",
        "graphbus_core.decorators": "depends_on publishes schema_method subscribe",
        "graphbus_core.errors": "GraphBusError RunError RequestTimeoutError DeadlockError",
        "graphbus_core.model.messages": "Event",
        "graphbus_core.model.state": "State",
        "graphbus_core.node": "GraphBusNode",
    }.items()
}
"""Module -> its members that are harmless, as values too."""

ATTRIBUTES = _words(
    # text, bytes, numbers
    "capitalize casefold center count decode encode endswith expandtabs find fromhex hex index isalnum isalpha isascii "
    "isdecimal isdigit isidentifier islower isnumeric isprintable isspace istitle isupper join ljust lower lstrip "
    "maketrans partition removeprefix removesuffix rfind rindex rjust rpartition rsplit rstrip split splitlines "
    "startswith strip swapcase title translate upper zfill as_integer_ratio bit_count bit_length conjugate denominator "
    "from_bytes imag is_integer numerator real to_bytes cast epsilon major micro "
    # containers
    "add append appendleft clear copy difference difference_update discard elements extend extendleft fromkeys get "
    "indices insert intersection intersection_update isdisjoint issubset issuperset items keys maxlen most_common "
    "move_to_end new_child parents pop popitem popleft remove reverse rotate setdefault sort start step subtract "
    "symmetric_difference symmetric_difference_update total union update values maps _asdict _fields _make _replace "
    "default_factory from_iterable getvalue data mapping default metadata kwargs "
    # dates and times
    "astimezone combine ctime date day days dst fold fromisocalendar fromisoformat fromordinal fromtimestamp hour "
    "isocalendar isoformat isoweekday key max microsecond microseconds min minute month now resolution second seconds "
    "strftime strptime time timestamp timetuple timetz today toordinal total_seconds tzinfo tzname utc utcfromtimestamp "
    "utcnow utcoffset utctimetuple week weekday year tm_year tm_mon tm_mday tm_hour tm_min tm_sec tm_wday tm_yday "
    "tm_isdst tm_gmtoff tm_zone "
    # decimals and fractions
    "adjusted as_tuple canonical compare compare_signal compare_total compare_total_mag copy_abs copy_negate copy_sign "
    "create_decimal exp fma from_decimal from_float is_canonical is_finite is_infinite is_nan is_normal is_qnan "
    "is_signed is_snan is_subnormal is_zero limit_denominator ln log10 logb max_mag min_mag minus multiply divide "
    "next_minus next_plus next_toward normalize number_class power prec quantize radix remainder_near rounding "
    "same_quantum scaleb sqrt to_eng_string to_integral to_integral_exact to_integral_value digits exponent sign "
    "cdf from_samples inv_cdf mean median mode overlap pdf quantiles samples stdev variance zscore intercept slope "
    # patterns, texts, ids, addresses
    "end expand findall finditer flags fullmatch group groupdict groupindex groups lastgroup lastindex match pattern "
    "pos regs search span string sub subn safe_substitute substitute template get_identifiers is_valid fill wrap bytes "
    "bytes_le fields int node urn variant version fragment geturl hostname netloc password path port query scheme "
    "username is_global is_link_local is_loopback is_multicast is_private is_reserved is_unspecified network_address "
    "broadcast_address netmask num_addresses prefixlen subnet_of supernet_of hosts exploded compressed packed "
    "address_exclude hostmask ip ipv4_mapped max_prefixlen overlaps params reverse_pointer sixtofour subnets supernet "
    "with_hostmask with_netmask with_prefixlen "
    # paths as names
    "anchor as_posix as_uri drive is_absolute is_relative_to joinpath name parent parts relative_to root stem suffix "
    "suffixes with_name with_segments with_stem with_suffix full_match "
    # enums, statuses, errors
    "value phrase description args add_note errno strerror filename exceptions subgroup derive reason object msg doc "
    "lineno colno message encoding offset end_offset end_lineno text is_informational is_success is_redirection "
    "is_client_error is_server_error "
    # locks, queues, tasks
    "acquire release locked notify notify_all wait wait_for set is_set put put_nowait get_nowait task_done empty full "
    "qsize maxsize cancel cancelled done exception result set_result set_exception add_done_callback "
    "remove_done_callback create_task create_future reset var old_value deadline expired reschedule when n_waiting "
    "broken abort enter_context enter_async_context push push_async_exit callback push_async_callback pop_all "
    "cancelling uncancel get_name set_name parties "
    # random numbers
    "betavariate choice choices expovariate gammavariate gauss getrandbits getstate lognormvariate normalvariate "
    "paretovariate randbytes randint random randrange sample shuffle triangular uniform vonmisesvariate "
    "weibullvariate "
    # hashes and packing
    "digest hexdigest block_size digest_size pack unpack unpack_from iter_unpack size ratio quick_ratio get_opcodes "
    "get_matching_blocks set_seqs set_seq1 set_seq2 real_quick_ratio find_longest_match get_grouped_opcodes a b "
    # functions that remember
    "cache_clear cache_info hits misses currsize "
    # logs
    "critical debug error info isEnabledFor log warning getChild getEffectiveLevel hasHandlers level extra "
    # events of GraphBus
    "topic src payload event_id causation_id correlation_id hops trail published_by code hint "
    # vectors of bytes
    "byteswap tobytes tolist nbytes itemsize typecode frombytes fromlist"
)
"""Attributes of plain data: whatever object has them, reading or calling them gives nobody a new power."""

OF_INSTANCES: Mapping[str, frozenset[str]] = {
    **dict.fromkeys(
        ("io.StringIO", "io.BytesIO", "builtins.open"),
        _words("write writelines read readline readlines getvalue getbuffer seek tell truncate close closed flush"),
    ),
    **dict.fromkeys(("csv.writer", "csv.DictWriter"), _words("writerow writerows writeheader fieldnames dialect")),
    **dict.fromkeys(("csv.reader", "csv.DictReader"), _words("line_num fieldnames dialect")),
    "graphlib.TopologicalSorter": _words("prepare is_active get_ready static_order"),
    "graphbus_core.State": _words("read update_if transaction"),
    "zlib.compressobj": _words("compress flush"),
    "zlib.decompressobj": _words("decompress flush"),
    "decimal.localcontext": _words("Emax Emin traps capitals clamp"),
    "threading.current_thread": _words("ident native_id"),
    "string.Template": _words("delimiter"),
    "random.Random": _words("seed setstate"),
    "csv.Sniffer": _words("sniff has_header"),
    "json.JSONEncoder": _words("iterencode"),
    "json.JSONDecoder": _words("raw_decode"),
    "contextvars.copy_context": _words("run"),
    "contextlib.ExitStack": _words("close"),
    "contextlib.AsyncExitStack": _words("aclose"),
    **dict.fromkeys(
        ("calendar.Calendar", "calendar.TextCalendar", "calendar.HTMLCalendar"),
        _words(
            "firstweekday itermonthdates itermonthdays itermonthdays2 itermonthdays3 itermonthdays4 iterweekdays "
            "monthdatescalendar monthdays2calendar monthdayscalendar yeardatescalendar yeardayscalendar formatmonth "
            "formatweek formatday formatyear formatweekheader formatmonthname"
        ),
    ),
}
"""What else may be touched of an object whose making is seen."""

OPEN = _words("types.SimpleNamespace threading.local")
"""Objects whose attributes are whatever is set: names of their own, as the keys of a dictionary."""

TYPES_IN_SMALL_LETTERS = _words(
    "array defaultdict deque date datetime time timedelta timezone localcontext local count cycle chain"
)
"""Members that make objects of their own, beside those that begin with a capital letter."""

MEMBERS_OF_ENUMS = _words("http.HTTPStatus http.HTTPMethod uuid.SafeUUID re.RegexFlag enum.FlagBoundary enum.EnumCheck")
"""Classes whose call gives a member that everybody shares."""

MUTATORS = _words(
    "add append appendleft clear difference_update discard extend extendleft insert intersection_update move_to_end pop "
    "popitem popleft remove reverse rotate setdefault sort subtract symmetric_difference_update update"
)
"""Attributes that change the container they are called on: not for containers of other modules and classes."""

NODE = _words("publish request call log state on_start on_stop handle_event SUBSCRIBE SYSTEM_PROMPT IS_ARBITER")
"""The public interface of a node."""

INSIDE_OF_NODES = _words("_connection _connected")
"""What ties a node to its graph, and belongs to GraphBus."""

NOT_TO_REPLACE = _words("publish request call log state _connection _connected")
"""What of a node its agent may not define or set."""

GUARDED: Mapping[str, str] = {"IS_ARBITER": "G3.arbiter", "SYSTEM_PROMPT": "G3.prompt"}
"""Attributes that say what an agent is in a negotiation."""

DUNDERS = _words(
    "__init__ __name__ __qualname__ __doc__ __len__ __str__ __repr__ __eq__ __ne__ __hash__ __enter__ __exit__ "
    "__aenter__ __aexit__ __iter__ __next__ __aiter__ __anext__ __contains__ __lt__ __le__ __gt__ __ge__ __add__ "
    "__sub__ __mul__ __getitem__ __post_init__ __version__ __module__ __all__ __members__ __cause__ __context__ "
    "__notes__ __abs__ __neg__ __bool__ __float__ __int__ __index__ __round__ __format__ __or__ __and__"
)
"""Attributes with internal names that lead nowhere and change nothing."""

OF_MODULES = _words("__name__ __doc__ __version__ __all__")
"""What may be asked of a module."""

OF_CLASSES = _words("__name__ __qualname__ __doc__ __module__")
"""What may be asked of the class of an object."""

ONLY_DECORATORS = _words(
    "dataclasses.dataclass functools.wraps functools.total_ordering typing.runtime_checkable enum.unique enum.verify "
    "attrs.define attrs.frozen attr.define attr.frozen graphbus_core.subscribe graphbus_core.publishes "
    "graphbus_core.schema_method graphbus_core.depends_on graphbus_core.decorators.subscribe graphbus_core.decorators.publishes "
    "graphbus_core.decorators.schema_method graphbus_core.decorators.depends_on"
)
"""What changes the class or function that it is given: called by hand it would change those of others."""

MADE_BY_CALL = _words("enum.Enum enum.Flag enum.IntEnum enum.IntFlag enum.StrEnum enum.ReprEnum")
"""Bases whose call makes a class, under whatever name and module the call says."""

MADE_BY = _words("functools.partial builtins.dict builtins.list builtins.tuple builtins.set builtins.frozenset builtins.iter "
                 "builtins.reversed builtins.sorted builtins.enumerate builtins.zip builtins.next")  # fmt: skip
"""What gives back, in one way or another, what it was given."""

GENERIC = _words("functools.singledispatch functools.singledispatchmethod")
"""Decorators that make a function of which other functions of its file become parts."""

# --- decorators, bases -------------------------------------------------------------------------

DECORATORS = _words(
    "builtins.property builtins.staticmethod builtins.classmethod dataclasses.dataclass abc.abstractmethod "
    "contextlib.contextmanager contextlib.asynccontextmanager functools.cache functools.lru_cache "
    "functools.cached_property functools.wraps functools.total_ordering functools.singledispatch "
    "functools.singledispatchmethod enum.unique enum.verify typing.runtime_checkable typing.overload typing.override "
    "typing.final typing_extensions.override typing_extensions.final typing_extensions.overload attrs.define "
    "attrs.frozen attr.define attr.frozen pydantic.field_validator pydantic.model_validator pydantic.computed_field "
    "pydantic.field_serializer graphbus_core.subscribe graphbus_core.publishes graphbus_core.schema_method "
    "graphbus_core.decorators.subscribe graphbus_core.decorators.publishes graphbus_core.decorators.schema_method"
)
"""What code may newly bear; `@depends_on` changes the graph and is not among them."""

ONLY_IN_WITH = _words("decimal.localcontext")
"""What changes something for everybody until its block ends."""

BASES = _words(
    "builtins.object builtins.Exception builtins.ValueError builtins.TypeError builtins.KeyError builtins.IndexError "
    "builtins.LookupError builtins.RuntimeError builtins.ArithmeticError builtins.NotImplementedError "
    "builtins.AttributeError builtins.OSError builtins.TimeoutError builtins.ConnectionError builtins.PermissionError "
    "builtins.UserWarning builtins.str builtins.int builtins.float builtins.dict builtins.list builtins.set "
    "builtins.tuple builtins.frozenset enum.Flag enum.IntFlag enum.Enum enum.StrEnum enum.IntEnum typing.TypedDict "
    "typing.NamedTuple typing.Protocol typing.Generic typing_extensions.TypedDict typing_extensions.NamedTuple "
    "typing_extensions.Protocol abc.ABC msgspec.Struct pydantic.BaseModel collections.UserDict collections.UserList "
    "contextlib.AbstractContextManager contextlib.AbstractAsyncContextManager contextlib.ContextDecorator "
    "logging.LoggerAdapter string.Template "
    "collections.abc.Mapping collections.abc.MutableMapping collections.abc.Sequence "
    "collections.abc.Iterator collections.abc.Iterable collections.abc.Set collections.abc.Hashable "
    "collections.abc.Sized"
)
"""What a new class may be made of; a class that is there already gets no new base."""

SPECIALISED: Mapping[str, str] = {"json.JSONEncoder": "default"}
"""Bases that are made for one method, which the new class defines, and nothing else."""

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
"""Methods with internal names that run where the text shows it: by an operator, a statement or a builtin."""

COMPARED = _words("__eq__ __ne__ __lt__ __le__ __gt__ __ge__ __bool__ __contains__ __hash__ __instancecheck__")
"""Methods with which a value decides for itself whether it is the expected one."""

VALUES = _words(
    "builtins.str builtins.int builtins.float builtins.complex builtins.bytes builtins.bool builtins.tuple "
    "builtins.list builtins.dict builtins.set builtins.frozenset"
)
"""Built-in values whose comparison everybody, tests included, relies on."""

BOUND_FREELY = _words("__all__ __version__ __author__ __slots__ __doc__ __match_args__")
"""Internal names that may be bound."""

# --- what acts ---------------------------------------------------------------------------------

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
"""Dotted name -> code, the longest known prefix counts: which power it is that is refused. `is_harmless` says whether it is."""

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
"""Attributes that act on whatever object has them, where `ATTRIBUTES` and the project do not say otherwise."""

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


def is_harmless(dotted: str) -> bool:
    """Tell whether a member of a module, or an attribute of such a member, is on the table."""
    parts = dotted.split(".")
    if parts[0] == "builtins":
        return len(parts) > 1 and parts[1] in BUILTINS and all(_is_plain(part, "") for part in parts[2:])
    for count in range(len(parts) - 1, 0, -1):
        members = MODULES.get(".".join(parts[:count]))
        if members is not None:
            return parts[count] in members and all(_is_plain(part, parts[0]) for part in parts[count + 1 :])
    return False


def _is_plain(attribute: str, package: str) -> bool:
    if package == "graphbus_core":
        return attribute in ("__init__", *OF_CLASSES)
    if attribute.isupper() and not attribute.startswith("_"):
        return True  # a constant of a class: `HTTPStatus.NOT_FOUND`
    return attribute in ATTRIBUTES or attribute in DUNDERS or (attribute == "replace" and package != "pathlib")


@cache
def attributes_of_classes() -> frozenset[str]:
    """Give the attributes of all classes on the table: whoever is given the class could replace them for everybody."""
    found = {*NOT_TO_REPLACE - {"state"}, *LEADING}
    for module, members in MODULES.items():
        if module.partition(".")[0] in sys.stdlib_module_names:
            loaded = importlib.import_module(module) if importlib.util.find_spec(module) else None
            kinds = [kind for kind in (getattr(loaded, name, None) for name in members) if isinstance(kind, type)]
            found.update(name for kind in kinds if kind.__flags__ & _CHANGEABLE for name in dir(kind))
    return frozenset(found)


def makes_objects(dotted: str) -> bool:
    """Tell whether calling a harmless member makes an object that nobody else holds."""
    last = dotted.rpartition(".")[2]
    return dotted not in MEMBERS_OF_ENUMS and (last[:1].isupper() or last in TYPES_IN_SMALL_LETTERS)


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
