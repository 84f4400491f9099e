"""The helm program: run, rendered with, its records read and its words translated."""
