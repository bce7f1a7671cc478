# The service on embedded engines, or on servers without their backups: docker build -t mauve .
# With pg_dump, to back up PostgreSQL, and verify-clickhouse: docker build --target scaled -t mauve-scaled .
ARG BASE=python:3.11-slim

FROM ${BASE} AS build
WORKDIR /build
COPY requirements ./requirements
RUN python3 -m venv /opt/mauve \
    && /opt/mauve/bin/pip install --no-cache-dir --require-hashes -r requirements/runtime.txt \
    && python3 -m venv tools \
    && tools/bin/pip install --no-cache-dir --require-hashes -r requirements/build.txt -r requirements/docs.txt
COPY pyproject.toml LICENSE ./
COPY src ./src
# The documentation, and the files that it links to.
COPY CHANGELOG.md CONTRIBUTING.md SECURITY.md compose.yaml ./
COPY docs ./docs
COPY clients/spool.md ./clients/
COPY clients/fixtures/spool ./clients/fixtures/spool
COPY clients/python/README.md ./clients/python/
COPY clients/typescript/README.md ./clients/typescript/
COPY deploy/Caddyfile deploy/compose.scaled.yaml deploy/fly.toml deploy/mauve.service deploy/nginx.conf deploy/railway.json ./deploy/
COPY deploy/scaled ./deploy/scaled
RUN tools/bin/python docs/site/build.py \
    && tools/bin/pip wheel --no-deps --no-build-isolation --wheel-dir dist . \
    && /opt/mauve/bin/pip install --no-cache-dir --no-deps dist/*.whl \
    && /opt/mauve/bin/pip uninstall --yes pip setuptools \
    && find /opt/mauve -type d -name tests -prune -exec rm -r {} +

FROM ${BASE} AS runtime
LABEL org.opencontainers.image.title="Mauve" \
      org.opencontainers.image.description="A metrics service for developers who run several apps" \
      org.opencontainers.image.licenses="MIT"
RUN useradd --uid 10001 --user-group --no-create-home --home-dir /data --shell /usr/sbin/nologin mauve \
    && install --directory --owner=10001 --group=10001 --mode=0700 /data
COPY --from=build /opt/mauve /opt/mauve
ENV PATH=/opt/mauve/bin:$PATH PYTHONDONTWRITEBYTECODE=1 \
    MAUVE_DATA=/data MAUVE_HOST=0.0.0.0 MAUVE_LOG=json
WORKDIR /app
# No VOLUME: some platforms refuse it, and each says itself where the data is.
USER 10001:10001
EXPOSE 8080 8081
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=30s --timeout=15s --start-period=120s --retries=3 CMD ["mauve", "ready"]
ENTRYPOINT ["mauve"]
CMD ["serve"]

FROM runtime AS scaled
# pg_dump must be of the server's version or newer: from PostgreSQL's own packages.
ARG POSTGRESQL=18
USER 0:0
# Not pinned: the archive keeps only the newest version of a package.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends postgresql-common \
    && /usr/share/postgresql-common/pgdg/apt.postgresql.org.sh -y \
    && apt-get install --yes --no-install-recommends "postgresql-client-$POSTGRESQL" \
    && rm -rf /var/lib/apt/lists/*
COPY deploy/verify-clickhouse ./deploy/verify-clickhouse
USER 10001:10001

FROM runtime AS service
