/* test_speech.c: what the files of a model say of its transcripts: heads that follow the sound. */
#include "engine/audio/speech.h"
#include "tests/expect.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static json_doc_t *parse(const char *text) {
  json_doc_t *doc = NULL;
  inferd_error_t error = {0};
  ASSERT_EQ_FOR(json_parse(text, strlen(text), &json_limits_model, &doc, &error), 0, "%s",
                error.message);
  return doc;
}

/* Of a decoder of `layers` layers with 3 heads; `list` and `more` are members of the files. */
static int read_heads(int layers, const char *list, const char *more, speech_t *out,
                      inferd_error_t *error) {
  char generation[8192], config[256];
  snprintf(generation, sizeof generation,
           "{\"decoder_start_token_id\":1,\"no_timestamps_token_id\":5,\"eos_token_id\":0%s}",
           list);
  snprintf(config, sizeof config,
           "{\"num_mel_bins\":80,\"decoder_layers\":%d,\"decoder_attention_heads\":3%s}", layers,
           more);
  json_doc_t *first = parse(generation), *second = parse(config);
  const int code = speech_read(json_root(first), json_root(second), 100, out, error);
  json_free(first);
  json_free(second);
  return code;
}

/* As "layer.head" of each. */
static void expect_heads(int layers, const char *list, const char *expected) {
  speech_t speech;
  inferd_error_t error = {0};
  char text[512] = "";
  EXPECT_EQ_FOR(read_heads(layers, list, "", &speech, &error), 0, "%s", error.message);
  for (int32_t i = 0; i < speech.num_heads; i++) {
    const size_t at = strlen(text);
    snprintf(text + at, sizeof text - at, " %d.%d", speech.heads[i].layer, speech.heads[i].head);
  }
  EXPECT_STR_EQ(text, expected);
  EXPECT_EQ(speech.median_width, 7);
}

static void expect_refusal(const char *list, const char *more, const char *words) {
  speech_t speech;
  inferd_error_t error = {0};
  EXPECT_EQ_FOR(read_heads(4, list, more, &speech, &error), ERR_MODEL_MALFORMED, "%s", words);
  if (strstr(error.message, words) == NULL) EXPECT_STR_EQ(error.message, words);
}

Test(speech, heads_are_those_of_the_list) {
  expect_heads(4, ",\"alignment_heads\":[[1,2],[3,0],[0,1]]", " 1.2 3.0 0.1");
}

/* openai-whisper: all_heads[n_text_layer // 2:] = True */
Test(speech, heads_without_a_list_are_those_of_the_last_half) {
  expect_heads(4, "", " 2.0 2.1 2.2 3.0 3.1 3.2");
  expect_heads(3, ",\"alignment_heads\":null", " 1.0 1.1 1.2 2.0 2.1 2.2");
  expect_heads(1, ",\"alignment_heads\":[]", " 0.0 0.1 0.2");
}

/* Distilled models have the list of the model that they were made from. */
Test(speech, a_list_of_another_decoder_is_none) {
  expect_heads(2, ",\"alignment_heads\":[[1,2],[2,0]]", " 1.0 1.1 1.2");
  expect_heads(2, ",\"alignment_heads\":[[1,3],[1,0]]", " 1.0 1.1 1.2");
  expect_heads(2, ",\"alignment_heads\":[[1,2],[1,0]]", " 1.2 1.0");
}

Test(speech, heads_have_bounds) {
  char list[16 + 8 * (SPEECH_HEADS_MAX + 1)];
  speech_t speech;
  inferd_error_t error = {0};
  for (int count = SPEECH_HEADS_MAX; count <= SPEECH_HEADS_MAX + 1; count++) {
    size_t at = (size_t)snprintf(list, sizeof list, ",\"alignment_heads\":[[0,0]");
    for (int i = 1; i < count; i++) at += (size_t)snprintf(list + at, sizeof list - at, ",[0,0]");
    snprintf(list + at, sizeof list - at, "]");
    EXPECT_EQ(read_heads(4, list, "", &speech, &error) == 0, count == SPEECH_HEADS_MAX);
  }
  /* 200 of the last layers are more than there is room for. */
  EXPECT_EQ(read_heads(400, "", "", &speech, &error), 0);
  EXPECT_EQ(speech.num_heads, SPEECH_HEADS_MAX);
  EXPECT_EQ(speech.heads[0].layer, 200);
  expect_refusal(",\"alignment_heads\":[[1]]", "", "alignment_heads");
  expect_refusal(",\"alignment_heads\":[[1,2,3]]", "", "alignment_heads");
  expect_refusal(",\"alignment_heads\":[1]", "", "alignment_heads");
  expect_refusal(",\"alignment_heads\":[[-1,0]]", "", "alignment_heads");
  expect_refusal(",\"alignment_heads\":[[0,\"0\"]]", "", "alignment_heads");
  expect_refusal("", ",\"median_filter_width\":0", "median_filter_width");
  expect_refusal("", ",\"median_filter_width\":4", "median_filter_width");
  expect_refusal("", ",\"median_filter_width\":33", "median_filter_width");
  EXPECT_EQ(read_heads(4, "", ",\"median_filter_width\":31", &speech, &error), 0);
  EXPECT_EQ(speech.median_width, 31);
}
