# The command line as an image, from the wheel that `make wheel` has built:
#
#     make wheel && docker build -t delta-sharing .
#     docker run --rm -v "$PWD":/work delta-sharing ls config.share
FROM python:3.13-slim

# No build tools: every dependency has a wheel for Linux.
COPY dist/delta_sharing_client-*-py3-none-any.whl /tmp/
RUN for wheel in /tmp/delta_sharing_client-*.whl; do \
        pip install --no-cache-dir "$wheel[cli,delta,duckdb,oauth,remote,sql]" || exit 1; \
    done \
    && rm /tmp/delta_sharing_client-*.whl

# Profiles and exports are in the folder that is mounted here. No process runs as root.
RUN useradd --create-home --uid 1000 reader
USER reader
WORKDIR /work
ENTRYPOINT ["delta-sharing"]
CMD ["--help"]
