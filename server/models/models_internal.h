/* models_internal.h: what the files of server/models share. Loop thread of the parent. */
#ifndef INFERD_SERVER_MODELS_MODELS_INTERNAL_H
#define INFERD_SERVER_MODELS_MODELS_INTERNAL_H

#include "engine/base/buffer.h"
#include "engine/model/source/card.h"
#include "server/models/directory.h"
#include "server/models/lifecycle.h"
#include "server/models/lobby.h"
#include "server/models/models.h"
#include "server/models/order.h"

enum {
  MODEL_NAME_MAX = 256,
  MODEL_REASON_MAX = 400,
  MODELS_MAX = 1000,
  PROCESS_BYTES = 64 * 1024 * 1024,   /* of host memory that a process takes beside its plan */
  KV_BYTES_USUAL = 1024 * 1024 * 1024 /* of a KV cache whose size nobody has set */
};

typedef struct model served_t;
typedef struct passage passage_t;
typedef struct channel channel_t;
typedef struct body_read body_read_t;

/* A list of owned strings; list[count] is NULL. */
typedef struct words {
  char **list;
  int count;
} words_t;
bool words_add(words_t *words, const char *text);
void words_remove(words_t *words, const char *text);
void words_free(words_t *words);

/* The process of a model. */
typedef struct child {
  uv_process_t process;
  uv_poll_t notify; /* what it tells, as to a service manager */
  int notify_fd;    /* -1 = none */
  char socket[108], notify_path[108];
  int open_handles; /* of the above; the child may be started again when it is 0 */
  bool runs;        /* the process exists */
  bool asked_to_end;
  double progress;                           /* 0..1, of a load */
  uint64_t prompt_tokens, generation_tokens; /* that it has told */
  words_t adapters;   /* names, of the time since it was ready: those of its section, and others */
  uint64_t killed_ns; /* SIGKILL at that time; 0 = not */
  uint64_t alive_ns;  /* when it last said so */
  uint64_t watchdog_ns; /* how often it must; 0 = need not */
  order_t order;
  channel_t *idle; /* connections to it without a request, newest first */
} child_t;

/* `inferd check`, which plans the memory of a model. */
typedef struct survey {
  uv_process_t process;
  uv_pipe_t out, err;
  buffer_t text, reason;
  int open_handles;
  int64_t status;
} survey_t;

typedef enum plan_state { PLAN_NONE, PLAN_RUNS, PLAN_DONE, PLAN_FAILED } plan_state_t;

/* What the configuration says of a model. */
typedef struct model_wish {
  char *what;       /* path or ORG/NAME */
  words_t names;    /* [0]: its name; aliases */
  words_t settings; /* "INFERD_X=value" of its section */
  words_t adapters; /* names in its lora_modules */
  bool pin, preload, has_kv;
  bool never_sleeps; /* what its section asks for does not go with --sleep-space */
  double idle_s;     /* 0 = never */
  int32_t priority;
} model_wish_t;

struct model {
  models_t *models;
  served_t *next;
  model_wish_t wish;
  bool listed, was_listed; /* is in the configuration, as read last; and before */
  bool wanted;             /* an operator wants it in memory, once it is planned */
  life_model_t *life;      /* NULL until it is planned */
  child_t child;
  survey_t survey;
  plan_state_t plan_state;
  uint64_t plan_again_ns; /* PLAN_FAILED: not before */
  bool may_sleep;         /* it gets --sleep-space */
  int64_t kv_bytes;       /* for --kv-cache-bytes of the child; 0 = it has its own */
  int64_t context;
  char architecture[64];
  model_card_t card;             /* zeros, and NULL: its files have not been read */
  char *shown;                   /* what /api/show answers */
  char reason[MODEL_REASON_MAX]; /* of the last failure; "" = none */
  time_t used;                   /* when a request last came; 0 = never */
  passage_t *early;              /* requests that wait for the plan, newest first */
  uint64_t requests, failures;
  uint64_t prompt_tokens, generation_tokens; /* of all its processes */
  int number;                                /* for the names of its sockets */
};

struct models {
  server_t *server;
  life_t *life;
  lobby_t *lobby; /* passages that wait, by client */
  served_t *first;
  int count, last_number, surveys;
  char dir[80]; /* of the sockets */
  bool dir_made;
  int dir_lock; /* held while this process lives; -1 = none */
  bool limit_known[LIFE_PLACES];
  uv_timer_t due, tick;
  uv_idle_t reads;                       /* active while there are readings */
  body_read_t *readings, **last_reading; /* large bodies that are looked through, in turns */
  directory_t directory;                 /* of --models-dir, as read last */
  disk_look_t *look;                     /* that runs; NULL = none */
  uv_async_t looked;
  bool words_checked; /* the words of the command line mean models */
  int open_handles;
  bool pumping, again, stopping;
  passage_t *passages; /* all */
  int num_passages, num_paused;
  void (*done)(void *context);
  void *context;
};

/* table.c */
int models_read(models_t *models, const config_t *config, inferd_error_t *error);
/* The model of a name: its own, that of one of its adapters, or BASE:ADAPTER of both. */
served_t *models_find(const models_t *models, const char *name, size_t length);
/* Of BASE:ADAPTER, the model in memory: it may have an adapter of which nothing was heard yet. */
served_t *models_find_loaded(const models_t *models, const char *name, size_t length);
bool model_has_name(const served_t *model, const char *name); /* it is of no adapter */
/* The names of its adapters: in memory those that it has, else those that it will be loaded with.
 */
const words_t *served_adapters(const served_t *model);
void model_forget(served_t *model); /* neither in memory nor listed: frees it */

/* child.c */
/* False: it cannot be started; with open handles models_gone is called when they are closed. */
bool child_start(served_t *model);
void child_stop(served_t *model);                  /* SIGTERM, later SIGKILL */
void child_tick(served_t *model, uint64_t now_ns); /* what is late */
void survey_start(served_t *model);
/* Has a child sleep, or wake up; then life_slept, life_loaded or life_gone. */
void child_order(served_t *model, bool sleeps);

/* sockets.c */
int sockets_open(models_t *models, inferd_error_t *error); /* 0 or an error of error_system */
void sockets_close(models_t *models);

/* channel.c: a connection to the process of a model, with one request at a time. */
struct channel {
  models_t *models;
  passage_t *passage;      /* NULL: it is idle, or being closed */
  channel_t *next, **link; /* of the idle ones of the child; link NULL: not there */
  uint64_t idle_ns;        /* since when */
  uv_pipe_t pipe;
  uv_write_t write;
  bool writing; /* the child has not taken all of these: */
  char *head;
  held_t body;
};
/* Sets *out to an idle one, or to a new one. Returns 0 or -errno. */
int channel_take(passage_t *passage, channel_t **out);
/* Sends a request and takes its two parts. `lent`: a socket that the child gets with it; -1 = none.
 * Returns 0 or -errno. */
int channel_send(channel_t *channel, buffer_t *head, held_t *body, int lent);
bool channel_grant(channel_t *channel); /* tells the child that it may write to the socket lent */
void channel_read(channel_t *channel, bool on); /* passage_read is called, or not for now */
/* The request has ended. `keep`: with all of its answer, so another may follow. */
void channel_leave(channel_t *channel, served_t *model, bool keep);
void channels_close(child_t *child, uint64_t now_ns); /* that have been idle for a second */

/* router.c */
void models_pump(models_t *models);
void models_handle_closed(models_t *models); /* one of open_handles */
void models_planned(served_t *model);        /* the survey has ended, well or not */
void models_gone(served_t *model);           /* the process of the child has ended */
int models_retry_s(const served_t *model);   /* for Retry-After */
int models_fail_unknown(const models_t *models, const char *name, size_t length,
                        inferd_error_t *error);

/* list.c: takes what `inferd check --show` has printed of the model behind its plan. */
void model_take_description(served_t *model, const char *text, size_t length);

/* passage.c */
struct passage {
  life_request_t life;            /* first */
  guest_t guest;                  /* inside while it waits */
  passage_t *next, *previous;     /* of all */
  passage_t *early, **early_link; /* of those that wait for the plan of the model */
  served_t *model;
  exchange_t *exchange;
  held_t body;
  uint64_t asked_ns, until_ns, pinged_ns;
  int64_t ahead;              /* models that its client waited for when it came */
  bool wants_stream, streams; /* the body has "stream": true; the head of a stream has gone out */
  bool is_early, began;
  uint64_t held_ns;   /* since when it waits for the end of a process to be heard of; 0: not */
  channel_t *channel; /* NULL: not yet */
  bool paused;
  bool half; /* the client may have a part of a chunk, or of an event, of which the rest is lost */
  struct {
    int state, status;
    bool chunked, is_stream, has_length, closes;
    uint64_t left; /* of the chunk, or of the body */
    char type[100];
    buffer_t line, body; /* the head, or a line of it; what is no stream */
    charge_t charge;
  } answer;
};
/* The body is the passage's. */
void passage_new(exchange_t *exchange, served_t *model, held_t *body, bool stream);
void passage_begin(passage_t *passage); /* LIFE_BEGIN */
void passage_again(passage_t *passage); /* the end was heard of: one that was held asks again */
/* It ends with this error: as a status, or in its stream. */
void passage_refuse(passage_t *passage, const inferd_error_t *error);
void passage_tick(passage_t *passage, uint64_t now_ns); /* comments while it waits */
void passage_resume(passage_t *passage); /* reads on, if its client has taken enough */
/* Bytes of the answer, or got < 0: the child has closed it. It may end by this call. */
void passage_read(passage_t *passage, const char *bytes, ssize_t got);

#endif
