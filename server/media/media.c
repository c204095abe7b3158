/* media.c: the thread that fetches pictures and sounds, and its queues, see media.h.
 *
 * Jobs come to the thread in `asked` and go back in `ended`, both under the lock. In between the
 * thread owns them: it takes their transfers in the order in which they came, but for those whose
 * client or host has all its places. A job whose owner has left it is ended early.
 */
#include "engine/base/util.h" /* before uv.h, which brings a MIN of its own */

#include "server/media/media.h"

#include "engine/base/fault.h"
#include "server/media/transfer.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <uv.h>

enum { NICE = 10 /* as of nice(2): a CPU back end comes first */ };

typedef enum job_state { JOB_NEW, JOB_RUNS, JOB_DONE } job_state_t;

struct media_job {
  media_t *media;
  uint64_t client;
  charge_t charge;
  transfer_t **transfers; /* [count] */
  size_t count;
  size_t open;       /* that have not ended; media's thread */
  job_state_t state; /* of its owner */
  atomic_bool left;
  void (*done)(void *owner);
  void *owner;
  media_job_t *next; /* in a queue */
};

typedef struct media_queue {
  media_job_t *first, **last;
} media_queue_t;

struct media {
  curl_api_t curl;
  media_hosts_t hosts;
  uv_async_t wake;
  pthread_t thread;
  pthread_mutex_t lock;
  media_queue_t asked, ended; /* under the lock, as `stop` */
  bool stop, started;
  CURLM *multi; /* what follows is of the thread alone */
  transfer_t *running[MEDIA_AT_ONCE_MAX];
  int num_running;
  transfer_t *waiting, **last_waiting;
};

static void queue_init(media_queue_t *queue) {
  *queue = (media_queue_t){NULL, &queue->first};
}

static void queue_put(media_queue_t *queue, media_job_t *job) {
  job->next = NULL;
  *queue->last = job;
  queue->last = &job->next;
}

/* Empties the queue. Under the lock. */
static media_job_t *queue_take(media_queue_t *queue) {
  media_job_t *first = queue->first;
  queue_init(queue);
  return first;
}

static void destroy(media_job_t *job) {
  for (size_t i = 0; i < job->count; i++) {
    transfer_free(job->transfers[i]);
    free(job->transfers[i]);
  }
  free(job->transfers);
  charge_drop(&job->charge);
  free(job);
}

/* ---- the thread ---- */

/* A transfer has come to its end: with the last one the job goes back. */
static void count_end(media_t *media, media_job_t *job) {
  if (--job->open > 0) return;
  pthread_mutex_lock(&media->lock);
  queue_put(&media->ended, job);
  pthread_mutex_unlock(&media->lock);
  uv_async_send(&media->wake);
}

static bool has_place(const media_t *media, const transfer_t *transfer) {
  int of_client = 0, of_host = 0;
  for (int i = 0; i < media->num_running; i++) {
    of_client += media->running[i]->job->client == transfer->job->client;
    of_host += strcmp(media->running[i]->url.host, transfer->url.host) == 0;
  }
  return of_client < MEDIA_OF_CLIENT_MAX && of_host < MEDIA_OF_HOST_MAX;
}

static void start(media_t *media, transfer_t *transfer) {
  if (!transfer_prepare(transfer)) {
    count_end(media, transfer->job);
  } else if (media->curl.multi_add_handle(media->multi, transfer->easy) != CURLM_OK) {
    transfer->code =
        error_set(&transfer->error, ERR_NO_MEMORY, NULL, "no memory for a %s", transfer->kind.noun);
    transfer_close(transfer);
    count_end(media, transfer->job);
  } else {
    media->running[media->num_running++] = transfer;
  }
}

/* Starts what has a place, in the order of coming; drops what nobody waits for. */
static void start_waiting(media_t *media) {
  transfer_t **link = &media->waiting;
  while (*link != NULL) {
    transfer_t *transfer = *link;
    const bool left = atomic_load(&transfer->job->left);
    if (!left && (media->num_running == MEDIA_AT_ONCE_MAX || !has_place(media, transfer))) {
      link = &transfer->next;
      continue;
    }
    *link = transfer->next;
    if (left)
      count_end(media, transfer->job);
    else
      start(media, transfer);
  }
  media->last_waiting = link;
}

static void remove_running(media_t *media, int place) {
  transfer_t *transfer = media->running[place];
  (void)media->curl.multi_remove_handle(media->multi, transfer->easy);
  media->running[place] = media->running[--media->num_running];
}

static void end_one(media_t *media, transfer_t *transfer, CURLcode result) {
  int place = 0;
  while (media->running[place] != transfer) place++;
  remove_running(media, place);
  if (!transfer_end(transfer, result)) {
    count_end(media, transfer->job);
  } else { /* it waits for a place of the host to which it was sent, as any other */
    transfer->next = media->waiting;
    if (media->waiting == NULL) media->last_waiting = &transfer->next;
    media->waiting = transfer;
  }
}

static void end_some(media_t *media) {
  CURLMsg *message;
  int left;
  while ((message = media->curl.multi_info_read(media->multi, &left)) != NULL) {
    transfer_t *transfer = NULL;
    const CURLcode result = message->data.result; /* removing the handle frees the message */
    if (message->msg != CURLMSG_DONE) continue;
    (void)media->curl.easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, (char **)&transfer);
    end_one(media, transfer, result);
  }
  for (int i = media->num_running - 1; i >= 0; i--) {
    transfer_t *transfer = media->running[i];
    if (!atomic_load(&transfer->job->left)) continue;
    remove_running(media, i);
    transfer_close(transfer);
    count_end(media, transfer->job);
  }
}

/* Takes over the jobs that came. Returns false when the thread is to end. */
static bool take_asked(media_t *media) {
  pthread_mutex_lock(&media->lock);
  media_job_t *job = queue_take(&media->asked);
  const bool goes_on = !media->stop;
  pthread_mutex_unlock(&media->lock);
  for (media_job_t *next; job != NULL; job = next) {
    next = job->next; /* which the last of its transfers to end sets anew */
    job->open = job->count;
    for (size_t i = 0; i < job->count; i++) {
      job->transfers[i]->next = NULL;
      *media->last_waiting = job->transfers[i];
      media->last_waiting = &job->transfers[i]->next;
    }
  }
  return goes_on;
}

/* At the end nobody waits any more: all jobs were left. */
static void *run(void *argument) {
  media_t *media = argument;
  fault_stack_use();
  (void)setpriority(PRIO_PROCESS, 0, NICE); /* on Linux: this thread alone */
  for (bool goes_on = true; goes_on;) {
    int count = 0;
    goes_on = take_asked(media);
    end_some(media);
    start_waiting(media);
    (void)media->curl.multi_perform(media->multi, &count);
    end_some(media);
    if (goes_on && media->num_running < MEDIA_AT_ONCE_MAX) start_waiting(media);
    if (goes_on) (void)media->curl.multi_poll(media->multi, NULL, 0, MEDIA_MS_MAX, NULL);
  }
  return NULL;
}

/* ---- loop thread ---- */

static void on_wake(uv_async_t *handle) {
  media_t *media = handle->data;
  pthread_mutex_lock(&media->lock);
  media_job_t *job = queue_take(&media->ended);
  pthread_mutex_unlock(&media->lock);
  for (media_job_t *next; job != NULL; job = next) {
    next = job->next;
    job->state = JOB_DONE;
    if (atomic_load(&job->left))
      destroy(job);
    else
      job->done(job->owner);
  }
}

static int start_thread(media_t *media, inferd_error_t *error) {
  sigset_t others, old; /* signals are for the loop thread, but faults */
  fault_block_others(&others);
  pthread_sigmask(SIG_SETMASK, &others, &old);
  const int status = pthread_create(&media->thread, NULL, run, media);
  pthread_sigmask(SIG_SETMASK, &old, NULL);
  if (status != 0)
    return error_set(error, ERR_IO, NULL, "cannot start a thread for pictures of other hosts: %s",
                     strerror(status));
  media->started = true;
  (void)pthread_setname_np(media->thread, "media");
  return 0;
}

int media_open(const config_list_t *hosts, uv_loop_t *loop, media_t **out, inferd_error_t *error) {
  media_t *media = calloc(1, sizeof *media);
  if (media == NULL)
    return error_set(error, ERR_NO_MEMORY, NULL, "no memory for pictures of other hosts");
  int code = curl_api_open("allowed_media_hosts", &media->curl, error);
  if (code == 0) {
    media->multi = media->curl.multi_init();
    media->hosts = (media_hosts_t){&media->curl, hosts};
    media->last_waiting = &media->waiting;
    media->wake.data = media;
    queue_init(&media->asked);
    queue_init(&media->ended);
    pthread_mutex_init(&media->lock, NULL);
    if (media->multi == NULL)
      code = error_set(error, ERR_NO_MEMORY, NULL, "no memory for pictures of other hosts");
  }
  if (code == 0 && uv_async_init(loop, &media->wake, on_wake) != 0)
    code = error_set(error, ERR_IO, NULL, "no handle for pictures of other hosts");
  if (code != 0) {
    free(media);
    return code;
  }
  *out = media; /* the loop has its handle */
  return start_thread(media, error);
}

void media_stop(media_t *media) {
  if (media == NULL) return;
  pthread_mutex_lock(&media->lock);
  media->stop = true;
  pthread_mutex_unlock(&media->lock);
  (void)media->curl.multi_wakeup(media->multi);
  if (media->started) pthread_join(media->thread, NULL);
  on_wake(&media->wake);
  uv_close((uv_handle_t *)&media->wake, NULL);
}

void media_free(media_t *media) {
  if (media == NULL) return;
  (void)media->curl.multi_cleanup(media->multi);
  pthread_mutex_destroy(&media->lock);
  free(media);
}

/* ---- files of one request ---- */

bool media_allows(const media_t *media, const char *url, size_t length) {
  media_url_t parsed;
  inferd_error_t ignored;
  if (media == NULL || media_url_read(&media->hosts, "file", url, length, &parsed, &ignored) != 0)
    return false;
  media_url_free(&media->hosts, &parsed);
  return true;
}

media_job_t *media_job_new(media_t *media, ledger_t *ledger, uint64_t client) {
  media_job_t *job = calloc(1, sizeof *job);
  if (job == NULL) return NULL;
  job->media = media;
  job->client = client;
  job->charge = charge_open(ledger, client, LEDGER_pictures);
  return job;
}

int media_job_add(media_job_t *job, const media_kind_t *kind, const char *url, size_t length,
                  inferd_error_t *error) {
  transfer_t **more = reallocarray(job->transfers, job->count + 1, sizeof *more);
  transfer_t *transfer = calloc(1, sizeof *transfer);
  if (more != NULL) job->transfers = more;
  if (more == NULL || transfer == NULL) {
    free(transfer);
    return error_set(error, ERR_NO_MEMORY, NULL, "no memory for a %s", kind->noun);
  }
  const media_hosts_t *hosts = &job->media->hosts;
  transfer->job = job;
  transfer->kind = *kind;
  transfer->hosts = hosts;
  transfer->charge = &job->charge;
  int code = media_url_read(hosts, kind->noun, url, length, &transfer->url, error);
  if (code == 0)
    job->transfers[job->count++] = transfer;
  else
    free(transfer);
  return code;
}

void media_job_begin(media_job_t *job, void (*done)(void *owner), void *owner) {
  media_t *media = job->media;
  job->done = done;
  job->owner = owner;
  job->state = JOB_RUNS;
  pthread_mutex_lock(&media->lock);
  queue_put(&media->asked, job);
  pthread_mutex_unlock(&media->lock);
  (void)media->curl.multi_wakeup(media->multi);
}

bool media_job_runs(const media_job_t *job) {
  return job != NULL && job->state == JOB_RUNS;
}

bool media_job_waits(const media_job_t *job) {
  return job != NULL && job->state == JOB_NEW;
}

int media_job_take(media_job_t *job, size_t index, buffer_t *out, inferd_error_t *error) {
  transfer_t *transfer = job->transfers[index];
  if (transfer->code != 0) {
    *error = transfer->error;
    return transfer->code;
  }
  *out = transfer->bytes;
  transfer->bytes = (buffer_t){0};
  return 0;
}

void media_job_free(media_job_t *job) {
  if (job == NULL) return;
  if (job->state != JOB_RUNS) {
    destroy(job);
    return;
  }
  atomic_store(&job->left, true);
  (void)job->media->curl.multi_wakeup(job->media->multi);
}
