/* lifecycle.h: which of many models are in memory. It decides, and does nothing itself.
 *
 * The owner tells what happens (a request asks, a model is loaded, its process has ended), calls
 * life_next until it returns false, and does what it says. No I/O, no clock: every call has the
 * time. One thread.
 *
 *   UNLOADED --load--> LOADING --life_loaded--> READY --close--> DRAINING --life_gone--> UNLOADED
 *                      LOADING, READY --life_gone--> FAILED --load, after a pause--> LOADING
 *                      DRAINING --life_slept--> ASLEEP --wake--> LOADING
 *                                               ASLEEP --close--> DRAINING
 *
 * The rules:
 *   1. Memory decides. The plans of the models that are LOADING, READY or DRAINING, and what those
 *      that are ASLEEP hold, never exceed the limits, in any place.
 *   2. A model that answers is never unloaded. One that must go is closed: what runs ends, what is
 *      new waits, and then its process ends.
 *   3. Who waits longest is loaded first, by priority; but who has waited `age_ns` comes before all
 *      priorities. Clients take turns: a request counts as if it had come one load later for each
 *      model that its client waits for already, and has no age before its turn.
 *   4. Room comes from models that are idle, not pinned, and have had their turn: those of the
 *      lowest priority, and among them the least recently used, and no more of them than needed. A
 *      turn is the time that the model took to load, at most `turn_ns`; so two clients that take
 *      turns do not make the server load all the time.
 *   5. Busy models are closed for a request that has waited `age_ns`, and for no other.
 *   6. When a model is ready, all that waits for it runs.
 *      A model that can sleep does so in the place of its end, if there is room for what it holds
 *      then; one that sleeps ends for another like one that is idle, in the same order.
 *   7. After a failure a model is tried again after a pause, which doubles. Meanwhile its requests
 *      are refused, but for the first pause after an end of a model that was ready: they wait.
 */
#ifndef INFERD_SERVER_MODELS_LIFECYCLE_H
#define INFERD_SERVER_MODELS_LIFECYCLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The host's memory, then that of GPU 0, 1 ..; and what of the host's those that sleep may have. */
enum { LIFE_HOST = 0, LIFE_GPUS = 8, LIFE_SLEEP = 1 + LIFE_GPUS, LIFE_PLACES };

typedef enum life_state {
  LIFE_UNLOADED,
  LIFE_LOADING,
  LIFE_READY,
  LIFE_DRAINING, /* what runs ends, then the process */
  LIFE_FAILED,   /* not in memory; tried again from retry_ns on, if something waits for it */
  LIFE_ASLEEP    /* its process is there, and has given the memory of its device back */
} life_state_t;
extern const char *const life_state_names[]; /* by life_state_t */

typedef struct life_limits {
  int64_t bytes[LIFE_PLACES]; /* that all models together may take */
  uint64_t turn_ns, age_ns;
  uint64_t pause_ns, pause_ns_max; /* after the first failure, and at most */
  uint64_t steady_ns; /* a model that was ready for so long has failed for the first time */
} life_limits_t;

/* What is known of a model before it is loaded. */
typedef struct life_plan {
  int64_t bytes[LIFE_PLACES];  /* >= 0 */
  int64_t asleep[LIFE_PLACES]; /* while it sleeps; that of LIFE_SLEEP is 0: it never does */
  int32_t priority;            /* the larger, the sooner */
  bool pinned;                 /* loaded at once, and never unloaded for another or for idleness */
  uint64_t idle_ns;            /* unloaded after so long without a request; 0 = never */
} life_plan_t;

/* How much a model is wanted that nothing waits for. */
typedef enum life_wish {
  LIFE_NO_WISH,
  LIFE_IF_ROOM,  /* preloaded, or it was ready when its process ended */
  LIFE_MAKE_ROOM /* pinned, or an operator wants it */
} life_wish_t;

typedef struct life_request life_request_t;
typedef struct life_model life_model_t;

/* Lies in the owner's object. */
struct life_request {
  life_request_t *next, *previous; /* in the queue of its model */
  life_model_t *model;             /* NULL: neither waits nor runs */
  bool runs;
  uint64_t asked_ns, until_ns; /* until: refused if it still waits then */
  uint64_t turn;               /* rule 3: the load in which it is due */
};

/* Read it freely; only lifecycle.c writes. */
struct life_model {
  void *owner;
  life_plan_t plan;
  life_state_t state;
  life_wish_t wish;
  life_request_t *first, *last; /* that wait, oldest first */
  uint64_t late_ns;             /* while some wait: none of them is late before */
  uint64_t turn;                /* the smallest of those that have waited since none did */
  int32_t num_waiting, num_running;
  int32_t failures;              /* one after another */
  int64_t held[LIFE_PLACES];     /* what counts of it now */
  bool told;                     /* DRAINING: LIFE_UNLOAD or LIFE_SLEEP was given out */
  bool to_sleep;                 /* DRAINING: it will sleep, if there is room */
  bool wakes;                    /* LOADING: it was ASLEEP */
  bool chosen;                   /* within a look: what it holds counts as free */
  bool crashed;                  /* FAILED: it was ready, and this was the first failure */
  uint64_t wished_ns;            /* when the wish came */
  uint64_t began_ns;             /* LOADING: since */
  uint64_t ready_ns;             /* when it was last loaded */
  uint64_t used_ns;              /* when a request last began or ended */
  uint64_t retry_ns;             /* FAILED */
  uint64_t load_ns;              /* how long the last load took; 0 = not known */
  uint64_t wake_ns;              /* the same of a wake */
  uint64_t came_ns;              /* the last of both */
  uint64_t num_loads, num_wakes; /* begun */
  int32_t place;                 /* in the list of active models; -1 = not there */
  int32_t number;                /* in the order of life_add; of equal ones the first goes first */
};

typedef enum life_what {
  LIFE_LOAD,   /* start a process for `model`; then life_loaded or life_gone */
  LIFE_UNLOAD, /* end the process of `model`, which is idle; then life_gone */
  LIFE_FALL,   /* have `model`, which is idle, sleep; then life_slept or life_gone */
  LIFE_WAKE,   /* have it awake; then life_loaded or life_gone */
  LIFE_BEGIN,  /* `request` runs; then life_leave */
  LIFE_REFUSE  /* `request` is refused for `why`, and forgotten */
} life_what_t;

typedef enum life_why {
  LIFE_LATE,     /* its until_ns has come */
  LIFE_BROKEN,   /* the model has failed, and is in its pause */
  LIFE_TOO_LARGE /* the plan exceeds the limits, or what pinned models leave of them */
} life_why_t;

typedef struct life_action {
  life_what_t what;
  life_model_t *model; /* in every action */
  life_request_t *request;
  life_why_t why;
} life_action_t;

typedef struct life life_t;

/* Return NULL if memory is short. life_free: no request may wait or run. */
life_t *life_new(const life_limits_t *limits);
void life_free(life_t *life);                                /* NULL is allowed */
void life_set_limit(life_t *life, int place, int64_t bytes); /* found out later, or by a reload */
life_model_t *life_add(life_t *life, const life_plan_t *plan, void *owner, uint64_t now_ns);
/* A model that is neither in memory nor asked for. */
void life_remove(life_t *life, life_model_t *model);
/* The new plan counts at once where the model is not in memory, else when it is loaded again. */
void life_replan(life_t *life, life_model_t *model, const life_plan_t *plan, uint64_t now_ns);

/* What happens. `ahead`: how many models its client waits for already. */
void life_ask(life_t *life, life_model_t *model, life_request_t *request, uint64_t now_ns,
              uint64_t until_ns, int64_t ahead);
/* A request has ended, or its client has left; harmless if it neither waits nor runs. */
void life_leave(life_t *life, life_request_t *request, uint64_t now_ns);
/* Harmless unless it is LOADING: it may have been closed meanwhile. */
void life_loaded(life_t *life, life_model_t *model, uint64_t now_ns);
/* Harmless unless it was told to sleep. */
void life_slept(life_t *life, life_model_t *model);
/* The process of the model has ended. Requests that ran are the owner's: it calls life_leave. */
void life_gone(life_t *life, life_model_t *model, uint64_t now_ns);
/* Wants the model in memory; LIFE_MAKE_ROOM ends its pause, too. */
void life_wish(life_t *life, life_model_t *model, life_wish_t wish, uint64_t now_ns);
/* An operator wants it gone: closes a model that is READY, LOADING or ASLEEP, or gives its wish up.
 * What waits for it has it loaded again. */
void life_close(life_t *life, life_model_t *model, uint64_t now_ns);
/* An operator wants it asleep: the same, but one that is READY and can will sleep. */
void life_lay_down(life_t *life, life_model_t *model, uint64_t now_ns);

/* The next thing to do; false: nothing until something happens or life_due_ns has come. */
bool life_next(life_t *life, uint64_t now_ns, life_action_t *out);
uint64_t life_due_ns(const life_t *life, uint64_t now_ns); /* UINT64_MAX = never */

/* When a request that asks now would begin, as far as can be told: the loads before it by the rate
 * of earlier ones, and what runs in their place by the time that requests took. */
uint64_t life_forecast_ns(const life_t *life, const life_model_t *model, uint64_t now_ns);
/* Whether the plan fits beside what is pinned, when all else is gone. */
bool life_fits(const life_t *life, const life_plan_t *plan, const life_model_t *itself);
/* How often life_next has looked at a model in one of its lists, for tests. */
uint64_t life_looks(const life_t *life);

#endif
