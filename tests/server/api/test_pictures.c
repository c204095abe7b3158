/* test_pictures.c: pictures in requests: what becomes of them, and what is refused. */
#include "tests/expect.h"
#include "tests/server/api/fake.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A picture of 56 x 28 pixels, all (200, 30, 30): 2 tokens where 2 x 2 patches of 14 x 14 make one.
 */
#define WIDE                                                                                       \
  "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAADgAAAAcCAIAAAC72etpAAAAMklEQVR42u3OQREAAAQAMATR" \
  "P4pYXkK42xIspzs+qHhCVFRUVFRUVFRUVFRUVFRUVPQs3coBPOGi+QsAAAAASUVORK5CYII="
#define PART(url) "{\"type\":\"image_url\",\"image_url\":{\"url\":\"" url "\"}}"
#define USER(parts) "{\"role\":\"user\",\"content\":[" parts "]}"
#define TEXT(text) "{\"type\":\"text\",\"text\":\"" text "\"}"
#define BODY(messages) "{\"messages\":[" messages "],\"max_tokens\":4}"

static vision_t vision;

static void see(const helper_trade_t *trade) {
  inferd_error_t error;
  helper_t *helper = NULL;
  ASSERT_EQ_FOR(helper_start(trade, &helper, &error), 0, "%s", error.message);
  fake_start();
  server.pictures = helper;
  vision = (vision_t){.placeholder_id = FAKE_PICTURE,
                      .mark_id = FAKE_PICTURE,
                      .begin_id = -1,
                      .end_id = -1,
                      .break_id = -1,
                      .whole_id = -1};
  vision_processor_default(VISION_QWEN2_VL, &vision.processor);
  vision.processor.patch = 14;
  vision.processor.pixels_min = 28 * 28;
  vision.processor.pixels_max = 28 * 28 * 64;
  vision.low = vision.processor;
  vision.low.pixels_max = 28 * 28;
  fake_engine.info.vision = &vision;
}

static void see_all(void) {
  see(&picture_trade);
}

static void stop(void) {
  helper_t *helper = server.pictures;
  fake_stop();
  helper_stop(helper);
}

/* Its first chunks. */
#define CUT "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAADgAAAAcCAIAAAC72etp"
/* A header of 10,000 x 10,000 pixels. */
#define HUGE "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAJxAAACcQCAIAAAA1LPVw"
#define SVG "data:image/svg+xml;base64,PHN2ZyB4bWxucz0iaHR0cDovL3d3dy53My5vcmcvMjAwMC9zdmciLz4="

TestSuite(pictures, .init = see_all, .fini = stop, .timeout = 60);

static fake_exchange_t *ask(void (*route)(exchange_t *), const char *body) {
  fake_exchange_t *exchange = fake_call(route, body);
  cr_assert(!exchange->answered, "%s: %s", exchange->error.param, exchange->error.message);
  return exchange;
}

static const request_t *request_of(void) {
  return &server.live->first->inputs[0].request;
}

/* The prompt, placeholders as '#'. */
static const char *prompt(void) {
  static char text[FAKE_CONTEXT + 1];
  const request_t *request = request_of();
  int32_t n = 0;
  for (; n < request->num_prompt_tokens; n++) {
    int32_t id = request->prompt_ids[n];
    text[n] = id == FAKE_PICTURE ? '#' : (char)id;
  }
  text[n] = '\0';
  return text;
}

static void end(fake_exchange_t *exchange) {
  fake_finish_all();
  fake_deliver();
  fake_exchange_free(exchange);
}

Test(pictures, of_two_pictures_the_engine_gets_layout_place_and_pixels) {
  fake_exchange_t *exchange =
      ask(api_chat_completions, BODY(USER(TEXT("a") "," PART(WIDE) "," TEXT("b") "," PART(WIDE))));
  ASSERT_STR_EQ(prompt(), "<user>[text=a]##[text=b]##<a>");
  const request_t *request = request_of();
  ASSERT_EQ(request->num_images, 2);
  ASSERT_EQ(request->images[0].first, 14);
  ASSERT_EQ(request->images[0].end, 16);
  ASSERT_EQ(request->images[1].first, 24);
  ASSERT_EQ(request->images[1].end, 26);
  for (int i = 0; i < 2; i++) {
    const image_t *image = &request->images[i];
    ASSERT_EQ(image->layout.tokens, 2);
    ASSERT_EQ(vision_view_bytes(&image->layout), 56 * 28 * 3);
    /* the color of every pixel */
    ASSERT_EQ(image->views[0], 200);
    ASSERT_EQ(image->views[56 * 28 * 3 - 1], 30);
  }
  ASSERT_EQ(memcmp(&request->images[0].key, &request->images[1].key, sizeof(image_key_t)), 0);
  end(exchange);
}

/* Gemma 3: three views, each with its mark in the text, which the texts are joined with. */
Test(pictures, texts_around_views_are_part_of_the_prompt) {
  vision_processor_default(VISION_GEMMA3, &vision.processor);
  vision.processor.view_side = 14;
  vision.processor.view_tokens = 1;
  vision.processor.merge = 1;
  vision.processor.tiles = true;
  vision.processor.crop_min = 20;
  vision.low = vision.processor;
  vision.placeholder_id = '#';
  vision.mark = "\x16";
  vision.begin_id = '(';
  vision.end_id = ')';
  fake_exchange_t *exchange =
      ask(api_chat_completions, BODY(USER(TEXT("#") "," PART(WIDE) "," TEXT("b"))));
  ASSERT_STR_EQ(prompt(), "<user>[text=#]Here is the original image \n\n(#)\n\n and here are "
                          "some crops to help you see better \n\n(#)\n\n \n\n(#)\n\n"
                          "[text=b]<a>");
  const request_t *request = request_of();
  ASSERT_EQ(request->images[0].layout.tokens, 3);
  ASSERT_EQ(request->images[0].first, (int32_t)strlen("<user>[text=#]Here is the original image "
                                                      "\n\n("));
  ASSERT_EQ(request->images[0].end,
            request->num_prompt_tokens - (int32_t)strlen(")\n\n[text=b]<a>"));
  end(exchange);
}

Test(pictures, usage_counts_their_tokens) {
  fake_exchange_t *exchange = ask(api_chat_completions, BODY(USER(PART(WIDE))));
  fake_finish_all();
  fake_deliver();
  cr_assert(strstr(exchange->body, "\"prompt_tokens\":11,") != NULL, "%s", exchange->body);
  fake_exchange_free(exchange);
}

Test(pictures, the_url_may_stand_alone_and_a_low_detail_takes_fewer_tokens) {
  static const char *const parts[] = {
      "{\"type\":\"image_url\",\"image_url\":\"" WIDE "\"}",
      "{\"type\":\"image_url\",\"image_url\":{\"url\":\"" WIDE "\",\"detail\":\"low\"}}",
      "{\"type\":\"image_url\",\"image_url\":{\"url\":\"" WIDE "\",\"detail\":\"high\"}}",
      "{\"type\":\"image_url\",\"image_url\":{\"url\":\"" WIDE "\",\"detail\":\"auto\"}}",
      "{\"type\":\"image_url\",\"image_url\":{\"url\":\"" WIDE "\",\"detail\":null}}"};
  for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
    char body[1024];
    snprintf(body, sizeof body, BODY(USER("%s")), parts[i]);
    fake_exchange_t *exchange = ask(api_chat_completions, body);
    ASSERT_STR_EQ(prompt(), i == 1 ? "<user>#<a>" : "<user>##<a>");
    end(exchange);
  }
}

Test(pictures, of_a_tool_and_of_the_history_are_read) {
  fake_exchange_t *exchange = ask(
      api_chat_completions,
      BODY(USER(PART(WIDE)) ",{\"role\":\"assistant\",\"content\":\"x\",\"tool_calls\":[{\"id\":"
                            "\"c\",\"type\":\"function\",\"function\":{\"name\":\"f\",\"arguments\""
                            ":\"{}\"}}]},{\"role\":\"tool\",\"tool_call_id\":\"c\",\"content\":"
                            "[" PART(WIDE) "]}"));
  ASSERT_STR_EQ(prompt(), "<user>##<assistant>x<tool>##<a>");
  end(exchange);
}

Test(pictures, of_the_history_what_is_not_here_becomes_text) {
  fake_exchange_t *exchange =
      ask(api_chat_completions,
          BODY(USER(PART("https://x/y.png")) ",{\"role\":\"assistant\",\"content\":[" PART(
              WIDE) "]}," USER(TEXT("a"))));
  ASSERT_STR_EQ(prompt(),
                "<user>[text=[image left out]]<assistant>[text=[image left out]]<user>[text=a]<a>");
  end(exchange);
}

Test(pictures, text_in_place_of_a_mark_makes_no_picture) {
  fake_exchange_t *exchange = fake_call(
      api_chat_completions, BODY(USER(TEXT("\\u0016") "," PART(WIDE)))); /* it has no special ids */
  ASSERT_EQ(exchange->status, 400);
  cr_assert(strstr(exchange->error.message, "2 places for the 1 pictures") != NULL, "%s",
            exchange->error.message);
  fake_exchange_free(exchange);
}

typedef struct refusal {
  const char *message, *param, *says;
} refusal_t;

static void refuse(const refusal_t *row) {
  static char body[32768];
  snprintf(body, sizeof body, "{\"messages\":[%s]}", row->message);
  fake_exchange_t *exchange = fake_call(api_chat_completions, body);
  cr_assert(exchange->answered, "%s", row->says);
  EXPECT_EQ(exchange->status, 400);
  cr_expect(strstr(exchange->error.message, row->says) != NULL, "%s", exchange->error.message);
  EXPECT_STR_EQ(exchange->error.param, row->param);
  fake_exchange_free(exchange);
}

#define FIRST "messages[0].content[0]"
#define LIST4(x) x "," x "," x "," x
#define DETAIL(detail)                                                                             \
  USER("{\"type\":\"image_url\",\"image_url\":{\"url\":\"" WIDE "\",\"detail\":" detail "}}")

Test(pictures, what_is_no_picture_is_named) {
  static const refusal_t rows[] = {
      {USER(PART("https://x/y.png")), FIRST, "if --allowed-media-hosts names them"},
      {USER(PART("file:///etc/passwd")), FIRST, "if --allowed-media-hosts names them"},
      {USER(PART("data:image/png,xx")), FIRST, "must have ;base64,"},
      {USER(PART("data:image/png;base64,")), FIRST, "no bytes"},
      {USER(PART("data:image/png;base64,a?==")), FIRST, "not in base64"},
      {USER(PART(CUT)), FIRST, "PNG"},
      {USER(PART(HUGE)), FIRST, "10000 x 10000"},
      {USER(PART(SVG)), FIRST, "is no PNG, JPEG, WebP, GIF or BMP"},
      {USER(TEXT("a") "," PART(SVG)), "messages[0].content[1]", "is no PNG"},
      {USER(PART("")), FIRST ".image_url.url", "image_url.url"},
      {USER("{\"type\":\"image_url\"}"), FIRST ".image_url", "Missing"},
      {USER("{\"type\":\"image_url\",\"image_url\":{}}"), FIRST ".image_url.url", "Missing"},
      {USER("{\"type\":\"image_url\",\"image_url\":7}"), FIRST ".image_url", "string"},
      {DETAIL("\"original\""), FIRST ".image_url.detail", "'low', 'high' or 'auto'"},
      {DETAIL("1"), FIRST ".image_url.detail", "'low', 'high' or 'auto'"},
      {USER("{\"type\":\"video_url\"}"), FIRST, "takes text and pictures ('image_url')"},
      {"{\"role\":\"system\",\"content\":[" PART(WIDE) "]}", FIRST, "of the user and of tools"},
      {USER(LIST4(LIST4(PART(WIDE))) "," PART(WIDE)), "messages[0].content[16]",
       "more pictures than the 16"}};
  fake_option("lenient-history", "false");
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) refuse(&rows[i]);
}

Test(pictures, as_many_as_the_limit_are_taken) {
  fake_exchange_t *exchange = ask(api_chat_completions, BODY(USER(LIST4(LIST4(PART(WIDE))))));
  ASSERT_EQ(request_of()->num_images, 16);
  end(exchange);
}

Test(pictures, limit_0_takes_none) {
  fake_option("limit-images", "0");
  refuse(&(refusal_t){USER(PART(WIDE)), FIRST, "takes no pictures (--limit-images 0)"});
}

Test(pictures, a_model_that_sees_nothing_says_so) {
  fake_engine.info.vision = NULL;
  refuse(&(refusal_t){USER(PART(WIDE)), FIRST, "this model takes text only"});
}

Test(pictures, a_template_without_a_place_for_them_is_named) {
  fake_template.blind = true;
  refuse(&(refusal_t){USER(PART(WIDE)), "messages", "0 places for the 1 pictures"});
}

Test(pictures, a_prompt_that_they_make_too_long_is_refused_before_they_are_read) {
  helper_t *helper = server.pictures;
  server.pictures = NULL; /* reading one would crash */
  vision.processor.pixels_min = 28 * 28 * FAKE_CONTEXT;
  vision.processor.pixels_max = 28 * 28 * FAKE_CONTEXT * 2;
  refuse(&(refusal_t){USER(PART(WIDE)), "messages", "maximum context length is 128 tokens"});
  server.pictures = helper;
}

Test(pictures, counting_reads_the_header_alone) {
  helper_t *helper = server.pictures;
  server.pictures = NULL;
  fake_exchange_t *exchange = fake_call(api_tokenize, BODY(USER(PART(WIDE))));
  cr_assert(strstr(exchange->body, "\"count\":11,") != NULL, "%s", exchange->body);
  fake_exchange_free(exchange);
  exchange = fake_call(api_render_chat, BODY(USER(PART(WIDE))));
  cr_assert(strstr(exchange->body, "22,22,") != NULL, "%s", exchange->body);
  fake_exchange_free(exchange);
  server.pictures = helper;
}

Test(pictures, cutting_the_prompt_is_refused) {
  fake_exchange_t *exchange = fake_call(
      api_chat_completions, "{\"messages\":[" USER(PART(WIDE)) "],\"truncate_prompt_tokens\":5}");
  EXPECT_EQ(exchange->status, 400);
  EXPECT_STR_EQ(exchange->error.param, "truncate_prompt_tokens");
  fake_exchange_free(exchange);
}

static int die(const void *job, const uint8_t *file, size_t bytes, uint8_t *views, size_t room,
               size_t *used, inferd_error_t *error) {
  (void)job, (void)file, (void)bytes, (void)views, (void)room, (void)used, (void)error;
  (void)raise(SIGKILL);
  return 0;
}

static void see_and_die(void) {
  static helper_trade_t deadly;
  deadly = picture_trade;
  deadly.work = die;
  stop(); /* what the suite has started */
  see(&deadly);
}

Test(pictures, whose_decoder_dies_is_refused_alone, .init = see_and_die) {
  refuse(&(refusal_t){USER(PART(WIDE)), FIRST, "its decoder failed"});
  fake_exchange_t *exchange = ask(api_chat_completions, BODY(USER(TEXT("a"))));
  end(exchange);
}

Test(pictures, their_bytes_are_counted_until_the_answer_ends) {
  fake_exchange_t *exchange = ask(api_chat_completions, BODY(USER(PART(WIDE))));
  ASSERT_EQ(ledger_stats(server.ledger).held[LEDGER_pictures], 56 * 28 * 3);
  end(exchange);
  ASSERT_EQ(ledger_stats(server.ledger).held[LEDGER_pictures], 0);
}

Test(pictures, beyond_the_memory_of_requests_are_refused) {
  ledger_free(server.ledger);
  server.ledger = ledger_new(1 << 20);
  vision.processor.pixels_min = 28 * 28 * 100; /* 100 tokens, 235,200 bytes each */
  vision.processor.pixels_max = 28 * 28 * 100;
  fake_engine.info.max_model_len = 4096;
  fake_exchange_t *exchange = fake_call(api_chat_completions, BODY(USER(LIST4(LIST4(PART(WIDE))))));
  cr_assert(exchange->answered);
  ASSERT_EQ(exchange->status, 503);
  fake_exchange_free(exchange);
  ASSERT_EQ(ledger_stats(server.ledger).held[LEDGER_pictures], 0);
}

/* ---- the other dialects ---- */

#define DATA                                                                                       \
  "iVBORw0KGgoAAAANSUhEUgAAADgAAAAcCAIAAAC72etpAAAAMklEQVR42u3OQREAAAQAMATRP4pYXkK42xIspzs+qHhCVF" \
  "RUVFRUVFRUVFRUVFRUVPQs3coBPOGi+QsAAAAASUVORK5CYII="
#define BLOCK                                                                                      \
  "{\"type\":\"image\",\"source\":{\"type\":\"base64\",\"media_type\":\"image/png\",\"data\":"     \
  "\"" DATA "\"}}"
#define ANTHROPIC(messages) "{\"max_tokens\":4,\"messages\":[" messages "]}"
#define ITEM "{\"type\":\"input_image\",\"image_url\":\"" WIDE "\",\"detail\":\"auto\"}"

Test(pictures, of_messages_are_read) {
  static const struct {
    const char *body, *prompt;
  } rows[] = {
      {ANTHROPIC(USER(BLOCK)), "<user>##<a>"},
      {ANTHROPIC(USER(BLOCK "," TEXT("b"))), "<user>##[text=b]<a>"},
      {ANTHROPIC(USER("{\"type\":\"image\",\"source\":{\"type\":\"url\",\"url\":\"" WIDE "\"}}")),
       "<user>##<a>"},
      {ANTHROPIC("{\"role\":\"user\",\"content\":\"q\"},{\"role\":\"assistant\",\"content\":[{"
                 "\"type\":\"tool_use\",\"id\":\"c\",\"name\":\"f\",\"input\":{}}]}," USER(
                     "{\"type\":\"tool_result\",\"tool_use_id\":\"c\",\"content\":[" TEXT(
                         "r") "," BLOCK "]}," TEXT("b"))),
       "<user>q<assistant><tool>r<user>##[text=b]<a>"},
      {ANTHROPIC("{\"role\":\"user\",\"content\":\"q\"},{\"role\":\"assistant\",\"content\":[{"
                 "\"type\":\"tool_use\",\"id\":\"c\",\"name\":\"f\",\"input\":{}}]}," USER(
                     "{\"type\":\"tool_result\",\"tool_use_id\":\"c\",\"content\":[" BLOCK "]}")),
       "<user>q<assistant><tool><user>##<a>"}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    fake_exchange_t *exchange = ask(api_messages, rows[i].body);
    EXPECT_STR_EQ(prompt(), rows[i].prompt);
    end(exchange);
  }
}

Test(pictures, of_responses_are_read) {
  static const struct {
    const char *body, *prompt;
  } rows[] = {
      {"{\"input\":[" USER(ITEM) "]}", "<user>##<a>"},
      {"{\"input\":[" USER("{\"type\":\"input_text\",\"text\":\"a\"}," ITEM) "]}",
       "<user>[text=a]##<a>"},
      {"{\"input\":[{\"type\":\"function_call\",\"call_id\":\"c\",\"name\":\"f\",\"arguments\":"
       "\"{}\"},{\"type\":\"function_call_output\",\"call_id\":\"c\",\"output\":[" ITEM "]}]}",
       "<assistant><tool><user>##<a>"}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    fake_exchange_t *exchange = ask(api_responses, rows[i].body);
    EXPECT_STR_EQ(prompt(), rows[i].prompt);
    end(exchange);
  }
}

Test(pictures, what_other_dialects_refuse_is_named) {
  static const struct {
    void (*route)(exchange_t *);
    const char *body, *says;
  } rows[] = {
      {api_messages, ANTHROPIC(USER("{\"type\":\"image\"}")), "messages.0.content.0.source.type"},
      {api_messages,
       ANTHROPIC(USER("{\"type\":\"image\",\"source\":{\"type\":\"base64\",\"data\":\"\"}}")),
       "messages.0.content.0.source.data"},
      {api_messages,
       ANTHROPIC(USER("{\"type\":\"image\",\"source\":{\"type\":\"url\",\"url\":\"http://x\"}}")),
       "if --allowed-media-hosts names them"},
      {api_responses, "{\"input\":[" USER("{\"type\":\"input_image\",\"file_id\":\"f\"}") "]}",
       "input[0].content[0].file_id"},
      {api_responses, "{\"input\":[" USER("{\"type\":\"input_image\"}") "]}",
       "input[0].content[0].image_url"}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    fake_exchange_t *exchange = fake_call(rows[i].route, rows[i].body);
    cr_assert(exchange->answered, "%s", rows[i].says);
    EXPECT_EQ(exchange->status, 400);
    cr_expect(strstr(exchange->error.message, rows[i].says) != NULL, "%s", exchange->error.message);
    fake_exchange_free(exchange);
  }
}

Test(pictures, are_counted_by_other_dialects) {
  helper_t *helper = server.pictures;
  server.pictures = NULL;
  fake_exchange_t *exchange = fake_call(api_count_tokens, "{\"messages\":[" USER(BLOCK) "]}");
  EXPECT_STR_EQ(exchange->body, "{\"input_tokens\":11}");
  fake_exchange_free(exchange);
  exchange = fake_call(api_responses_input_tokens, "{\"input\":[" USER(ITEM) "]}");
  cr_expect(strstr(exchange->body, "\"input_tokens\":11") != NULL, "%s", exchange->body);
  fake_exchange_free(exchange);
  server.pictures = helper;
}
