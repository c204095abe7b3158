#!/bin/sh
# requests.sh: an example: the API by curl. Start a server first, for example by `make run`.
#
#     docs/examples/requests.sh [http://127.0.0.1:8000]
#
# A server with --api-key also needs:  -H "Authorization: Bearer $KEY"
set -eu
server=${1:-http://127.0.0.1:8000}

post() {
  curl --silent --show-error --fail-with-body "$server$1" -H 'Content-Type: application/json' -d "$2"
  echo
}

echo "-- a completion"
post /v1/completions '{"prompt": "Once upon a time", "max_tokens": 16, "temperature": 0}'

echo "-- a chat, streamed: one event for each token, [DONE] at the end"
post /v1/chat/completions '{
  "messages": [{"role": "user", "content": "What is 2 plus 3?"}],
  "temperature": 0, "stream": true, "stream_options": {"include_usage": true}}'

echo "-- an answer that follows a JSON schema"
post /v1/chat/completions '{
  "messages": [{"role": "user", "content": "Make up a person."}],
  "temperature": 0,
  "response_format": {"type": "json_schema", "json_schema": {"name": "person", "schema": {
    "type": "object", "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
    "required": ["name", "age"], "additionalProperties": false}}}}'

echo "-- text to token ids"
post /tokenize '{"prompt": "Once upon a time"}'

echo "-- what the server counts"
curl --silent --show-error --fail "$server/metrics" | grep '^inferd_generation_tokens_total'
