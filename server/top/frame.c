/* frame.c: two readings of /metrics -> the lines that `inferd top` shows.
 *
 * Pure functions, any thread. Rates are differences over the time between the two; latencies are of
 * that time, or since the start where it had none.
 */
#include "server/top/top.h"

#include "engine/base/util.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { BAR_CELLS = 20, KEYS_SHOWN = 16, LABEL_COLUMNS = 24, MODELS_SHOWN = 32 };

typedef struct frame {
  char *text;
  size_t used;
} frame_t;

__attribute__((format(printf, 2, 3))) static void print(frame_t *frame, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  int n = vsnprintf(frame->text + frame->used, FRAME_BYTES_MAX - frame->used, format, arguments);
  va_end(arguments);
  frame->used = MIN(frame->used + (size_t)MAX(n, 0), (size_t)FRAME_BYTES_MAX - 1);
}

/* A name from outside, without what a terminal would obey. */
static const char *plain(const char *text, char out[SCRAPE_TEXT_MAX]) {
  size_t i = 0;
  for (; text[i] != '\0' && i < SCRAPE_TEXT_MAX - 1; i++) {
    unsigned char byte = (unsigned char)text[i];
    out[i] = byte < 0x20 || byte == 0x7f ? '?' : text[i];
  }
  out[i] = '\0';
  return out;
}

static void print_number(frame_t *frame, double value, int width, const char *unit) {
  if (isnan(value)) {
    print(frame, "%*s%s", width, "-", unit);
  } else if (value == floor(value) && fabs(value) < 1e15) {
    print(frame, "%*.0f%s", width, value, unit);
  } else {
    print(frame, "%*.1f%s", width, value, unit);
  }
}

static void print_seconds(frame_t *frame, double seconds) {
  if (isnan(seconds)) {
    print(frame, "%12s", "-");
  } else if (seconds < 0.01) {
    print(frame, "%9.2f ms", seconds * 1000);
  } else if (seconds < 1) {
    print(frame, "%9.0f ms", seconds * 1000);
  } else {
    print(frame, "%10.2f s", seconds);
  }
}

/* What a counter grew by; all of it where the server was started again. */
static double growth(double before, double now) {
  return now >= before ? now - before : now;
}

static double growth_of(const scrape_t *before, const scrape_t *now, scrape_figure_t figure) {
  return growth(before->figures[figure], now->figures[figure]);
}

static double seconds_between(const scrape_t *before, const scrape_t *now) {
  return (double)(now->at_ns - before->at_ns) * 1e-9;
}

static void print_head(frame_t *frame, const scrape_t *now, const char *shown, double unix_time) {
  char text[SCRAPE_TEXT_MAX];
  double up_s = unix_time - now->figures[FIGURE_start_time];
  print(frame, "inferd %s", plain(now->version, text));
  if (now->num_models > 0)
    print(frame, "  %d models", now->num_models);
  else
    print(frame, "  %s", plain(now->model, text));
  print(frame, "  %s", plain(now->state, text));
  if (up_s >= 0 && up_s < 1e10) {
    long minutes = (long)(up_s / 60);
    print(frame, ", up %ld h %02ld min", minutes / 60, minutes % 60);
  }
  print(frame, "  %s\n\n", shown);
}

static void print_load(frame_t *frame, const scrape_t *now) {
  double usage = now->figures[FIGURE_kv_usage];
  char bar[BAR_CELLS + 1];
  print(frame, "running ");
  print_number(frame, now->figures[FIGURE_running], 6, "");
  print(frame, "     waiting ");
  print_number(frame, now->figures[FIGURE_waiting], 6, "");
  if (now->figures[FIGURE_swapped] > 0) {
    print(frame, "     swapped ");
    print_number(frame, now->figures[FIGURE_swapped], 6, "");
  }
  for (int i = 0; i < BAR_CELLS; i++) bar[i] = usage * BAR_CELLS > i ? '#' : '.';
  bar[BAR_CELLS] = '\0';
  print(frame, "\nKV cache ");
  print_number(frame, round(usage * 1000) / 10, 5, " %");
  print(frame, "   [%s]\n\n", bar);
}

static void print_rates(frame_t *frame, const scrape_t *before, const scrape_t *now) {
  double seconds = seconds_between(before, now);
  double looked_up = growth_of(before, now, FIGURE_prefix_queries);
  double hits = growth_of(before, now, FIGURE_prefix_hits);
  bool recent = looked_up > 0;
  if (!recent) { /* then what it was since the start */
    looked_up = now->figures[FIGURE_prefix_queries];
    hits = now->figures[FIGURE_prefix_hits];
  }
  print(frame, "prompt    ");
  print_number(frame, growth_of(before, now, FIGURE_prompt_tokens) / seconds, 9, " tokens/s\n");
  print(frame, "generated ");
  print_number(frame, growth_of(before, now, FIGURE_generation_tokens) / seconds, 9, " tokens/s\n");
  print(frame, "prefix hits ");
  print_number(frame, looked_up > 0 ? round(hits / looked_up * 1000) / 10 : NAN, 7, " %");
  print(frame, "%s\n", recent ? "" : "   since the start");
  double preemptions = growth_of(before, now, FIGURE_preemptions);
  if (preemptions > 0) print(frame, "preemptions %7.0f\n", preemptions);
}

static void print_latencies(frame_t *frame, const scrape_t *before, const scrape_t *now) {
  static const char *const names[LATENCY_COUNT] = {"first token", "between tokens"};
  print(frame, "\n%-16s%12s%12s%10s\n", "", "p50", "p99", "of");
  for (int i = 0; i < LATENCY_COUNT; i++) {
    const scrape_histogram_t *old = &before->latencies[i], *new = &now->latencies[i];
    bool recent = scrape_observed(old, new) > 0;
    if (!recent) old = NULL;
    print(frame, "%-16s", names[i]);
    print_seconds(frame, scrape_quantile(old, new, 0.5));
    print_seconds(frame, scrape_quantile(old, new, 0.99));
    print(frame, "%10.0f%s\n", scrape_observed(old, new), recent ? "" : "   since the start");
  }
}

static const scrape_key_t *key_of(const scrape_t *scrape, const char *label) {
  static const scrape_key_t none;
  for (int i = 0; i < scrape->num_keys; i++) {
    if (strcmp(scrape->keys[i].label, label) == 0) return &scrape->keys[i];
  }
  return &none;
}

static void print_keys(frame_t *frame, const scrape_t *before, const scrape_t *now) {
  double seconds = seconds_between(before, now);
  char label[SCRAPE_TEXT_MAX];
  if (now->num_keys == 0) return;
  print(frame, "\n%-*s%10s%14s%14s%10s\n", LABEL_COLUMNS, "key", "requests", "prompt/s",
        "generated/s", "refused");
  for (int i = 0; i < MIN(now->num_keys, (int)KEYS_SHOWN); i++) {
    const scrape_key_t *new = &now->keys[i], *old = key_of(before, new->label);
    print(frame, "%-*.*s", LABEL_COLUMNS, LABEL_COLUMNS - 1, plain(new->label, label));
    print_number(frame, new->requests, 10, "");
    print_number(frame, growth(old->prompt_tokens, new->prompt_tokens) / seconds, 14, "");
    print_number(frame, growth(old->generation_tokens, new->generation_tokens) / seconds, 14, "");
    print_number(frame, new->refused, 10, "\n");
  }
  if (now->num_keys > KEYS_SHOWN) print(frame, "and %d more\n", now->num_keys - KEYS_SHOWN);
}

static const scrape_model_t *model_of(const scrape_t *scrape, const char *name) {
  static const scrape_model_t none;
  for (int i = 0; i < scrape->num_models; i++) {
    if (strcmp(scrape->models[i].name, name) == 0) return &scrape->models[i];
  }
  return &none;
}

static void print_model(frame_t *frame, const scrape_model_t *old, const scrape_model_t *new,
                        double seconds) {
  char name[SCRAPE_TEXT_MAX], state[SCRAPE_TEXT_MAX];
  print(frame, "%-*.*s%-9s", LABEL_COLUMNS, LABEL_COLUMNS - 1, plain(new->name, name),
        plain(new->state, state));
  print(frame, "%7.2f GiB", new->bytes / (1 << 30));
  print_number(frame, new->running, 8, "");
  print_number(frame, new->waiting, 8, "");
  print_number(frame, growth(old->prompt_tokens, new->prompt_tokens) / seconds, 10, "");
  print_number(frame, growth(old->generation_tokens, new->generation_tokens) / seconds, 10, "\n");
}

/* Of several models: a line for each, those in memory first. */
static void print_models(frame_t *frame, const scrape_t *before, const scrape_t *now) {
  double seconds = seconds_between(before, now);
  int shown = 0;
  print(frame, "%-*s%-9s%11s%8s%8s%10s%10s\n", LABEL_COLUMNS, "model", "state", "memory", "running",
        "waiting", "prompt/s", "gen/s");
  for (int in_memory = 1; in_memory >= 0; in_memory--) {
    for (int i = 0; i < now->num_models; i++) {
      const scrape_model_t *new = &now->models[i];
      if ((new->bytes > 0) != (in_memory == 1) || shown == MODELS_SHOWN) continue;
      print_model(frame, model_of(before, new->name), new, seconds);
      shown++;
    }
  }
  if (now->num_models > shown) print(frame, "and %d more\n", now->num_models - shown);
}

size_t top_frame(const scrape_t *before, const scrape_t *now, const char *shown, double unix_time,
                 char out[FRAME_BYTES_MAX]) {
  frame_t frame = {.text = out};
  out[0] = '\0';
  print_head(&frame, now, shown, unix_time);
  if (now->num_models > 0) {
    print_models(&frame, before, now);
  } else {
    print_load(&frame, now);
    print_rates(&frame, before, now);
    print_latencies(&frame, before, now);
  }
  print_keys(&frame, before, now);
  return frame.used;
}
