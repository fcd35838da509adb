"""Campaigns: long trials of what a unit test cannot show, each run by a make target. Not in the wheel."""
