/* pictures.c: prompts with pictures in a plan; the contract is in pictures.h.
 *
 * Engine thread only; allocates nothing.
 */
#include "engine/schedule/pictures.h"

#include "engine/base/util.h"
#include "engine/schedule/sources.h"

/* The first picture that a sequence has not computed to its end and whose rows are not there. */
static const image_t *first_unseen(const scheduler_t *scheduler, const sequence_t *seq) {
  const request_t *request = seq->group->request;
  if (scheduler->image_rows == NULL) return NULL;
  for (int32_t i = 0; i < request->num_images; i++) {
    const image_t *image = &request->images[i];
    if (image->end > seq->num_computed_tokens &&
        !image_rows_has(scheduler->image_rows, request, image))
      return image;
  }
  return NULL;
}

static int32_t cut_unseen(const scheduler_t *scheduler, const sequence_t *seq, int32_t n) {
  const image_t *image = first_unseen(scheduler, seq);
  return image == NULL ? n : MIN(n, MAX(image->first - seq->num_computed_tokens, 0));
}

/* The picture that the token at `position` is a row of; NULL = it is text. */
static const image_t *picture_at(const scheduler_t *scheduler, const sequence_t *seq,
                                 int32_t position) {
  const request_t *request = seq->group->request;
  for (int32_t i = 0; i < request->num_images && request->images[i].first <= position; i++) {
    if (position >= request->images[i].end) continue;
    const bool is_row =
        request->prompt_ids[position] == image_rows_placeholder(scheduler->image_rows);
    return is_row ? &request->images[i] : NULL;
  }
  return NULL;
}

static bool are_whole(const scheduler_t *scheduler, const sequence_t *seq) {
  return scheduler->image_rows != NULL && scheduler->pictures_whole && !seq->group->is_plain;
}

int32_t pictures_cut(const scheduler_t *scheduler, const sequence_t *seq, int32_t n) {
  if (sources_lack(scheduler, seq->group)) return 0;
  if (scheduler->image_rows == NULL || seq->group->is_plain) return n;
  n = cut_unseen(scheduler, seq, n);
  const int32_t end = seq->num_computed_tokens + n;
  const image_t *image =
      n > 0 && are_whole(scheduler, seq) ? picture_at(scheduler, seq, end) : NULL;
  if (image == NULL) return n;
  const int32_t first = image_run_first(image, image_rows_placeholder(scheduler->image_rows),
                                        seq->group->request->prompt_ids, end);
  return MAX(first - seq->num_computed_tokens, 0);
}

int32_t pictures_run(const scheduler_t *scheduler, const sequence_t *seq) {
  const int32_t at = seq->num_computed_tokens;
  const image_t *image = are_whole(scheduler, seq) ? picture_at(scheduler, seq, at) : NULL;
  if (image == NULL) return 0;
  return image_run_end(image, image_rows_placeholder(scheduler->image_rows),
                       seq->group->request->prompt_ids, at) -
         at;
}

bool pictures_block(const scheduler_t *scheduler, const sequence_t *seq) {
  if (sources_lack(scheduler, seq->group)) return true;
  return scheduler->image_rows != NULL && !seq->group->is_plain &&
         cut_unseen(scheduler, seq, 1) == 0;
}

int32_t pictures_cut_drafts(const scheduler_t *scheduler, const int32_t *ids, int32_t count) {
  int32_t kept = 0;
  if (scheduler->image_rows == NULL) return count;
  while (kept < count && ids[kept] != image_rows_placeholder(scheduler->image_rows)) kept++;
  return kept;
}

bool pictures_goes_before(const scheduler_t *scheduler, const group_t *left, const group_t *right) {
  const tenant_t *all = scheduler->waiting.tenants.all;
  if (scheduler->options.priority_policy && left->request->priority != right->request->priority)
    return left->request->priority < right->request->priority;
  if (scheduler->options.fair_share && all[left->tenant].served != all[right->tenant].served)
    return all[left->tenant].served < all[right->tenant].served;
  return left->arrival < right->arrival;
}

int32_t pictures_turn(const scheduler_t *scheduler, const pictures_begun_t *begun) {
  int32_t turn = -1;
  for (int32_t i = 0; i < begun->count; i++)
    if (turn < 0 || pictures_goes_before(scheduler, begun->groups[i], begun->groups[turn]))
      turn = i;
  return turn;
}

/* A tenant has one picture in the tower: more of them would only take turns with each other. One
 * that is more urgent goes beside it. */
bool pictures_may_begin(const scheduler_t *scheduler, const pictures_begun_t *begun,
                        const group_t *group) {
  for (int32_t i = 0; i < begun->count; i++) {
    const group_t *other = begun->groups[i];
    const bool urgent =
        scheduler->options.priority_policy && group->request->priority < other->request->priority;
    if (other->tenant == group->tenant && !urgent) return false;
  }
  return true;
}

/* Of the group's sequences the first one that lacks a picture says which; NULL = none does, or it
 * is begun. */
static const image_t *wanted(const scheduler_t *scheduler, const group_t *group) {
  for (const sequence_t *seq = &group->sequence; seq != NULL; seq = seq->next) {
    const image_t *unseen = sequence_is_live(seq) ? first_unseen(scheduler, seq) : NULL;
    if (unseen == NULL) continue;
    return image_rows_is_begun(scheduler->image_rows, group->request, unseen) ? NULL : unseen;
  }
  return NULL;
}

group_t *pictures_next(scheduler_t *scheduler, const pictures_begun_t *begun, int64_t patches_max,
                       const image_t **image) {
  group_t *next = NULL;
  for (group_t *group = scheduler->running.head; group != NULL; group = group->next) {
    if (group->is_plain || (next != NULL && !pictures_goes_before(scheduler, group, next)) ||
        !pictures_may_begin(scheduler, begun, group))
      continue;
    const image_t *unseen = wanted(scheduler, group);
    if (unseen == NULL || (int64_t)vision_row_count(&unseen->layout) > patches_max) continue;
    next = group;
    *image = unseen;
  }
  return next;
}

static void mark(const scheduler_t *scheduler, const group_t *group, bool runs) {
  const request_t *request = group->request;
  for (int32_t i = 0; i < request->num_images; i++) {
    const image_t *image = &request->images[i];
    bool needed = false;
    for (const sequence_t *seq = &group->sequence; seq != NULL && runs; seq = seq->next)
      needed = needed || (sequence_is_live(seq) && seq->num_computed_tokens < image->end);
    image_rows_mark(scheduler->image_rows, request, image,
                    needed ? IMAGE_MUST_STAY : IMAGE_IS_WANTED);
  }
}

void pictures_mark(const scheduler_t *scheduler) {
  image_rows_unmark(scheduler->image_rows);
  for (const group_t *group = scheduler->running.head; group != NULL; group = group->next)
    mark(scheduler, group, true);
  for (const group_t *group = scheduler->waiting.queue.head; group != NULL; group = group->next)
    if (group->num_preemptions > 0 || !group_is_lead(group)) mark(scheduler, group, false);
  for (const group_t *group = scheduler->swapped.head; group != NULL; group = group->next)
    mark(scheduler, group, false);
}
