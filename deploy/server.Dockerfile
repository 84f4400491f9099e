# Every server process: web, worker, beat, watch. `docker build --file deploy/server.Dockerfile .`
# What is installed is what requirements/*.txt and package-lock.json pin by hash.

# Any image with `python` 3.11 or newer, its pip and venv: --build-arg BASE=… names a mirror of your own, or a digest.
ARG BASE=python:3.13-slim

FROM ${BASE} AS packages
COPY requirements/base.txt /tmp/base.txt
RUN python -m venv /opt/setpoint/venv \
 && /opt/setpoint/venv/bin/pip install --no-cache-dir --require-hashes --requirement /tmp/base.txt

FROM ${BASE} AS browser
WORKDIR /build
COPY requirements/node.txt requirements/node.txt
RUN pip install --no-cache-dir --require-hashes --requirement requirements/node.txt
COPY package.json package-lock.json .npmrc ./
COPY tools tools
COPY common common
COPY templates templates
RUN python tools/vendor.py

FROM ${BASE}
ENV PATH=/opt/setpoint/venv/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    DJANGO_SETTINGS_MODULE=config.settings \
    SETPOINT_EMBEDDED=false \
    SETPOINT_VAR=/var/lib/setpoint
RUN useradd --uid 10001 --no-create-home --home-dir /var/lib/setpoint --shell /usr/sbin/nologin setpoint \
 && install -d -o setpoint -g setpoint -m 0700 /var/lib/setpoint
WORKDIR /opt/setpoint/app
COPY --from=packages /opt/setpoint/venv /opt/setpoint/venv
COPY manage.py LICENSE* CHANGELOG.md ./
COPY config config
COPY jobs jobs
COPY compliance compliance
COPY gpus gpus
COPY notices notices
COPY components components
COPY clusters clusters
COPY profiles profiles
COPY accounts accounts
COPY audit audit
COPY common common
COPY contract contract
COPY deploy deploy
COPY templates templates
COPY static static
COPY --from=browser /build/static/vendor static/vendor
# Collecting needs settings, not secrets: embedded settings in a directory that this layer throws away.
RUN SETPOINT_EMBEDDED=true SETPOINT_VAR=/tmp/build python manage.py collectstatic --no-input && rm -rf /tmp/build
# Compiled here, for its root file system is read-only when it runs.
RUN python -m compileall -q .
USER 10001
EXPOSE 8000
CMD ["gunicorn", "config.wsgi:application", "--bind=0.0.0.0:8000", "--workers=3", "--threads=4", "--timeout=60", "--worker-tmp-dir=/dev/shm", "--access-logfile=-"]
