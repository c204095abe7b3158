/* answer.c: a strict client of the completions API: whole replies, error bodies and SSE streams.
 *
 * Every frame must be `data: ` and one JSON object, every object complete, every choice ended once,
 * and `[DONE]` once and last; text, ids, reasons and usage must be what the oracle says. One
 * thread.
 */
#include "tests/sim/web.h"

#include "engine/base/json.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What the chunks of one stream, or the one reply, have said so far. */
typedef struct answer_choice {
  char text[SIM_TEXT_MAX];
  size_t text_length;
  int32_t num_ids;
  bool finished;
} answer_choice_t;

typedef struct answer {
  const track_t *track;
  answer_choice_t choices[SIM_STREAMS_MAX];
  bool has_usage, has_error;
} answer_t;

static answer_t answer;

static const json_t *member(const json_t *object, const char *name, json_type_t type) {
  const json_t *value = json_get(object, name);
  REQUIRE(value && value->type == (uint8_t)type, "I10: request %d: \"%s\" is %s",
          answer.track->index, name, value ? json_type_name(value) : "missing");
  return value;
}

static int64_t integer(const json_t *object, const char *name) {
  int64_t number = -1;
  REQUIRE(json_int64(member(object, name, JSON_NUMBER), &number), "I10: \"%s\" is no integer",
          name);
  return number;
}

static void check_error(const json_t *root, int status) {
  const json_t *error = member(root, "error", JSON_OBJECT);
  const json_t *message = member(error, "message", JSON_STRING);
  member(error, "type", JSON_STRING);
  REQUIRE(json_get(error, "param") && json_get(error, "code"), "I7: an error without its members");
  const track_t *k = answer.track;
  int code = k->refusal ? k->refusal : k->ended_by;
  if (web_draining() && !k->submitted) code = ERR_DRAINING;
  REQUIRE(code < 0 && (status == 200 || status == error_http_status(code)) &&
              json_equals(json_get(error, "type"), error_openai_type(code)),
          "I7: request %d: status %d for error %d: %.*s", k->index, status, code,
          (int)message->length, message->text);
}

static void check_usage(const json_t *usage) {
  const track_t *k = answer.track;
  REQUIRE(integer(usage, "prompt_tokens") == k->num_prompt &&
              integer(usage, "completion_tokens") == k->num_tokens &&
              integer(usage, "total_tokens") == k->num_prompt + k->num_tokens,
          "I5: request %d: wrong usage", k->index);
  const json_t *details = member(usage, "prompt_tokens_details", JSON_OBJECT);
  REQUIRE(integer(details, "cached_tokens") == k->num_cached, "I5: request %d: cached_tokens",
          k->index);
  answer.has_usage = true;
}

static void check_ids(const json_t *ids, answer_choice_t *have, const stream_t *k) {
  JSON_EACH(id, ids) {
    int64_t value;
    REQUIRE(json_int64(id, &value) && have->num_ids < k->num_tokens &&
                value == k->ids[answer.track->num_prompt + have->num_ids],
            "I4: request %d: a wrong id in the answer", answer.track->index);
    have->num_ids++;
  }
}

static void check_finish(const json_t *choice, answer_choice_t *have, const stream_t *k) {
  int index = answer.track->index;
  const json_t *reason = json_get(choice, "finish_reason"), *stop = json_get(choice, "stop_reason");
  REQUIRE(reason && stop, "I10: request %d: a choice without its reasons", index);
  if (reason->type == JSON_NULL) {
    REQUIRE(stop->type == JSON_NULL, "I10: request %d: a stop_reason before the end", index);
    return;
  }
  REQUIRE(json_equals(reason, k->finish == FINISH_STOP ? "stop" : "length"),
          "I10: request %d: the wrong finish_reason", index);
  int64_t id;
  bool right = stop->type == JSON_NULL;
  if (k->stop_string >= 0) {
    right = json_equals(stop, answer.track->script->stops[k->stop_string]);
  }
  if (k->stop_token_id >= 0) right = json_int64(stop, &id) && id == k->stop_token_id;
  REQUIRE(right, "I10: request %d: the wrong stop_reason", index);
  have->finished = true;
}

static void check_choice(const json_t *choice) {
  const track_t *k = answer.track;
  int64_t index = integer(choice, "index");
  REQUIRE(index >= 0 && index < k->num_choices, "I10: request %d: choice %lld", k->index,
          (long long)index);
  answer_choice_t *have = &answer.choices[index];
  const stream_t *stream = &k->streams[k->best[index]];
  REQUIRE(!have->finished, "I10: request %d: a chunk behind its finish_reason", k->index);
  const json_t *text = member(choice, "text", JSON_STRING);
  REQUIRE(have->text_length + text->length <= sizeof have->text, "I10: too much text");
  memcpy(have->text + have->text_length, text->text, text->length);
  have->text_length += text->length;
  const json_t *ids = json_get(choice, "token_ids");
  if (ids && ids->type == JSON_ARRAY) check_ids(ids, have, stream);
  check_finish(choice, have, stream);
}

static void check_object(const json_t *root) {
  REQUIRE(json_equals(member(root, "object", JSON_STRING), "text_completion"),
          "I10: the wrong object");
  char id[64];
  snprintf(id, sizeof id, "cmpl-client-%d", answer.track->index);
  REQUIRE(json_equals(member(root, "id", JSON_STRING), id), "I10: the wrong id");
  const json_t *choices = member(root, "choices", JSON_ARRAY), *usage = json_get(root, "usage");
  JSON_EACH(choice, choices) check_choice(choice);
  if (usage && usage->type == JSON_OBJECT) check_usage(usage);
}

static void check_json(const char *text, size_t length, int status) {
  json_doc_t *doc = NULL;
  inferd_error_t error;
  REQUIRE(json_parse(text, length, &json_limits_model, &doc, &error) == 0,
          "I10: request %d: %s in %.*s", answer.track->index, error.message, (int)length, text);
  const json_t *root = json_root(doc);
  REQUIRE(!answer.has_error, "I10: request %d: more behind an error", answer.track->index);
  if (json_get(root, "error")) {
    check_error(root, status);
    answer.has_error = true;
  } else {
    check_object(root);
  }
  json_free(doc);
}

static void check_frames(const char *body, size_t length) {
  static const char data[] = "data: ", done[] = "[DONE]";
  bool over = false;
  while (length > 0) {
    const char *end = memmem(body, length, "\n\n", 2);
    REQUIRE(end && !over, "I10: request %d: %s", answer.track->index,
            over ? "bytes behind [DONE]" : "a frame without an end");
    size_t frame = (size_t)(end - body);
    REQUIRE(!memchr(body, '\n', frame), "I10: a frame of two lines");
    if (body[0] != ':') {
      REQUIRE(frame > sizeof data - 1 && memcmp(body, data, sizeof data - 1) == 0,
              "I10: request %d: a frame that is not data", answer.track->index);
      const char *text = body + sizeof data - 1;
      size_t text_length = frame - (sizeof data - 1);
      over = text_length == sizeof done - 1 && memcmp(text, done, text_length) == 0;
      if (!over) check_json(text, text_length, 200);
    }
    body += frame + 2;
    length -= frame + 2;
  }
  REQUIRE(over, "I10: request %d: a stream without [DONE]", answer.track->index);
}

void web_check_answer(int index, int status, bool streamed, const char *body, size_t length) {
  const track_t *k = &sim.tracks[index];
  const script_t *r = &sim.scenario->scripts[index];
  answer.track = k;
  answer.has_usage = answer.has_error = false;
  for (int i = 0; i < SIM_STREAMS_MAX; i++) {
    answer_choice_t *have = &answer.choices[i];
    have->text_length = 0;
    have->num_ids = 0;
    have->finished = false;
  }
  if (streamed) {
    REQUIRE(status == 200 && r->stream, "I10: request %d: a stream that nobody wants", index);
    check_frames(body, length);
  } else {
    check_json(body, length, status);
    REQUIRE(answer.has_error == (status != 200), "I7: request %d: status %d", index, status);
    REQUIRE(answer.has_error || !r->stream, "I10: request %d wants a stream", index);
  }
  if (answer.has_error) return;
  REQUIRE(k->done, "I10: request %d: an answer before the end", index);
  for (int32_t i = 0; i < k->num_choices; i++) {
    const answer_choice_t *have = &answer.choices[i];
    const stream_t *stream = &k->streams[k->best[i]];
    REQUIRE(have->finished, "I10: request %d: a choice without an end", index);
    REQUIRE(have->text_length == stream->text_length &&
                memcmp(have->text, stream->text, stream->text_length) == 0,
            "I9: request %d: the answer's text is \"%.*s\", it must be \"%.*s\"", index,
            (int)have->text_length, have->text, (int)stream->text_length, stream->text);
    REQUIRE(!r->return_ids || have->num_ids == stream->num_tokens, "I5: request %d: %d of %d ids",
            index, have->num_ids, stream->num_tokens);
  }
  REQUIRE(answer.has_usage == (!r->stream || r->usage), "I5: request %d: usage", index);
}
