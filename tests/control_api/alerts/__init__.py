"""Alerts: rules, addresses of webhooks, and how messages are signed and sent again."""
