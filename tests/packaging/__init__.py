"""Tests of the packages' contents: units, scripts, manual pages, alert rules and boards."""
