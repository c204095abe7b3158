#!/bin/sh
# vllm-router before three inferd servers, which lose no request when one after the other restarts.
# A server that leaves says so in /health and still takes requests for --drain-delay, which must be
# longer than the router's interval of checks; ten refused connections would close a server's circuit
# for a minute. Each is started by
#   inferd serve MODEL --port 8001 --drain-delay 3s
exec vllm-router --host 127.0.0.1 --port 8000 --policy round_robin \
  --worker-urls http://127.0.0.1:8001 http://127.0.0.1:8002 http://127.0.0.1:8003 \
  --health-check-interval-secs 1 --health-failure-threshold 1 --health-success-threshold 1
