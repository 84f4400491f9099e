# The node agent: the standard library, contract/ and agent/. Build from the repository's root:
#   docker build -f deploy/agent.Dockerfile -t setpoint-agent:0.2.0 .
# Any image with `python` 3.11 or newer and nsenter: --build-arg BASE=… names a mirror of your own, or a digest.
ARG BASE=python:3.13-slim
FROM ${BASE}
# nsenter comes with util-linux, which the slim image has; the build fails here if that ever changes.
RUN nsenter --version
WORKDIR /opt/setpoint
COPY contract/ contract/
COPY agent/ agent/
# Compiled here, because the root file system is read-only when it runs; -OO leaves docstrings out of memory.
RUN python -OO -m compileall -q agent contract
# One allocator arena: a second one for the watching thread would cost every node a megabyte.
ENV PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 MALLOC_ARENA_MAX=1
# -S: nothing of site-packages; -E is left out, for ENV above is ours.
ENTRYPOINT ["python", "-S", "-OO", "-m", "agent"]
