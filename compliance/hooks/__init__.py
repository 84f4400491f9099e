"""Answers to the questions of `common.hooks`: what this room adds to other rooms' pages, lists and alerts."""
