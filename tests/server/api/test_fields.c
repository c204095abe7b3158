/* test_fields.c: every field of a completion request has an effect, is refused, or is known to be
 * harmless. */
#include "tests/expect.h"
#include "tests/server/api/fake.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

TestSuite(fields, .init = fake_start, .fini = fake_stop, .timeout = 60);

/* What the engine is told, and what rendering is told, as one line. */
static char *describe(const completion_t *completion) {
  buffer_t out = {0};
  const params_t *p = &completion->params;
  char text[512];
  for (int32_t i = 0; i < completion->num_inputs; i++) {
    const request_t *r = &completion->inputs[i].request;
    const sampling_params_t *s = &r->params;
#define SAMPLING(name, flags, min, max, fallback, noop, kind, label, step, help)                   \
  snprintf(text, sizeof text, #name "%g ", (double)s->name);                                       \
  buffer_text(&out, text);
#include "engine/device/sampling.def"
    snprintf(text, sizeof text, "k%d max%d min%d eos%d lp%d plp%d ", s->top_k, s->max_tokens,
             s->min_tokens, s->ignore_eos, s->num_logprobs, s->num_prompt_logprobs);
    buffer_text(&out, text);
    snprintf(text, sizeof text, "n%d best%d beam%d length%g early%d room%d grammar%d ", s->n,
             s->best_of, s->beam_width, (double)s->length_penalty, s->early_stopping,
             r->room != NULL, r->grammar != NULL);
    buffer_text(&out, text);
    snprintf(text, sizeof text, "skip%d inc%d prio%lld salt%d stops%d seed%s ",
             r->skip_special_tokens, r->include_stop_string, (long long)r->priority, r->salt != 0,
             r->stops != NULL, s->seed == 77 ? "77" : "random");
    buffer_text(&out, text);
    buffer_ids(&out, r->prompt_ids, (size_t)r->num_prompt_tokens);
    buffer_ids(&out, s->stop_token_ids, (size_t)s->num_stop_token_ids);
    buffer_ids(&out, s->allowed_ids, (size_t)s->num_allowed_ids);
    buffer_ids(&out, s->logprob_token_ids, (size_t)s->num_logprob_token_ids);
    for (int32_t b = 0; b < s->num_bad_words; b++) {
      buffer_ids(&out, s->bad_words[b].ids, (size_t)s->bad_words[b].count);
    }
    for (int32_t b = 0; b < s->num_logit_bias; b++) {
      snprintf(text, sizeof text, "%d:%g ", s->logit_bias[b].id, (double)s->logit_bias[b].bias);
      buffer_text(&out, text);
    }
  }
  snprintf(text, sizeof text, "echo%d stream%d usage%d cont%d obf%d ids%d as%d int%lld id%s",
           p->echo, p->stream, p->include_usage, p->continuous_usage, p->obfuscation,
           p->return_token_ids, p->tokens_as_ids, (long long)p->stream_interval, "");
  buffer_text(&out, text);
  snprintf(text, sizeof text, " text'%.*s' parser%d calls%d single%d thoughts%d",
           completion->num_choices > 0 ? (int)completion->choices[0].text.length : 0,
           completion->num_choices > 0 ? completion->choices[0].text.data : "",
           completion->tool_format != NULL, p->chat.tool_choice, !p->chat.parallel_tool_calls,
           p->chat.include_reasoning);
  buffer_text(&out, text);
  buffer_text(&out, completion->exchange->request_id[0] == 't' ? "" : " own id");
  size_t length;
  return buffer_detach(&out, &length);
}

/* What a body comes to: a description, or NULL when it is refused. */
static bool in_chat;

static char *outcome(const char *fields, fake_exchange_t **out) {
  char body[700];
  const char *comma = *fields != '\0' ? "," : "";
  if (in_chat) {
    static const char messages[] = "{\"messages\":[{\"role\":\"assistant\",\"content\":\"abc\"}]";
    snprintf(body, sizeof body, "%s%s%s}", messages, comma, fields);
  } else {
    snprintf(body, sizeof body, "{\"prompt\":\"abcdef\"%s%s}", comma, fields);
  }
  *out = fake_call(in_chat ? api_chat_completions : api_completions, body);
  char *text = (*out)->answered ? NULL : describe(server.live->first);
  fake_finish_all();
  return text;
}

/* A hint is harmless, and the header x-inferd-ignored-params names it. */
typedef enum effect { CHANGES, REFUSED, HARMLESS, HINT } effect_t;

/* One value that matters for every row of the table in params.c. */
static const struct {
  const char *name, *fields;
  effect_t effect;
} values[] = {
#define SAMPLING(name, flags, min, max, fallback, noop, kind, label, step, help)                   \
  {#name, "\"" #name "\":0.25", CHANGES},
#include "engine/device/sampling.def"
    {"model", "\"model\":\"tiny\"", HARMLESS},
    {"prompt", NULL, HARMLESS},
    {"max_tokens", "\"max_tokens\":9", CHANGES},
    {"max_completion_tokens", "\"max_completion_tokens\":9", CHANGES},
    {"n", "\"n\":2", CHANGES},
    {"best_of", "\"best_of\":2", CHANGES},
    {"logit_bias", "\"logit_bias\":{\"5\":1.5}", CHANGES},
    {"logprobs", "\"logprobs\":3", CHANGES},
    {"echo", "\"echo\":true", CHANGES},
    {"stop", "\"stop\":[\"x\"]", CHANGES},
    {"stream", "\"stream\":true", CHANGES},
    {"stream_options", "\"stream\":true,\"stream_options\":{\"include_usage\":true}", CHANGES},
    {"seed", "\"seed\":77", CHANGES},
    {"suffix", "\"suffix\":\"x\"", REFUSED},
    {"source_lang", "\"source_lang\":\"en\"", REFUSED},
    {"target_lang", "\"target_lang\":\"en\"", REFUSED},
    {"decoder_prompt", "\"decoder_prompt\":\"x\"", REFUSED},
    {"user", "\"user\":\"me\"", HARMLESS},
    {"top_k", "\"top_k\":5", CHANGES},
    {"min_tokens", "\"min_tokens\":2", CHANGES},
    {"stop_token_ids", "\"stop_token_ids\":[5]", CHANGES},
    {"include_stop_str_in_output", "\"include_stop_str_in_output\":true", CHANGES},
    {"ignore_eos", "\"ignore_eos\":true", CHANGES},
    {"skip_special_tokens", "\"skip_special_tokens\":false", CHANGES},
    {"add_special_tokens", "\"add_special_tokens\":false", CHANGES},
    {"truncate_prompt_tokens", "\"truncate_prompt_tokens\":3", CHANGES},
    {"truncation_side", "\"truncate_prompt_tokens\":3,\"truncation_side\":\"right\"", CHANGES},
    {"allowed_token_ids", "\"allowed_token_ids\":[5]", CHANGES},
    {"bad_words", "\"bad_words\":[\"no\"]", CHANGES},
    {"prompt_logprobs", "\"prompt_logprobs\":0", CHANGES},
    {"logprob_token_ids", "\"logprobs\":1,\"logprob_token_ids\":[9]", CHANGES},
    {"use_beam_search", "\"use_beam_search\":true", CHANGES},
    {"length_penalty", "\"use_beam_search\":true,\"length_penalty\":2", CHANGES},
    {"early_stopping", "\"use_beam_search\":true,\"early_stopping\":\"never\"", CHANGES},
    {"return_token_ids", "\"return_token_ids\":true", CHANGES},
    {"return_tokens_as_token_ids", "\"return_tokens_as_token_ids\":true", CHANGES},
    {"cache_salt", "\"cache_salt\":\"s\"", CHANGES},
    {"priority", "\"priority\":-3", CHANGES},
    {"request_id", "\"request_id\":\"mine\"", CHANGES},
    {"stream_interval", "\"stream_interval\":4", CHANGES},
    {"response_format", "\"response_format\":{\"type\":\"json_object\"}", CHANGES},
    {"structured_outputs", "\"structured_outputs\":{\"regex\":\"a\"}", CHANGES},
    {"guided_json", "\"guided_json\":{}", CHANGES},
    {"guided_regex", "\"guided_regex\":\"a\"", CHANGES},
    {"guided_choice", "\"guided_choice\":[\"a\"]", CHANGES},
    {"guided_grammar", "\"guided_grammar\":\"root ::= \\\"a\\\"\"", CHANGES},
    {"guided_decoding_backend", "\"guided_decoding_backend\":\"a\"", REFUSED},
    {"guided_whitespace_pattern", "\"guided_whitespace_pattern\":\"a\"", REFUSED},
    {"grammar", "\"grammar\":\"root ::= \\\"a\\\"\"", CHANGES},
    {"json_schema", "\"json_schema\":{}", CHANGES},
    {"regex", "\"regex\":\"a\"", CHANGES},
    {"ebnf", "\"ebnf\":\"root ::= \\\"a\\\"\"", CHANGES},
    {"prompt_embeds", "\"prompt_embeds\":\"a\"", REFUSED},
    {"kv_transfer_params", "\"kv_transfer_params\":{\"a\":1}", REFUSED},
    {"ec_transfer_params", "\"ec_transfer_params\":{\"a\":1}", REFUSED},
    {"repetition_detection", "\"repetition_detection\":{}", REFUSED},
    {"thinking_token_budget", "\"thinking_token_budget\":5", REFUSED},
    {"logits_processors", "\"logits_processors\":[\"a\"]", REFUSED},
    {"vllm_xargs", "\"vllm_xargs\":{\"a\":1}", REFUSED},
    {"typical_p", "\"typical_p\":0.5", REFUSED},
    {"tfs_z", "\"tfs_z\":0.5", REFUSED},
    {"top_a", "\"top_a\":0.5", REFUSED},
    {"top_n_sigma", "\"top_n_sigma\":1", REFUSED},
    {"mirostat", "\"mirostat\":2", REFUSED},
    {"mirostat_tau", "\"mirostat_tau\":4", REFUSED},
    {"mirostat_eta", "\"mirostat_eta\":0.2", REFUSED},
    {"dynatemp_range", "\"dynatemp_range\":0.5", REFUSED},
    {"dynatemp_exponent", "\"dynatemp_exponent\":2", REFUSED},
    {"dynatemp_", "\"dynatemp_x\":2", REFUSED},
    {"xtc_probability", "\"xtc_probability\":0.5", REFUSED},
    {"xtc_threshold", "\"xtc_threshold\":0.5", REFUSED},
    {"xtc_", "\"xtc_x\":0.5", REFUSED},
    {"dry_multiplier", "\"dry_multiplier\":0.5", REFUSED},
    {"dry_base", "\"dry_base\":2", REFUSED},
    {"dry_allowed_length", "\"dry_allowed_length\":3", REFUSED},
    {"dry_penalty_last_n", "\"dry_penalty_last_n\":5", REFUSED},
    {"dry_", "\"dry_sequence_breakers\":[\"a\"]", REFUSED},
    {"samplers", "\"samplers\":[\"top_k\"]", REFUSED},
    {"n_probs", "\"n_probs\":2", REFUSED},
    {"n_keep", "\"n_keep\":-1", REFUSED},
    {"n_predict", "\"n_predict\":3", REFUSED},
    {"max_new_tokens", "\"max_new_tokens\":3", REFUSED},
    {"min_new_tokens", "\"min_new_tokens\":3", REFUSED},
    {"lora", "\"lora\":\"a\"", REFUSED},
    {"adapter_id", "\"adapter_id\":\"a\"", REFUSED},
    {"watermark", "\"watermark\":true", REFUSED},
    {"top_n_tokens", "\"top_n_tokens\":2", REFUSED},
    {"routed_experts_prompt_start", "\"routed_experts_prompt_start\":1", REFUSED},
    {"return_token_offsets", "\"return_token_offsets\":true", REFUSED},
    {"repeat_penalty", "\"repeat_penalty\":1.1", REFUSED},
    {"enable_thinking", "\"enable_thinking\":false", REFUSED},
    {"thinking", "\"thinking\":{\"type\":\"enabled\"}", REFUSED},
    {"think", "\"think\":false", REFUSED},
    {"reasoning", "\"reasoning\":{\"effort\":\"low\"}", REFUSED},
    {"options", "\"options\":{\"num_ctx\":9}", REFUSED},
    {"structural_tag", "\"structural_tag\":{\"a\":1}", REFUSED},
    {"lora_path", "\"lora_path\":\"a\"", REFUSED},
    {"custom_logit_processor", "\"custom_logit_processor\":\"a\"", REFUSED},
    {"stop_sequences", "\"stop_sequences\":[\"a\"]", REFUSED},
    {"max_output_tokens", "\"max_output_tokens\":3", REFUSED},
    {"response_schema", "\"response_schema\":{\"type\":\"object\"}", REFUSED},
    {"system", "\"system\":\"a\"", REFUSED},
    {"messages", "\"messages\":[1]", REFUSED},
    {"tools", "\"tools\":[1]", REFUSED},
    {"functions", "\"functions\":[1]", REFUSED},
    {"top_logprobs", "\"top_logprobs\":1", REFUSED},
    {"chat_template", "\"chat_template\":\"a\"", REFUSED},
    {"chat_template_kwargs", "\"chat_template_kwargs\":{\"a\":1}", REFUSED},
    {"reasoning_effort", "\"reasoning_effort\":\"low\"", REFUSED},
    {"include_reasoning", "\"include_reasoning\":false", REFUSED},
    {"tool_choice", "\"tool_choice\":\"required\"", REFUSED},
    {"parallel_tool_calls", "\"parallel_tool_calls\":false", REFUSED},
    {"function_call", "\"function_call\":\"auto\"", REFUSED},
    {"add_generation_prompt", "\"add_generation_prompt\":false", REFUSED},
    {"continue_final_message", "\"continue_final_message\":true", REFUSED},
    {"documents", "\"documents\":[{}]", REFUSED},
    {"modalities", "\"modalities\":[\"audio\"]", REFUSED},
    {"format", "\"format\":\"json\"", CHANGES},
    {"extra_body", "\"extra_body\":{\"top_k\":1}", REFUSED},
    {"num_ctx", "\"num_ctx\":4096", REFUSED},
    {"return_progress", "\"return_progress\":true", REFUSED},
    {"num_predict", "\"num_predict\":3", REFUSED},
    {"random_seed", "\"random_seed\":5", REFUSED},
    {"thinking_budget", "\"thinking_budget\":5", REFUSED},
    {"enable_search", "\"enable_search\":true", REFUSED},
    {"plugins", "\"plugins\":[{\"id\":\"web\"}]", REFUSED},
    {"stop_regex", "\"stop_regex\":\"a\"", REFUSED},
    {"banned_strings", "\"banned_strings\":[\"a\"]", REFUSED},
    {"ban_eos_token", "\"ban_eos_token\":true", REFUSED},
    {"negative_prompt", "\"negative_prompt\":\"a\"", REFUSED},
    {"guidance_scale", "\"guidance_scale\":1.5", REFUSED},
    {"no_repeat_ngram_size", "\"no_repeat_ngram_size\":2", REFUSED},
    {"num_beams", "\"num_beams\":2", REFUSED},
    {"penalty_alpha", "\"penalty_alpha\":0.5", REFUSED},
    {"smoothing_factor", "\"smoothing_factor\":0.5", REFUSED},
    {"epsilon_cutoff", "\"epsilon_cutoff\":3", REFUSED},
    {"eta_cutoff", "\"eta_cutoff\":3", REFUSED},
    {"rep_pen", "\"rep_pen\":1.1", REFUSED},
    {"generationConfig", "\"generationConfig\":{\"topK\":1}", REFUSED},
    {"generation_config", "\"generation_config\":{\"top_k\":1}", REFUSED},
    {"parameters", "\"parameters\":{\"top_k\":1}", REFUSED},
    {"raw", "\"raw\":true", REFUSED},
    {"template", "\"template\":\"a\"", REFUSED},
    {"system_instruction", "\"system_instruction\":\"a\"", REFUSED},
    {"systemInstruction", "\"systemInstruction\":\"a\"", REFUSED},
    {"system_prompt", "\"system_prompt\":\"a\"", REFUSED},
    {"preamble", "\"preamble\":\"a\"", REFUSED},
    {"instructions", "\"instructions\":\"a\"", REFUSED},
    {"verbosity", "\"verbosity\":\"high\"", HINT},
    {"audio", "\"audio\":{}", REFUSED},
    {"prediction", "\"prediction\":{}", HINT},
    {"web_search_options", "\"web_search_options\":{}", REFUSED},
    {"moderation", "\"moderation\":{}", REFUSED},
    {"mm_processor_kwargs", "\"mm_processor_kwargs\":{\"a\":1}", REFUSED},
    {"media_io_kwargs", "\"media_io_kwargs\":{\"a\":1}", REFUSED},
    {"metadata", "\"metadata\":{\"a\":\"b\"}", HARMLESS},
    {"store", "\"store\":true", HARMLESS},
    {"service_tier", "\"service_tier\":\"auto\"", HARMLESS},
    {"safety_identifier", "\"safety_identifier\":\"a\"", HARMLESS},
    {"prompt_cache_key", "\"prompt_cache_key\":\"a\"", HARMLESS},
    {"prompt_cache_retention", "\"prompt_cache_retention\":\"24h\"", HARMLESS},
    {"session_id", "\"session_id\":\"a\"", HARMLESS},
    {"spaces_between_special_tokens", "\"spaces_between_special_tokens\":true", HARMLESS},
    {"cache_prompt", "\"cache_prompt\":true", HARMLESS},
    {"id_slot", "\"id_slot\":3", HARMLESS},
    {"timings_per_token", "\"timings_per_token\":true", HARMLESS},
};
enum { VALUES = sizeof values / sizeof values[0] };

static int value_of(const char *name) {
  for (int i = 0; i < VALUES; i++) {
    if (strcmp(values[i].name, name) == 0) return i;
  }
  cr_assert(false, "no value for the field %s: add one here", name);
  return -1;
}

/* Sends one value and checks that it takes effect, is refused by name, or is known to be harmless.
 */
static void check_value(const char *name, const char *fields, effect_t effect, const char *base) {
  fake_exchange_t *exchange;
  char *text = outcome(fields, &exchange);
  bool refused = text == NULL;
  ASSERT_EQ_FOR(refused, effect == REFUSED, "%s: %s", fields, exchange->body);
  if (refused) {
    ASSERT_EQ_FOR(exchange->error.code, ERR_UNSUPPORTED_PARAMETER, "%s", fields);
    cr_assert(exchange->error.param[0] != '\0' && strstr(fields, exchange->error.param) != NULL,
              "%s: '%s'", fields, exchange->error.param);
  } else {
    bool harmless = effect == HARMLESS || effect == HINT;
    char header[80];
    snprintf(header, sizeof header, "x-inferd-ignored-params: %s\n", name);
    ASSERT_EQ_FOR(strcmp(text, base) == 0, harmless, "%s (%s): %s", name, fields, text);
    ASSERT_EQ_FOR(strstr(exchange->headers, "ignored") != NULL, effect == HINT, "%s", name);
    if (effect == HINT) cr_assert(strstr(exchange->headers, header) != NULL, "%s", header);
  }
  free(text);
  fake_exchange_free(exchange);
}

static char *base_of(const char *fields) {
  fake_exchange_t *exchange;
  char *base = outcome(fields, &exchange);
  fake_exchange_free(exchange);
  return base;
}

Test(fields, no_field_is_silently_ignored) {
  char *base = base_of(""), *cut = base_of("\"truncate_prompt_tokens\":3");
  for (size_t row = 0; row < params_table.count; row++) {
    int v = value_of(params_table.rows[row].name);
    bool side = strcmp(values[v].name, "truncation_side") == 0;
    if (values[v].fields == NULL) continue;
    check_value(values[v].name, values[v].fields, values[v].effect, side ? cut : base);
  }
  free(base);
  free(cut);
}

Test(fields, no_field_has_two_rows) {
  for (size_t i = 0; i < params_table.count; i++) {
    for (size_t j = i + 1; j < params_table.count; j++) {
      if ((params_table.rows[j].flags & FIELD_PREFIX) != 0) continue;
      ASSERT_NE_FOR(strcmp(params_table.rows[i].name, params_table.rows[j].name), 0, "%s",
                    params_table.rows[i].name);
    }
  }
}

#define TOOL "{\"type\":\"function\",\"function\":{\"name\":\"f\"}}"

/* The rows of chat alone, and those that mean something else there. */
static const struct {
  const char *name, *fields;
  effect_t effect;
} chat_values[] = {
    {"messages", NULL, HARMLESS},
    {"prompt", "\"prompt\":\"a\"", REFUSED},
    {"add_special_tokens", "\"add_special_tokens\":true", CHANGES},
    {"logprobs", "\"logprobs\":true", CHANGES},
    {"top_logprobs", "\"logprobs\":true,\"top_logprobs\":3", CHANGES},
    {"tools", "\"tools\":[" TOOL "]", CHANGES},
    {"tool_choice", "\"tools\":[" TOOL "],\"tool_choice\":\"required\"", CHANGES},
    {"parallel_tool_calls", "\"parallel_tool_calls\":false", CHANGES},
    {"functions", "\"functions\":[1]", REFUSED},
    {"function_call", "\"function_call\":\"auto\"", REFUSED},
    {"add_generation_prompt", "\"add_generation_prompt\":false", CHANGES},
    {"continue_final_message", "\"continue_final_message\":true", CHANGES},
    {"chat_template", "\"chat_template\":\"a\"", REFUSED},
    {"chat_template_kwargs", "\"chat_template_kwargs\":{\"think\":1}", CHANGES},
    {"documents", "\"documents\":[{}]", REFUSED},
    {"reasoning_effort", "\"reasoning_effort\":\"low\"", HINT},
    {"include_reasoning", "\"include_reasoning\":false", CHANGES},
    {"suffix", "\"suffix\":\"x\"", REFUSED},
    {"prompt_embeds", "\"prompt_embeds\":\"a\"", REFUSED},
    {"source_lang", "\"source_lang\":\"en\"", REFUSED},
    {"target_lang", "\"target_lang\":\"de\"", REFUSED},
    {"decoder_prompt", "\"decoder_prompt\":\"x\"", REFUSED},
    {"modalities", "\"modalities\":[\"audio\"]", REFUSED},
    /* of completions, with a larger base */
    {"max_tokens", "\"max_tokens\":9", CHANGES},
};
enum { CHAT_VALUES = sizeof chat_values / sizeof chat_values[0] };

/* Fields of completions have the same effect in chat, and chat's own have one. */
Test(fields, no_field_of_chat_is_silently_ignored) {
  in_chat = true;
  char *base = base_of(""), *cut = base_of("\"truncate_prompt_tokens\":3");
  for (int i = 0; i < CHAT_VALUES; i++) {
    if (chat_values[i].fields == NULL) continue;
    check_value(chat_values[i].name, chat_values[i].fields, chat_values[i].effect, base);
  }
  for (size_t row = 0; row < chat_table.count; row++) {
    bool found = false;
    for (int i = 0; i < CHAT_VALUES; i++) {
      found = found || strcmp(chat_values[i].name, chat_table.rows[row].name) == 0;
    }
    cr_assert(found, "no value for the field %s: add one here", chat_table.rows[row].name);
  }
  for (int v = 0; v < VALUES; v++) {
    const field_t *row = fields_find(&chat_table, values[v].name, strlen(values[v].name));
    bool own = row >= chat_table.rows && row < chat_table.rows + chat_table.count;
    if (own || values[v].fields == NULL) continue;
    if (strcmp(values[v].name, "logprob_token_ids") == 0) continue; /* needs another logprobs */
    bool side = strcmp(values[v].name, "truncation_side") == 0;
    check_value(values[v].name, values[v].fields, values[v].effect, side ? cut : base);
  }
  check_value("logprob_token_ids", "\"logprobs\":true,\"logprob_token_ids\":[9]", CHANGES, base);
  free(base);
  free(cut);
}

/* Every name that the API's description has. */
static const char names[] =
#define SAMPLING(name, flags, min, max, fallback, noop, kind, label, step, help) #name " "
#include "engine/device/sampling.def"
    "model prompt max_tokens n best_of logit_bias logprobs echo stop stream stream_options seed "
    "suffix user top_k min_tokens stop_token_ids include_stop_str_in_output ignore_eos "
    "skip_special_tokens add_special_tokens truncate_prompt_tokens truncation_side "
    "allowed_token_ids bad_words prompt_logprobs logprob_token_ids use_beam_search "
    "length_penalty early_stopping return_token_ids return_tokens_as_token_ids cache_salt "
    "priority request_id stream_interval response_format structured_outputs guided_json "
    "guided_regex guided_choice guided_grammar guided_decoding_backend grammar json_schema "
    "regex ebnf prompt_embeds kv_transfer_params ec_transfer_params repetition_detection "
    "thinking_token_budget logits_processors vllm_xargs typical_p tfs_z top_a top_n_sigma "
    "mirostat mirostat_tau dynatemp_range xtc_probability dry_multiplier samplers n_probs "
    "n_keep n_predict max_new_tokens min_new_tokens lora adapter_id watermark top_n_tokens "
    "routed_experts_prompt_start return_token_offsets metadata store service_tier "
    "safety_identifier prompt_cache_key prompt_cache_retention session_id "
    "spaces_between_special_tokens cache_prompt id_slot timings_per_token max_completion_tokens "
    "messages top_logprobs tools functions chat_template chat_template_kwargs reasoning_effort "
    "tool_choice parallel_tool_calls function_call add_generation_prompt continue_final_message "
    "include_reasoning audio modalities prediction web_search_options moderation";

static void expect_known(const field_table_t *table, const char *list) {
  for (size_t length; *list != '\0'; list += length + (list[length] == ' ')) {
    length = strcspn(list, " ");
    cr_assert(fields_find(table, list, length) != NULL, "%.*s", (int)length, list);
  }
}

Test(fields, none_of_the_names_is_a_stranger) {
  expect_known(&params_table, names);
  expect_known(&chat_table, names);
}

Test(fields, null_means_default_for_every_field) {
  fake_exchange_t *exchange;
  char *base = outcome("", &exchange), fields[128];
  fake_exchange_free(exchange);
  for (size_t row = 0; row < params_table.count; row++) {
    if (strcmp(params_table.rows[row].name, "prompt") == 0) continue;
    snprintf(fields, sizeof fields, "\"%s\":null", params_table.rows[row].name);
    char *text = outcome(fields, &exchange);
    cr_assert(text != NULL, "%s: %s", fields, exchange->body);
    ASSERT_STR_EQ_FOR(text, base, "%s", fields);
    free(text);
    fake_exchange_free(exchange);
  }
  free(base);
}

Test(fields, values_that_change_nothing_are_accepted) {
  static const char *const noops[] = {
      "\"response_format\":{\"type\":\"text\"}",
      "\"typical_p\":1",
      "\"typical_p\":1.0",
      "\"mirostat\":0",
      "\"mirostat_tau\":5.0",
      "\"use_beam_search\":false",
      "\"n\":1,\"best_of\":1",
      "\"suffix\":\"\"",
      "\"lora\":[]",
      "\"top_n_sigma\":-1",
      "\"watermark\":false",
      "\"grammar\":\"\"",
      "\"stream_options\":{}",
      "\"logit_bias\":{}",
      "\"stop\":[]",
      "\"max_tokens\":16.0",
      "\"max_tokens\":1.6e1",
      "\"temperature\":1",
      "\"seed\":-1",
      "\"stop_token_ids\":[]",
      "\"bad_words\":[]",
      "\"repeat_penalty\":1.0",
      "\"stop_sequences\":[]",
      "\"lora_path\":\"\"",
      "\"options\":{}",
  };
  fake_exchange_t *exchange;
  char *base = outcome("", &exchange);
  fake_exchange_free(exchange);
  for (size_t i = 0; i < sizeof noops / sizeof noops[0]; i++) {
    char *text = outcome(noops[i], &exchange);
    cr_assert(text != NULL, "%s: %s", noops[i], exchange->body);
    ASSERT_STR_EQ_FOR(text, base, "%s", noops[i]);
    free(text);
    fake_exchange_free(exchange);
  }
  free(base);
}

/* ---- /tokenize, /detokenize ---- */

#define SAY "\"messages\":[{\"role\":\"u\",\"content\":\"h\"}]"

/* Rows whose value has no meaning with a prompt are refused there. */
static const struct {
  const char *name, *base, *fields;
  effect_t effect;
  bool of_messages;
} tokenize_values[] = {
    {"model", "\"prompt\":\"ab\"", "\"model\":\"tiny\"", HARMLESS, false},
    {"prompt", "\"prompt\":\"ab\"", NULL, HARMLESS, false},
    {"add_special_tokens", "\"prompt\":\"ab\"", "\"add_special_tokens\":false", CHANGES, false},
    {"return_token_strs", "\"prompt\":\"ab\"", "\"return_token_strs\":true", CHANGES, false},
    {"messages", SAY, NULL, HARMLESS, false},
    {"tools", SAY, "\"tools\":[" TOOL "]", CHANGES, true},
    {"documents", SAY, "\"documents\":[{}]", REFUSED, true},
    {"chat_template", SAY, "\"chat_template\":\"a\"", REFUSED, true},
    {"chat_template_kwargs", SAY, "\"chat_template_kwargs\":{\"think\":1}", CHANGES, true},
    {"reasoning_effort", SAY, "\"reasoning_effort\":\"low\"", HINT, true},
    {"add_generation_prompt", SAY, "\"add_generation_prompt\":false", CHANGES, true},
    {"continue_final_message", SAY, "\"continue_final_message\":true", CHANGES, true},
};
enum { TOKENIZE_VALUES = sizeof tokenize_values / sizeof tokenize_values[0] };

static fake_exchange_t *tokenize(const char *base, const char *fields) {
  char body[300];
  snprintf(body, sizeof body, "{%s%s%s}", base, *fields != '\0' ? "," : "", fields);
  return fake_call(api_tokenize, body);
}

static void expect_refused(fake_exchange_t *exchange, const char *name) {
  ASSERT_EQ_FOR(exchange->error.code, ERR_UNSUPPORTED_PARAMETER, "%s: %s", name, exchange->body);
  ASSERT_STR_EQ(exchange->error.param, name);
  fake_exchange_free(exchange);
}

Test(fields, no_field_of_tokenize_is_silently_ignored) {
  for (size_t row = 0; row < tokenize_table.count; row++) {
    int v = 0;
    while (v < TOKENIZE_VALUES && strcmp(tokenize_values[v].name, tokenize_table.rows[row].name))
      v++;
    ASSERT_LT_FOR(v, TOKENIZE_VALUES, "no value for %s: add one", tokenize_table.rows[row].name);
    const char *name = tokenize_values[v].name, *fields = tokenize_values[v].fields;
    if (fields == NULL) continue;
    if (tokenize_values[v].of_messages) expect_refused(tokenize("\"prompt\":\"ab\"", fields), name);
    fake_exchange_t *sent = tokenize(tokenize_values[v].base, fields);
    if (tokenize_values[v].effect == REFUSED) {
      expect_refused(sent, name);
      continue;
    }
    fake_exchange_t *base = tokenize(tokenize_values[v].base, "");
    cr_assert(base->status == 200 && sent->status == 200, "%s: %s", name, sent->body);
    bool hint = tokenize_values[v].effect == HINT;
    bool harmless = hint || tokenize_values[v].effect == HARMLESS;
    ASSERT_EQ_FOR(strcmp(base->body, sent->body) == 0, harmless, "%s", name);
    ASSERT_EQ_FOR(strstr(sent->headers, "ignored") != NULL, hint, "%s", sent->headers);
    fake_exchange_free(base);
    fake_exchange_free(sent);
  }
}

Test(fields, what_tokenize_does_not_know_is_reported) {
  fake_exchange_t *exchange = tokenize("\"prompt\":\"ab\"", "\"tokens\":[1],\"odd\":2");
  ASSERT_EQ(exchange->status, 200);
  cr_assert(strstr(exchange->headers, "x-inferd-ignored-params: tokens,odd\n"), "%s",
            exchange->headers);
  fake_exchange_free(exchange);
  exchange = fake_call(api_detokenize, "{\"tokens\":[97],\"skip_special_tokens\":true}");
  cr_assert(strstr(exchange->headers, "x-inferd-ignored-params: skip_special_tokens\n"), "%s",
            exchange->headers);
  fake_exchange_free(exchange);
  ASSERT_EQ_FOR(detokenize_table.count, 2u, "a new field of /detokenize wants a test");
}

/* A default that a client may not send would be a lie in docs/api.md. ABSENT and NOT_TRUNCATED
 * stand for no value. */
Test(fields, defaults_are_within_their_own_bounds) {
  const field_table_t *const tables[] = {&params_table,   &chat_table,    &embedding_table,
                                         &classify_table, &pooling_table, &rerank_table,
                                         &score_table,    &tokenize_table};
  int checked = 0;
  for (size_t i = 0; i < sizeof tables / sizeof *tables; i++) {
    for (size_t j = 0; j < tables[i]->count; j++) {
      const field_t *row = &tables[i]->rows[j];
      if (row->kind != FIELD_INT && row->kind != FIELD_NUMBER) continue;
      if ((row->flags & (FIELD_ALTERNATIVES | FIELD_WHOLE_INT64)) != 0) continue;
      bool absent = row->fallback == ABSENT || row->fallback == NOT_TRUNCATED;
      bool open = (row->flags & FIELD_OPEN_MIN) != 0;
      bool within = row->fallback <= row->max &&
                    (open ? row->fallback > row->min : row->fallback >= row->min);
      ASSERT_EQ_FOR(absent || within, true, "%s of table %zu", row->name, i);
      checked++;
    }
  }
  ASSERT_GE(checked, 25);
}
