/* metrics_parts.c: the parts of the page of metrics that have one kind of name: the process, and
 * each replica of the model. Loop thread.
 */
#include "server/observe/metrics_page.h"

#include "engine/base/util.h"

#include <dirent.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- the process ---- */

/* Since Linux 6.2 the size of /proc/self/fd is the number of open files. */
static double open_files(void) {
  struct stat status;
  if (stat("/proc/self/fd", &status) == 0 && status.st_size > 0) return (double)status.st_size;
  DIR *directory = opendir("/proc/self/fd");
  double count = -3; /* ".", ".." and this directory */
  if (directory == NULL) return 0;
  while (readdir(directory) != NULL) count++;
  closedir(directory);
  return count;
}

static void process_row(page_t *page, metric_id_t id, double value) {
  page_family(page, id);
  page_bare_sample(page, id, "", value);
}

void page_print_process(page_t *page) {
  long long virtual_pages = 0, resident_pages = 0;
  struct rusage usage;
  struct rlimit files;
  FILE *statm = fopen("/proc/self/statm", "re");
  if (statm != NULL) {
    if (fscanf(statm, "%lld %lld", &virtual_pages, &resident_pages) != 2) resident_pages = 0;
    fclose(statm);
  }
  getrusage(RUSAGE_SELF, &usage);
  getrlimit(RLIMIT_NOFILE, &files);
  double cpu = (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
               (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * 1e-6;
  double bytes = (double)sysconf(_SC_PAGESIZE);
  process_row(page, METRIC_cpu_seconds, cpu);
  process_row(page, METRIC_resident_bytes, (double)resident_pages * bytes);
  process_row(page, METRIC_virtual_bytes, (double)virtual_pages * bytes);
  process_row(page, METRIC_open_fds, open_files());
  process_row(page, METRIC_max_fds,
              files.rlim_cur == RLIM_INFINITY ? 1048576 : (double)files.rlim_cur);
  double some_s, full_s;
  if (page->own && engine_memory_pressure(&some_s, &full_s)) {
    page_family(page, METRIC_memory_pressure);
    page_bare_sample(page, METRIC_memory_pressure, "kind=\"some\"", some_s);
    page_bare_sample(page, METRIC_memory_pressure, "kind=\"full\"", full_s);
  }
  process_row(page, METRIC_start_time, (double)page->metrics->server->start_time);
}

/* ---- replicas ---- */

/* A family of two states, read from the statistics of each replica. */
static void print_states(page_t *page, metric_id_t id, const char *const *states,
                         const size_t *offsets, int count) {
  page_family(page, id);
  for (int32_t i = 0; i < page->info->num_replicas; i++) {
    engine_stats_t stats;
    char labels[64];
    engine_stats_of(page->metrics->server->engine, i, &stats);
    for (int k = 0; k < count; k++) {
      const char *at = (const char *)&stats + offsets[k];
      snprintf(labels, sizeof labels, "replica=\"%d\",%s", i, states[k]);
      page_sample(page, id, labels, *(const int32_t *)(const void *)at);
    }
  }
}

static void print_counter(page_t *page, metric_id_t id, size_t offset) {
  page_family(page, id);
  for (int32_t i = 0; i < page->info->num_replicas; i++) {
    engine_stats_t stats;
    char labels[32];
    engine_stats_of(page->metrics->server->engine, i, &stats);
    snprintf(labels, sizeof labels, "replica=\"%d\"", i);
    page_sample(page, id, labels,
                (double)*(const uint64_t *)(const void *)((const char *)&stats + offset));
  }
}

void page_print_replicas(page_t *page) {
  static const char *const requests[] = {"state=\"running\"", "state=\"waiting\""};
  static const char *const blocks[] = {"state=\"free\"", "state=\"cached\"", "state=\"used\""};
  static const size_t of_requests[] = {offsetof(engine_stats_t, num_running),
                                       offsetof(engine_stats_t, num_waiting)};
  static const size_t of_blocks[] = {offsetof(engine_stats_t, blocks_free),
                                     offsetof(engine_stats_t, blocks_cached),
                                     offsetof(engine_stats_t, blocks_used)};
  if (page->info->num_replicas <= 1 || !page->own) return;
  print_states(page, METRIC_replica_requests, requests, of_requests, ARRAY_LEN(requests));
  print_states(page, METRIC_replica_blocks, blocks, of_blocks, ARRAY_LEN(blocks));
  print_counter(page, METRIC_replica_prompt_tokens, offsetof(engine_stats_t, prompt_tokens));
  print_counter(page, METRIC_replica_cached_tokens, offsetof(engine_stats_t, prompt_tokens_cached));
  print_counter(page, METRIC_replica_generation_tokens,
                offsetof(engine_stats_t, generation_tokens));
}
