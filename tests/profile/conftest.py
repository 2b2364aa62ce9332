"""The scripts are run by test_scripts.py; they are no tests."""

collect_ignore = ["scripts"]
