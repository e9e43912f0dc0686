# Written by `graphbus docker build`. Generate it again instead of editing it.

FROM registry.example.org/python:3.13-slim@sha256:0000000000000000000000000000000000000000000000000000000000000000 AS libraries
ENV PYTHONDONTWRITEBYTECODE=1 \
    PYTHONPYCACHEPREFIX=/bytecode \
    PIP_DISABLE_PIP_VERSION_CHECK=1
WORKDIR /build
COPY docker/ docker/

# Installs only the listed packages, compares their hashes, and runs no code of theirs. The environment has no pip.
# Another index: --build-arg PIP_INDEX_URL=...; the hashes apply to it as well.
ARG PIP_INDEX_URL
RUN python -m venv --without-pip /venv && \
    python -m pip --python /venv/bin/python install --no-cache-dir --no-compile --root-user-action=ignore \
        --only-binary=:all: --require-hashes --requirement=docker/requirements.txt

# The base has no bytecode, and a container cannot write any: without it, each start would compile for half a second.
# It is not compared with its sources, which no longer change. Packages may contain files that are not valid Python.
RUN python -m compileall -q --invalidation-mode=unchecked-hash -x '/(ensurepip|idlelib|lib2to3|pydoc_data|site-packages|test|tests|tkinter|turtledemo|unittest)/' \
        "$(python -c 'import sysconfig; print(sysconfig.get_path("stdlib"))')" && \
    { python -m compileall -q --invalidation-mode=unchecked-hash /venv/lib || true; }

FROM libraries AS project
WORKDIR /app
COPY docker/graphbus.toml /etc/graphbus/graphbus.toml
COPY agents/ agents/
COPY main.py main.py
COPY pyproject.toml pyproject.toml
COPY .graphbus/ .graphbus/

# The user of the container may read these files, and not write them. Their bytecode is compared with the sources,
# because other files may be mounted in their place.
RUN chmod -R u=rwX,go=rX /app /etc/graphbus && \
    python -m compileall -q --invalidation-mode=checked-hash /app && \
    mkdir -p /bytecode/app

FROM registry.example.org/python:3.13-slim@sha256:0000000000000000000000000000000000000000000000000000000000000000
LABEL \
      org.opencontainers.image.title="shop" \
      org.opencontainers.image.version="1.4.2"

ENV PATH=/venv/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONPYCACHEPREFIX=/bytecode \
    PYTHONUNBUFFERED=1 \
    GRAPHBUS_CONFIG=/etc/graphbus/graphbus.toml

# The one folder that is written to.
RUN ["install", "-d", "-o", "65532", "-g", "65532", "-m", "0750", "/var/lib/graphbus"]

COPY --from=libraries /venv /venv
COPY --from=libraries /bytecode /bytecode
COPY --from=project /bytecode/app /bytecode/app
COPY --from=project /etc/graphbus /etc/graphbus
COPY --from=project /app /app

WORKDIR /app
USER 65532:65532
VOLUME ["/var/lib/graphbus"]
EXPOSE 8080
STOPSIGNAL SIGTERM

HEALTHCHECK --interval=15s --timeout=5s --start-period=30s --retries=3 \
    CMD ["python", "-m", "graphbus_core.hosting.serving.health", "8080"]

# Landlock and seccomp limit it to [tool.graphbus.powers].
ENTRYPOINT ["python", "-m", "graphbus_core.runtime", "--confined"]
CMD ["--health", "0.0.0.0:8080"]
