/* lifecycle.c: the rules of lifecycle.h. One thread; calls nothing but the heap. */
#include "server/models/lifecycle.h"

#include "engine/base/check.h"
#include "engine/base/util.h"

#include <stdlib.h>
#include <string.h>

const char *const life_state_names[] = {"unloaded", "loading", "ready",
                                        "draining", "failed",  "asleep"};

enum { FIRST_RATE = 500 * 1000 * 1000 }; /* bytes a second, until a load was seen */

/* What happens looks at active models alone: those in memory, and those that somebody waits for or
 * wants. Of the others there may be very many. */
struct life {
  life_limits_t limits;
  life_model_t **models, **active;
  life_model_t **candidates, **victims, **chosen; /* of one look */
  int32_t count, capacity, num_active, num_victims, num_added;
  int64_t used[LIFE_PLACES];   /* by models in memory */
  int64_t pinned[LIFE_PLACES]; /* by models that are pinned and have not failed */
  uint64_t num_looks;
  uint64_t turn;   /* rule 3: grows by one with each load */
  double rate;     /* bytes a second of loads, a mean over the last ones */
  double serve_ns; /* that a request runs, the same */
  bool closed;     /* the last look at the candidates has closed a model */
};

/* ---- small things ---- */

static bool in_memory(const life_model_t *model) {
  return model->state == LIFE_LOADING || model->state == LIFE_READY ||
         model->state == LIFE_DRAINING;
}

static bool has_process(const life_model_t *model) {
  return in_memory(model) || model->state == LIFE_ASLEEP;
}

static bool is_idle(const life_model_t *model) {
  return model->state == LIFE_READY && model->num_running == 0 && model->num_waiting == 0;
}

static bool holds(const int64_t room[LIFE_PLACES], const int64_t need[LIFE_PLACES]) {
  for (int i = 0; i < LIFE_PLACES; i++) {
    if (need[i] > room[i]) return false;
  }
  return true;
}

static void add(int64_t sum[LIFE_PLACES], const int64_t bytes[LIFE_PLACES], int64_t sign) {
  for (int i = 0; i < LIFE_PLACES; i++) sum[i] += sign * bytes[i];
}

/* Counts the model in what is pinned, or no more. */
static void count_pinned(life_t *life, const life_model_t *model, int64_t sign) {
  bool counts = model->plan.pinned && model->state != LIFE_FAILED;
  if (counts) add(life->pinned, model->plan.bytes, sign);
}

static bool can_sleep(const life_model_t *model) {
  return model->plan.asleep[LIFE_SLEEP] > 0;
}

/* What it takes while it falls asleep or wakes: both. */
static void on_the_way(const life_model_t *model, int64_t out[LIFE_PLACES]) {
  for (int i = 0; i < LIFE_PLACES; i++) out[i] = MAX(model->plan.bytes[i], model->plan.asleep[i]);
}

/* What counts of it from now on. */
static void hold(life_t *life, life_model_t *model, const int64_t bytes[LIFE_PLACES]) {
  add(life->used, model->held, -1);
  memcpy(model->held, bytes, sizeof model->held);
  add(life->used, model->held, 1);
}

/* What must be free for it to be loaded, or to wake. */
static void need_of(const life_model_t *model, int64_t out[LIFE_PLACES]) {
  memcpy(out, model->plan.bytes, LIFE_PLACES * sizeof *out);
  if (model->state == LIFE_ASLEEP) on_the_way(model, out);
  add(out, model->held, -1);
}

/* To be called when what makes a model active has changed. */
static void touch(life_t *life, life_model_t *model) {
  bool active = has_process(model) || model->first != NULL || model->wish != LIFE_NO_WISH;
  if (active == (model->place >= 0)) return;
  if (active) {
    model->place = life->num_active;
    life->active[life->num_active++] = model;
  } else {
    life_model_t *last = life->active[--life->num_active];
    life->active[model->place] = last;
    last->place = model->place;
    model->place = -1;
  }
}

/* The one place that changes the state. */
static void move(life_t *life, life_model_t *model, life_state_t to) {
#define FROM(state) (1u << (state))
  static const unsigned allowed_from[] = {
      [LIFE_UNLOADED] = FROM(LIFE_DRAINING) | FROM(LIFE_ASLEEP),
      [LIFE_LOADING] = FROM(LIFE_UNLOADED) | FROM(LIFE_FAILED) | FROM(LIFE_ASLEEP),
      [LIFE_READY] = FROM(LIFE_LOADING),
      [LIFE_DRAINING] = FROM(LIFE_READY) | FROM(LIFE_LOADING) | FROM(LIFE_ASLEEP),
      [LIFE_FAILED] = FROM(LIFE_LOADING) | FROM(LIFE_READY),
      [LIFE_ASLEEP] = FROM(LIFE_DRAINING),
  };
#undef FROM
  static const int64_t nothing[LIFE_PLACES];
  int64_t both[LIFE_PLACES];
  CHECK((allowed_from[to] & (1u << model->state)) != 0);
  on_the_way(model, both);
  count_pinned(life, model, -1);
  model->wakes = to == LIFE_LOADING && model->state == LIFE_ASLEEP;
  model->state = to;
  count_pinned(life, model, 1);
  switch (to) {
  case LIFE_UNLOADED:
  case LIFE_FAILED: hold(life, model, nothing); break;
  case LIFE_LOADING: hold(life, model, model->wakes ? both : model->plan.bytes); break;
  case LIFE_READY: hold(life, model, model->plan.bytes); break;
  case LIFE_ASLEEP: hold(life, model, model->plan.asleep); break;
  case LIFE_DRAINING: break; /* what it had */
  }
  touch(life, model);
}

static void unlink_request(life_t *life, life_request_t *request) {
  life_model_t *model = request->model;
  *(request->previous != NULL ? &request->previous->next : &model->first) = request->next;
  *(request->next != NULL ? &request->next->previous : &model->last) = request->previous;
  request->next = request->previous = NULL;
  model->num_waiting--;
  touch(life, model);
}

static void smooth(double *mean, double value) {
  *mean = *mean > 0 ? *mean * 0.75 + value * 0.25 : value;
}

static double total(const life_plan_t *plan) {
  double sum = 0;
  for (int i = 0; i < LIFE_PLACES; i++) sum += (double)plan->bytes[i];
  return sum;
}

static uint64_t load_forecast_ns(const life_t *life, const life_model_t *model) {
  bool asleep = model->state == LIFE_ASLEEP || model->wakes;
  if (asleep && model->wake_ns > 0) return model->wake_ns;
  if (model->load_ns > 0) return model->load_ns;
  return (uint64_t)(total(&model->plan) / life->rate * 1e9);
}

static uint64_t turn_end_ns(const life_t *life, const life_model_t *model) {
  return model->ready_ns + MIN(model->came_ns, life->limits.turn_ns);
}

/* ---- making ---- */

life_t *life_new(const life_limits_t *limits) {
  life_t *life = calloc(1, sizeof *life);
  if (life == NULL) return NULL;
  life->limits = *limits;
  life->rate = FIRST_RATE;
  return life;
}

void life_free(life_t *life) {
  if (life == NULL) return;
  for (int32_t i = 0; i < life->count; i++) {
    CHECK_EQ(life->models[i]->num_waiting + life->models[i]->num_running, 0);
    free(life->models[i]);
  }
  free(life->models);
  free(life->active);
  free(life->candidates);
  free(life->victims);
  free(life->chosen);
  free(life);
}

void life_set_limit(life_t *life, int place, int64_t bytes) {
  CHECK_RANGE(place, 0, LIFE_PLACES);
  life->limits.bytes[place] = bytes;
}

static bool grow(life_t *life) {
  life_model_t ***const lists[] = {&life->models, &life->active, &life->candidates, &life->victims,
                                   &life->chosen};
  int32_t capacity = MAX(8, 2 * life->capacity);
  if (life->count < life->capacity) return true;
  for (size_t i = 0; i < ARRAY_LEN(lists); i++) {
    life_model_t **list = reallocarray(*lists[i], (size_t)capacity, sizeof(life_model_t *));
    if (list == NULL) return false;
    *lists[i] = list;
  }
  life->capacity = capacity;
  return true;
}

life_model_t *life_add(life_t *life, const life_plan_t *plan, void *owner, uint64_t now_ns) {
  life_model_t *model = grow(life) ? calloc(1, sizeof *model) : NULL;
  if (model == NULL) return NULL;
  model->owner = owner;
  model->place = -1;
  model->number = ++life->num_added;
  life->models[life->count++] = model;
  life_replan(life, model, plan, now_ns);
  return model;
}

void life_remove(life_t *life, life_model_t *model) {
  CHECK(!has_process(model));
  CHECK_EQ(model->num_waiting + model->num_running, 0);
  model->wish = LIFE_NO_WISH;
  touch(life, model);
  count_pinned(life, model, -1);
  int32_t i = 0;
  while (life->models[i] != model) i++;
  life->models[i] = life->models[--life->count];
  free(model);
}

void life_replan(life_t *life, life_model_t *model, const life_plan_t *plan, uint64_t now_ns) {
  const life_plan_t old = model->plan;
  bool was_pinned = model->plan.pinned;
  count_pinned(life, model, -1);
  model->plan = *plan;
  if (has_process(model)) {
    memcpy(model->plan.bytes, old.bytes, sizeof old.bytes);
    memcpy(model->plan.asleep, old.asleep, sizeof old.asleep);
  }
  count_pinned(life, model, 1);
  if (plan->pinned && !was_pinned) life_wish(life, model, LIFE_MAKE_ROOM, now_ns);
}

/* ---- what happens ---- */

void life_ask(life_t *life, life_model_t *model, life_request_t *request, uint64_t now_ns,
              uint64_t until_ns, int64_t ahead) {
  *request = (life_request_t){.model = model,
                              .previous = model->last,
                              .asked_ns = now_ns,
                              .until_ns = until_ns,
                              .turn = life->turn + (uint64_t)ahead};
  *(model->last != NULL ? &model->last->next : &model->first) = request;
  model->last = request;
  bool only = model->num_waiting++ == 0;
  model->late_ns = only ? until_ns : MIN(model->late_ns, until_ns);
  model->turn = only ? request->turn : MIN(model->turn, request->turn);
  touch(life, model);
}

void life_leave(life_t *life, life_request_t *request, uint64_t now_ns) {
  life_model_t *model = request->model;
  if (model == NULL) return;
  if (request->runs) {
    model->num_running--;
    model->used_ns = now_ns;
    smooth(&life->serve_ns, (double)(now_ns - request->asked_ns));
  } else {
    unlink_request(life, request);
  }
  *request = (life_request_t){0};
}

void life_loaded(life_t *life, life_model_t *model, uint64_t now_ns) {
  if (model->state != LIFE_LOADING) return;
  const bool woke = model->wakes;
  move(life, model, LIFE_READY);
  model->ready_ns = model->used_ns = now_ns;
  model->came_ns = MAX(now_ns - model->began_ns, 1);
  *(woke ? &model->wake_ns : &model->load_ns) = model->came_ns;
  if (woke) return;
  double seconds = (double)model->load_ns * 1e-9;
  smooth(&life->rate, MAX(total(&model->plan), 1) / seconds);
}

void life_slept(life_t *life, life_model_t *model) {
  if (model->state != LIFE_DRAINING || !model->told) return;
  if (model->to_sleep)
    move(life, model, LIFE_ASLEEP);
  else
    model->told = false; /* it was closed meanwhile: now it ends */
}

void life_gone(life_t *life, life_model_t *model, uint64_t now_ns) {
  const life_limits_t *limits = &life->limits;
  if (model->state == LIFE_DRAINING || model->state == LIFE_ASLEEP) {
    move(life, model, LIFE_UNLOADED);
    return;
  }
  CHECK(in_memory(model));
  bool was_ready = model->state == LIFE_READY;
  if (was_ready && now_ns - model->ready_ns >= limits->steady_ns) model->failures = 0;
  model->failures++;
  model->crashed = was_ready && model->failures == 1;
  move(life, model, LIFE_FAILED);
  int doublings = MIN(model->failures - 1, 30);
  model->retry_ns = now_ns + MIN(limits->pause_ns << doublings, limits->pause_ns_max);
  if (model->plan.pinned) {
    life_wish(life, model, LIFE_IF_ROOM, now_ns); /* without an end of the pause */
    model->wish = LIFE_MAKE_ROOM;
    touch(life, model);
  } else if (was_ready) {
    life_wish(life, model, LIFE_IF_ROOM, now_ns);
  }
}

void life_wish(life_t *life, life_model_t *model, life_wish_t wish, uint64_t now_ns) {
  if (model->state == LIFE_LOADING || model->state == LIFE_READY) return;
  if (model->wish == LIFE_NO_WISH) model->wished_ns = now_ns;
  model->wish = MAX(model->wish, wish);
  touch(life, model);
  if (wish == LIFE_MAKE_ROOM && model->state == LIFE_FAILED) {
    model->retry_ns = MIN(model->retry_ns, now_ns);
  }
}

static void close_model(life_t *life, life_model_t *model, bool to_sleep) {
  model->wish = LIFE_NO_WISH;
  touch(life, model);
  if (model->state != LIFE_READY && model->state != LIFE_LOADING && model->state != LIFE_ASLEEP)
    return;
  model->to_sleep = to_sleep && model->state == LIFE_READY && can_sleep(model);
  move(life, model, LIFE_DRAINING);
  model->told = false;
}

void life_close(life_t *life, life_model_t *model, uint64_t now_ns) {
  (void)now_ns;
  if (model->state == LIFE_DRAINING) model->to_sleep = false;
  close_model(life, model, false);
}

void life_lay_down(life_t *life, life_model_t *model, uint64_t now_ns) {
  (void)now_ns;
  if (model->state == LIFE_ASLEEP)
    model->wish = LIFE_NO_WISH;
  else
    close_model(life, model, true);
  touch(life, model);
}

/* ---- decisions about requests ---- */

static void take_out(life_t *life, life_action_t *out, life_what_t what, life_request_t *request,
                     life_why_t why) {
  *out = (life_action_t){what, request->model, request, why};
  unlink_request(life, request);
  if (what == LIFE_REFUSE) request->model = NULL;
}

static bool in_pause(const life_model_t *model, uint64_t now_ns) {
  return model->state == LIFE_FAILED && now_ns < model->retry_ns;
}

/* Walks over what waits only when one of them may be late: every arrival leads here. */
static bool next_late(life_t *life, life_model_t *model, uint64_t now_ns, life_action_t *out) {
  if (now_ns < model->late_ns) return false;
  uint64_t late_ns = UINT64_MAX;
  for (life_request_t *request = model->first; request != NULL; request = request->next) {
    if (now_ns < request->until_ns) {
      late_ns = MIN(late_ns, request->until_ns);
      continue;
    }
    take_out(life, out, LIFE_REFUSE, request, LIFE_LATE);
    return true;
  }
  model->late_ns = late_ns;
  return false;
}

static bool next_of_requests(life_t *life, life_model_t *model, uint64_t now_ns,
                             life_action_t *out) {
  life_request_t *first = model->first;
  if (first == NULL) return false;
  if (model->state == LIFE_READY) {
    take_out(life, out, LIFE_BEGIN, first, LIFE_LATE);
    first->runs = true;
    model->num_running++;
    model->used_ns = now_ns;
    return true;
  }
  if (in_pause(model, now_ns) && !model->crashed) {
    take_out(life, out, LIFE_REFUSE, first, LIFE_BROKEN);
    return true;
  }
  if (!in_memory(model) && !life_fits(life, &model->plan, model)) {
    take_out(life, out, LIFE_REFUSE, first, LIFE_TOO_LARGE);
    return true;
  }
  return next_late(life, model, now_ns, out);
}

/* ---- decisions about memory ---- */

/* Since when something waits for the model. */
static uint64_t since_ns(const life_model_t *model) {
  return model->first != NULL ? model->first->asked_ns : model->wished_ns;
}

static bool is_aged(const life_t *life, const life_model_t *model, uint64_t now_ns) {
  return model->first != NULL && model->turn <= life->turn &&
         now_ns - model->first->asked_ns >= life->limits.age_ns;
}

static bool is_candidate(const life_model_t *model, uint64_t now_ns) {
  if (in_memory(model) || in_pause(model, now_ns)) return false;
  return model->first != NULL || model->wish != LIFE_NO_WISH;
}

/* Rule 3; what nothing waits for comes last. */
static bool comes_before(const life_t *life, const life_model_t *left, const life_model_t *right,
                         uint64_t now_ns) {
  bool aged_left = is_aged(life, left, now_ns), aged_right = is_aged(life, right, now_ns);
  if (aged_left != aged_right) return aged_left;
  if ((left->first != NULL) != (right->first != NULL)) return left->first != NULL;
  if (!aged_left && left->plan.priority != right->plan.priority)
    return left->plan.priority > right->plan.priority;
  if (left->first != NULL && left->turn != right->turn) return left->turn < right->turn;
  return since_ns(left) < since_ns(right);
}

typedef struct moment {
  const life_t *life;
  uint64_t now_ns;
} moment_t;

static int compare_candidates(const void *left, const void *right, void *context) {
  const life_model_t *a = *(life_model_t *const *)left, *b = *(life_model_t *const *)right;
  const moment_t *moment = context;
  if (comes_before(moment->life, a, b, moment->now_ns)) return -1;
  if (comes_before(moment->life, b, a, moment->now_ns)) return 1;
  return a->number < b->number ? -1 : 1;
}

/* Fills life->candidates in their order, and returns how many there are. If none of them is due,
 * the turn is that of the first. */
static int32_t find_candidates(life_t *life, uint64_t now_ns) {
  moment_t moment = {life, now_ns};
  int32_t count = 0;
  uint64_t least = UINT64_MAX;
  for (int32_t i = 0; i < life->num_active; i++) {
    life_model_t *model = life->active[i];
    if (!is_candidate(model, now_ns)) continue;
    life->candidates[count++] = model;
    if (model->first != NULL) least = MIN(least, model->turn);
  }
  life->num_looks += (uint64_t)life->num_active;
  if (least != UINT64_MAX) life->turn = MAX(life->turn, least);
  if (count == 0) return 0; /* without any model there is no list, and NULL must not be sorted */
  qsort_r(life->candidates, (size_t)count, sizeof(life_model_t *), compare_candidates, &moment);
  return count;
}

/* Something runs in it, or waits for it. */
static bool is_asked_for(const life_model_t *model) {
  return model->num_running > 0 || model->num_waiting > 0 || model->wish != LIFE_NO_WISH;
}

/* Rules 4 and 5: whether the model may be closed for `target`. */
static bool is_victim(const life_t *life, const life_model_t *model, const life_model_t *target,
                      bool busy_too, uint64_t now_ns) {
  if (model->state != LIFE_READY && model->state != LIFE_ASLEEP) return false; /* closed by now */
  if (busy_too) return true;
  if (model->state == LIFE_ASLEEP)
    return !is_asked_for(model) && model->plan.priority <= target->plan.priority;
  return is_idle(model) && now_ns >= turn_end_ns(life, model) &&
         model->plan.priority <= target->plan.priority;
}

/* Idle before busy, then by rule 4. */
static bool goes_before(const life_model_t *left, const life_model_t *right) {
  bool busy_left = is_asked_for(left), busy_right = is_asked_for(right);
  if (busy_left != busy_right) return busy_right;
  if (left->plan.priority != right->plan.priority)
    return left->plan.priority < right->plan.priority;
  if (left->used_ns != right->used_ns) return left->used_ns < right->used_ns;
  return left->number < right->number;
}

static int compare_victims(const void *left, const void *right) {
  const life_model_t *a = *(life_model_t *const *)left, *b = *(life_model_t *const *)right;
  if (goes_before(a, b)) return -1;
  return goes_before(b, a) ? 1 : 0;
}

/* Fills life->victims with what may be closed at all, in the order in which it goes. */
static void find_victims(life_t *life) {
  life->num_victims = 0;
  for (int32_t i = 0; i < life->num_active; i++) {
    life_model_t *model = life->active[i];
    /* One that sleeps holds memory while something waits for it. */
    bool there =
        (model->state == LIFE_READY && model->num_waiting == 0) || model->state == LIFE_ASLEEP;
    bool may_go = there && !model->plan.pinned;
    if (may_go) life->victims[life->num_victims++] = model;
  }
  qsort(life->victims, (size_t)life->num_victims, sizeof(life_model_t *), compare_victims);
}

/* Whether one that sleeps goes before another, so that this may sleep in its place. */
static bool ends_for(const life_model_t *sleeper, const life_model_t *model) {
  return sleeper->state == LIFE_ASLEEP && !sleeper->chosen && !is_asked_for(sleeper) &&
         goes_before(sleeper, model);
}

/* Whether a model that is closed for `need` may sleep: `sum` is what is free when it has ended.
 * Those that sleep already, and would go before it, end for it if that is enough. */
static bool may_sleep(life_t *life, const life_model_t *model, const int64_t need[LIFE_PLACES],
                      int64_t sum[LIFE_PLACES]) {
  int64_t left[LIFE_PLACES];
  int32_t count = 0;
  if (model->state != LIFE_READY || !can_sleep(model)) return false;
  memcpy(left, sum, sizeof left);
  add(left, model->plan.asleep, -1);
  for (; count < life->num_victims && !holds(left, need); count++) {
    const life_model_t *other = life->victims[count];
    if (ends_for(other, model)) add(left, other->held, 1);
  }
  if (!holds(left, need)) return false;
  for (int32_t i = 0; i < count; i++) {
    life_model_t *other = life->victims[i];
    if (!ends_for(other, model)) continue;
    add(sum, other->held, 1);
    close_model(life, other, false);
  }
  return true;
}

/* Closes models until `room`, which grows by what they hold, has place for the target. False, and
 * nothing is closed, if that is not possible. */
static bool make_room(life_t *life, const life_model_t *target, bool busy_too,
                      int64_t room[LIFE_PLACES], uint64_t now_ns) {
  int64_t sum[LIFE_PLACES], need[LIFE_PLACES];
  int32_t num_used = 0;
  need_of(target, need);
  memcpy(sum, room, sizeof sum);
  for (int32_t i = 0; i < life->num_victims && !holds(sum, need); i++) {
    life->num_looks++;
    if (life->victims[i] == target) continue;
    if (!is_victim(life, life->victims[i], target, busy_too, now_ns)) continue;
    life->chosen[num_used++] = life->victims[i];
    life->victims[i]->chosen = true;
    add(sum, life->victims[i]->held, 1);
  }
  bool enough = holds(sum, need);
  /* Those that go last are spared first, if it fits without them. */
  for (int32_t i = num_used - 1; i >= 0; i--) {
    life_model_t *model = life->chosen[i];
    model->chosen = false;
    if (!enough) continue;
    add(sum, model->held, -1);
    if (holds(sum, need)) continue;
    add(sum, model->held, 1);
    bool sleeps = may_sleep(life, model, need, sum);
    const life_wish_t wish = model->wish;
    close_model(life, model, sleeps);
    model->wish = wish;
    if (sleeps) add(sum, model->plan.asleep, -1);
    life->closed = true;
  }
  if (!enough) return false;
  memcpy(room, sum, sizeof sum);
  return true;
}

/* Decides for one candidate. `now`: free bytes; `soon`: with those of models that end already.
 * Returns true if it can be loaded at once. */
static bool place(life_t *life, const life_model_t *model, int64_t now[LIFE_PLACES],
                  int64_t soon[LIFE_PLACES], uint64_t now_ns) {
  int64_t need[LIFE_PLACES];
  need_of(model, need);
  if (holds(now, need)) return true;
  bool aged = is_aged(life, model, now_ns);
  bool may_close = model->first != NULL || model->wish == LIFE_MAKE_ROOM;
  bool coming = holds(soon, need) || (may_close && make_room(life, model, false, soon, now_ns)) ||
                (aged && make_room(life, model, true, soon, now_ns));
  if (coming) {
    add(soon, need, -1); /* nobody else gets what will be its own */
  } else if (aged) {
    memset(soon, 0, LIFE_PLACES * sizeof *soon); /* nor what it waits for in vain so far */
  }
  for (int i = 0; i < LIFE_PLACES; i++) now[i] = MIN(now[i], soon[i]);
  return false;
}

static bool look_at_candidates(life_t *life, uint64_t now_ns, life_action_t *out) {
  int32_t count = find_candidates(life, now_ns);
  int64_t now[LIFE_PLACES], soon[LIFE_PLACES];
  if (count == 0) return false;
  find_victims(life);
  for (int i = 0; i < LIFE_PLACES; i++) now[i] = soon[i] = life->limits.bytes[i] - life->used[i];
  for (int32_t i = 0; i < life->num_active; i++) {
    const life_model_t *model = life->active[i];
    if (model->state != LIFE_DRAINING) continue;
    add(soon, model->held, 1);
    if (model->to_sleep) add(soon, model->plan.asleep, -1);
  }
  for (int32_t i = 0; i < count; i++) {
    life_model_t *model = life->candidates[i];
    if (!life_fits(life, &model->plan, model)) continue;
    if (!place(life, model, now, soon, now_ns)) continue;
    move(life, model, LIFE_LOADING);
    model->began_ns = now_ns;
    model->wish = LIFE_NO_WISH;
    *(model->wakes ? &model->num_wakes : &model->num_loads) += 1;
    life->turn++;
    *out = (life_action_t){.what = model->wakes ? LIFE_WAKE : LIFE_LOAD, .model = model};
    return true;
  }
  return false;
}

/* What is closed for one candidate may leave room that another can use at once. */
static bool next_load(life_t *life, uint64_t now_ns, life_action_t *out) {
  do {
    life->closed = false;
    if (look_at_candidates(life, now_ns, out)) return true;
  } while (life->closed);
  return false;
}

/* READY or ASLEEP, and nothing asks for it. */
static bool is_unused(const life_model_t *model) {
  return is_idle(model) || (model->state == LIFE_ASLEEP && model->num_waiting == 0);
}

static bool is_forgotten(const life_model_t *model, uint64_t now_ns) {
  return model->plan.idle_ns > 0 && !model->plan.pinned && is_unused(model) &&
         now_ns - model->used_ns >= model->plan.idle_ns;
}

/* Whether what it takes beside, while it falls asleep, is free; `soon`: when all have ended that
 * end already. */
static bool fits_asleep(const life_t *life, const life_model_t *model, bool soon) {
  int64_t more[LIFE_PLACES], room[LIFE_PLACES];
  on_the_way(model, more);
  add(more, model->held, -1);
  memcpy(room, life->limits.bytes, sizeof room);
  add(room, life->used, -1);
  for (int32_t i = 0; i < life->num_active && soon; i++) {
    const life_model_t *other = life->active[i];
    if (other->state == LIFE_DRAINING && !other->to_sleep && other->num_running == 0)
      add(room, other->held, 1);
  }
  return holds(room, more);
}

/* Nothing runs in it any more: it sleeps, or ends. */
static void end_drain(life_t *life, life_model_t *model, life_action_t *out) {
  int64_t both[LIFE_PLACES];
  model->told = true;
  model->to_sleep = model->to_sleep && fits_asleep(life, model, false);
  *out = (life_action_t){.what = model->to_sleep ? LIFE_FALL : LIFE_UNLOAD, .model = model};
  if (!model->to_sleep) return;
  on_the_way(model, both);
  hold(life, model, both);
}

static bool next_unload(life_t *life, uint64_t now_ns, life_action_t *out) {
  for (int32_t i = 0; i < life->num_active; i++) {
    life_model_t *model = life->active[i];
    if (is_forgotten(model, now_ns)) life_close(life, model, now_ns);
    if (model->state != LIFE_DRAINING || model->told || model->num_running > 0) continue;
    /* It waits for the end of others, as `place` has counted on. */
    if (model->to_sleep && !fits_asleep(life, model, false) && fits_asleep(life, model, true))
      continue;
    end_drain(life, model, out);
    return true;
  }
  return false;
}

bool life_next(life_t *life, uint64_t now_ns, life_action_t *out) {
  for (int32_t i = 0; i < life->num_active; i++) {
    life->num_looks++;
    if (next_of_requests(life, life->active[i], now_ns, out)) return true;
  }
  if (next_load(life, now_ns, out)) return true;
  return next_unload(life, now_ns, out); /* also of what next_load has closed */
}

/* ---- time ---- */

uint64_t life_due_ns(const life_t *life, uint64_t now_ns) {
  uint64_t due = UINT64_MAX;
  for (int32_t i = 0; i < life->num_active; i++) {
    const life_model_t *model = life->active[i];
    uint64_t times[5] = {UINT64_MAX, UINT64_MAX, UINT64_MAX, UINT64_MAX, UINT64_MAX};
    if (model->state == LIFE_FAILED && (model->first != NULL || model->wish != LIFE_NO_WISH))
      times[0] = model->retry_ns;
    if (is_idle(model)) times[1] = turn_end_ns(life, model);
    if (is_unused(model) && model->plan.idle_ns > 0 && !model->plan.pinned)
      times[2] = model->used_ns + model->plan.idle_ns;
    if (model->first != NULL) {
      times[3] = model->first->asked_ns + life->limits.age_ns;
      times[4] = model->late_ns;
    }
    for (size_t t = 0; t < ARRAY_LEN(times); t++) {
      if (times[t] > now_ns) due = MIN(due, times[t]);
    }
  }
  return due;
}

uint64_t life_forecast_ns(const life_t *life, const life_model_t *model, uint64_t now_ns) {
  if (model->state == LIFE_READY) return 0;
  uint64_t own_ns = load_forecast_ns(life, model);
  if (model->state == LIFE_LOADING) {
    uint64_t spent_ns = now_ns - model->began_ns;
    return own_ns > spent_ns ? own_ns - spent_ns : 0;
  }
  if (in_pause(model, now_ns)) own_ns += model->retry_ns - now_ns;
  int64_t used[LIFE_PLACES];
  memcpy(used, life->used, sizeof used);
  add(used, model->plan.bytes, 1);
  for (int32_t i = 0; i < life->num_active; i++) {
    const life_model_t *other = life->active[i];
    if (other == model || other->first == NULL || in_memory(other)) continue;
    if (model->first != NULL && !comes_before(life, other, model, now_ns)) continue;
    own_ns += load_forecast_ns(life, other);
    add(used, other->plan.bytes, 1);
  }
  if (!holds(life->limits.bytes, used)) own_ns += (uint64_t)life->serve_ns;
  return own_ns;
}

/* ---- looking ---- */

bool life_fits(const life_t *life, const life_plan_t *plan, const life_model_t *itself) {
  int64_t room[LIFE_PLACES];
  memcpy(room, life->limits.bytes, sizeof room);
  add(room, life->pinned, -1);
  bool counted = itself != NULL && itself->plan.pinned && itself->state != LIFE_FAILED;
  if (counted) add(room, itself->plan.bytes, 1);
  return holds(room, plan->bytes);
}

uint64_t life_looks(const life_t *life) {
  return life->num_looks;
}
