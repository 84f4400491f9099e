import os

from django.core.wsgi import get_wsgi_application

from config import memory, private

private.settle()
os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
application = get_wsgi_application()
memory.settle()
