#!/usr/bin/env python
import os
import sys

if __name__ == "__main__":
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
    if sys.argv[1:2] in (["demo"], ["demo_break"]):
        from config.demo import environment

        environment.enter()
    from django.core.management import execute_from_command_line

    execute_from_command_line(sys.argv)
