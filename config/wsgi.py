import os
from importlib import import_module

from django.core.wsgi import get_wsgi_application

from config import memory, private

private.settle()
os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
application = get_wsgi_application()
import_module("audit.sealing").check_at_start("web")  # its models are there only now
memory.settle()
