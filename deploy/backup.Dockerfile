# The server's image with PostgreSQL's client programs, for `manage.py backup` and `manage.py restore`; apart from it, for no
# other process needs them: `docker build --build-arg SERVER=setpoint-server:0.3.0 --file deploy/backup.Dockerfile deploy`.
ARG SERVER=setpoint-server:0.3.0
FROM ${SERVER}
# pg_dump reads servers of its own version and older ones. Debian 13 has 17; for 18, a SERVER whose apt knows apt.postgresql.org.
ARG CLIENT=postgresql-client-17
USER 0
# No log, cache or list stays: they hold the time of the build.
RUN apt-get update -qq \
 && apt-get install -y -qq --no-install-recommends ${CLIENT} \
 && rm -rf /var/lib/apt/lists/* /var/cache/apt/* /var/cache/ldconfig/aux-cache /var/log/* \
 && pg_dump --version && pg_restore --version && psql --version
USER 10001
CMD ["python", "manage.py", "backup", "--help"]
