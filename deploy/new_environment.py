"""Writes deploy/{setpoint,owner,helm,postgres}.env with fresh keys and passwords. `make secrets` calls it.

The files are readable by their owner only and never overwritten: the keys open what the database holds, and a lost
credential key is a lost set of cluster credentials. Standard library only.
"""

from __future__ import annotations

import base64
import os
import secrets
import sys
import uuid
from pathlib import Path

FOLDER = Path(__file__).resolve().parent


def files() -> dict[str, str]:
    owners, applications = secrets.token_hex(24), secrets.token_hex(24)  # no character that a URL would need quoted
    application = f"postgresql://setpoint_app:{applications}@postgres:5432/setpoint"
    return {
        "setpoint.env": f"""\
# Keep a copy of these keys apart from the database's backups: docs/operating.md says what each one opens.
SETPOINT_URL=http://127.0.0.1:8000
SETPOINT_HOSTS=127.0.0.1,localhost
SETPOINT_DATABASE_URL={application}
SETPOINT_BROKER_URL=redis://redis:6379/0
SETPOINT_SECRET_KEY={secrets.token_urlsafe(48)}
SETPOINT_TOKEN_PEPPER={secrets.token_urlsafe(48)}
SETPOINT_AUDIT_KEY={secrets.token_urlsafe(48)}
SETPOINT_CREDENTIAL_KEYS={base64.urlsafe_b64encode(secrets.token_bytes(32)).decode()}
SETPOINT_INSTALLATION={uuid.uuid4()}
""",
        # Only the service `migrate` is given these: the role that owns the tables could change the audit record.
        "owner.env": f"""\
SETPOINT_DATABASE_URL=postgresql://setpoint:{owners}@postgres:5432/setpoint
SETPOINT_APPLICATION_DATABASE_URL={application}
""",
        # Only the service `helm` is given this one: what it opens is the identity that installs components.
        "helm.env": f"SETPOINT_HELM_CREDENTIAL_KEYS={base64.urlsafe_b64encode(secrets.token_bytes(32)).decode()}\n",
        "postgres.env": f"POSTGRES_USER=setpoint\nPOSTGRES_DB=setpoint\nPOSTGRES_PASSWORD={owners}\n",
    }


def main() -> int:
    there = [name for name in files() if (FOLDER / name).exists()]
    if there:
        sys.stderr.write(f"deploy/{there[0]} exists; it is never overwritten. Move it away to start anew.\n")
        return 1
    for name, content in files().items():
        handle = os.open(FOLDER / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "w") as out:
            out.write(content)
        sys.stdout.write(f"wrote deploy/{name}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
