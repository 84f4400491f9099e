"""Answers to the questions of `common.hooks`, for pages of other rooms."""
