"""The ports of the test bed's origins."""

ECHO = 7
STALLED = 9
RESETTING = 10
DNS = 53
HTTP = 80
HTTP_PROXY_PROTOCOL = 81
IPERF = 5201
CLOSED = 99
