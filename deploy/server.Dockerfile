# Every server process: web, workers, beat, watch. `docker build --file deploy/server.Dockerfile .`
# What is installed is what requirements/*.txt and package-lock.json pin by hash. `make images` builds it as a release does:
# from the commit's files, with the commit's time, so that two builds of a commit on one base have the same digest.

# Any image with `python` 3.11 or newer, its pip and venv: --build-arg BASE=… names a mirror of your own.
# docs/operating.md, Build the images yourself, says how the digest is renewed.
ARG BASE=docker.io/library/python:3.13.14-slim-trixie@sha256:9662417aace5ae7b8e2609cce472b72a8958e134ba372808abe9cc1a0c0125e6

FROM ${BASE} AS packages
COPY requirements/base.txt /tmp/base.txt
# Without pip in it, which nothing of the product needs. Compiled by content: the time of a file differs from build to build.
RUN python -m venv --without-pip /opt/setpoint/venv \
 && pip --python /opt/setpoint/venv install --no-cache-dir --no-compile --require-hashes --requirement /tmp/base.txt \
 && python -m compileall -q --invalidation-mode=unchecked-hash /opt/setpoint/venv/lib

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
# By hand, for useradd notes the day.
RUN echo 'setpoint:x:10001:10001::/var/lib/setpoint:/usr/sbin/nologin' >> /etc/passwd \
 && echo 'setpoint:x:10001:' >> /etc/group \
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
RUN python -m compileall -q --invalidation-mode=unchecked-hash .
USER 10001
EXPOSE 8000
CMD ["gunicorn", "config.wsgi:application", "--bind=0.0.0.0:8000", "--workers=3", "--threads=4", "--timeout=60", "--keep-alive=75", "--worker-tmp-dir=/dev/shm", "--access-logfile=-"]
