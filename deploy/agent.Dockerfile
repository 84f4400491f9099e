# The node agent: the standard library, contract/ and agent/. Build from the repository's root:
#   docker build -f deploy/agent.Dockerfile -t setpoint-agent:0.3.0 .
# Any image with `python` 3.11 or newer and nsenter: --build-arg BASE=… names a mirror of your own.
# docs/operating.md, Build the images yourself, says how the digest is renewed.
ARG BASE=docker.io/library/python:3.13.14-slim-trixie@sha256:9662417aace5ae7b8e2609cce472b72a8958e134ba372808abe9cc1a0c0125e6
FROM ${BASE}
# nsenter comes with util-linux, which the slim image has; the build fails here if that ever changes.
RUN nsenter --version
WORKDIR /opt/setpoint
COPY contract/ contract/
COPY agent/ agent/
# Compiled here, because the root file system is read-only when it runs; -OO leaves docstrings out of memory. By content, for
# the time of a file differs from build to build.
RUN python -OO -m compileall -q --invalidation-mode=unchecked-hash agent contract
# One allocator arena: a second one for the watching thread would cost every node a megabyte.
ENV PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 MALLOC_ARENA_MAX=1
# -S: nothing of site-packages; -E is left out, for ENV above is ours.
ENTRYPOINT ["python", "-S", "-OO", "-m", "agent"]
