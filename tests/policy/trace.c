/* trace.c: requests drawn from a seed. One thread.
 *
 * Lengths are log-normal, given by median and mean. Sources: conversations and code of Azure's
 * traces (Patel et al., Splitwise, ISCA 2024: medians of 1,020 and 129 tokens, of 1,500 and 13);
 * ShareGPT (Kwon et al., PagedAttention, SOSP 2023: means of 161 and 338 tokens). Arrivals are a
 * Poisson process; bursts come as in BurstGPT (Wang et al., 2024): all that a Poisson process
 * brings in some seconds comes at once. Agents, dialogues and
 * documents are our own guess.
 */
#include "tests/policy/policy.h"

#include "engine/base/random.h"
#include "engine/base/util.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct source {
  uint64_t state;
  trace_t *trace;
  double rate;
} source_t;

static double draw(source_t *source) {
  return random_uniform(random_mix(source->state += RANDOM_GAMMA), 0);
}

static int32_t draw_below(source_t *source, int32_t limit) {
  return (int32_t)(draw(source) * limit);
}

static double draw_normal(source_t *source) {
  double radius = sqrt(-2 * log(draw(source)));
  return radius * cos(2 * M_PI * draw(source));
}

/* A length with this median and mean, in tokens. */
static int32_t draw_length(source_t *source, double median, double mean, int32_t most) {
  double sigma = sqrt(2 * log(mean / median));
  double length = median * exp(sigma * draw_normal(source));
  return (int32_t)MIN(MAX(length, 1), most);
}

static job_t *add(source_t *source) {
  trace_t *trace = source->trace;
  job_t *job = &trace->jobs[trace->count++];
  job->text = random_mix(source->state += RANDOM_GAMMA);
  job->tenant = draw_below(source, TENANTS);
  return job;
}

static void fill_chat(source_t *source, job_t *job) {
  job->prompt = draw_length(source, 1020, 1155, 16384);
  job->output = draw_length(source, 129, 211, 2048);
}

static void fill_code(source_t *source, job_t *job) {
  job->prompt = draw_length(source, 1500, 2048, 16384);
  job->output = draw_length(source, 13, 28, 1024);
}

static void fill_sharegpt(source_t *source, job_t *job) {
  job->prompt = draw_length(source, 98, 161, 4096);
  job->output = draw_length(source, 205, 338, 2048);
}

/* ShareGPT, and one prompt of fifty with 16,384 to 32,768 tokens. */
static void fill_mixed(source_t *source, job_t *job) {
  fill_sharegpt(source, job);
  if (draw(source) < 0.02) job->prompt = 16384 + draw_below(source, 16384);
}

/* One of five reads a document of its own, which nobody reads again; the others are chats under
 * one of 64 system prompts. */
static void fill_documents(source_t *source, job_t *job) {
  if (draw(source) < 0.2) {
    job->prompt = 8192 + draw_below(source, 8192);
    job->output = draw_length(source, 200, 250, 1024);
    return;
  }
  job->num_system = 3000;
  job->system = 1 + (uint64_t)draw_below(source, 64);
  job->prompt = job->num_system + draw_length(source, 150, 250, 2048);
  job->output = draw_length(source, 129, 211, 1024);
}

/* Conversations: each turn has all that came before, and some more. */
typedef struct conversation {
  int32_t num_system;   /* tokens, of eight texts */
  int32_t median, mean; /* of what a turn adds */
  int32_t answer_median, answer_mean;
  double pause_s; /* between turns, on average */
} conversation_t;
/* With tools, which take seconds; and with people, who read and think. */
static const conversation_t agents = {2000, 150, 300, 80, 120, 2};
static const conversation_t dialogues = {1500, 250, 400, 200, 300, 30};

static void add_conversation(source_t *source, const conversation_t *kind, double due_s) {
  job_t *before = NULL;
  int32_t length = kind->num_system, turns = 4 + draw_below(source, 9);
  uint64_t system = 1 + (uint64_t)draw_below(source, 8);
  for (int32_t turn = 0; turn < turns; turn++) {
    job_t *job = add(source);
    job->system = system;
    job->num_system = kind->num_system;
    job->prompt = length + draw_length(source, kind->median, kind->mean, 4096);
    job->output = draw_length(source, kind->answer_median, kind->answer_mean, 512);
    job->due_s = turn == 0 ? due_s : -log(draw(source)) * kind->pause_s;
    length = job->prompt + job->output;
    if (before != NULL) {
      job->text = before->text;
      job->num_before = before->prompt + before->output;
      job->tenant = before->tenant;
      before->next_turn = job;
    }
    before = job;
  }
}

/* One client sends nine of ten requests, and another one what is left. */
static void fill_two_tenants(source_t *source, job_t *job) {
  fill_chat(source, job);
  job->tenant = draw(source) < 0.1;
}

static const struct kind {
  const char *name;
  void (*fill)(source_t *source, job_t *job); /* NULL: conversations */
  double burst_s;                             /* 0 = requests come one by one */
  const conversation_t *conversation;
} kinds[] = {
    {"chat", fill_chat, 0, NULL},           {"code", fill_code, 0, NULL},
    {"sharegpt", fill_sharegpt, 0, NULL},   {"sharegpt+long", fill_mixed, 0, NULL},
    {"agents", NULL, 0, &agents},           {"dialogues", NULL, 0, &dialogues},
    {"documents", fill_documents, 0, NULL}, {"two clients", fill_two_tenants, 0, NULL},
    {"bursts", fill_chat, 4, NULL},
};

static int compare(const void *left, const void *right) {
  double a = ((const job_t *)left)->due_s, b = ((const job_t *)right)->due_s;
  return (a > b) - (a < b);
}

static void make_conversations(source_t *source, const load_t *load, const conversation_t *kind) {
  for (double due_s = 0; (due_s += -log(draw(source)) / load->rate) < load->seconds;)
    add_conversation(source, kind, due_s);
}

static void make_each(source_t *source, const load_t *load, const struct kind *kind) {
  for (double due_s = 0; (due_s += -log(draw(source)) / load->rate) < load->seconds;) {
    job_t *job = add(source);
    job->due_s = kind->burst_s > 0 ? floor(due_s / kind->burst_s) * kind->burst_s : due_s;
    kind->fill(source, job);
  }
}

/* Puts first turns before later ones, in the order of their time. */
static void sort_turns(trace_t *trace) {
  size_t bytes = (size_t)trace->count * sizeof(job_t);
  job_t *sorted = malloc(bytes);
  int32_t *place = calloc((size_t)trace->count, sizeof *place);
  if (sorted == NULL || place == NULL) exit(1);
  bool *is_later = calloc((size_t)trace->count, sizeof *is_later);
  if (is_later == NULL) exit(1);
  for (int i = 0; i < trace->count; i++) {
    if (trace->jobs[i].next_turn != NULL) is_later[trace->jobs[i].next_turn - trace->jobs] = true;
  }
  int n = 0;
  for (int later = 0; later < 2; later++) {
    for (int i = 0; i < trace->count; i++) {
      if (is_later[i] == (later == 1)) place[i] = n++;
    }
    if (later == 0) trace->num_first_turns = n;
  }
  for (int i = 0; i < trace->count; i++) {
    job_t *job = &sorted[place[i]];
    *job = trace->jobs[i];
    if (job->next_turn != NULL) job->next_turn = &trace->jobs[place[job->next_turn - trace->jobs]];
  }
  memcpy(trace->jobs, sorted, bytes);
  free(sorted);
  free(place);
  free(is_later);
}

bool trace_make(const load_t *load, uint64_t seed, trace_t *trace) {
  const struct kind *kind = NULL;
  for (size_t i = 0; i < ARRAY_LEN(kinds); i++) {
    if (strcmp(kinds[i].name, load->kind) == 0) kind = &kinds[i];
  }
  if (kind == NULL) return false;
  size_t most = (size_t)(load->rate * load->seconds * (kind->fill != NULL ? 2 : 26)) + 1000;
  *trace = (trace_t){.jobs = calloc(most, sizeof(job_t))};
  if (trace->jobs == NULL) exit(1);
  source_t source = {.state = random_mix(seed), .trace = trace};
  if (kind->fill == NULL) {
    make_conversations(&source, load, kind->conversation);
    sort_turns(trace);
  } else {
    make_each(&source, load, kind);
    qsort(trace->jobs, (size_t)trace->count, sizeof(job_t), compare);
    trace->num_first_turns = trace->count;
  }
  return true;
}
