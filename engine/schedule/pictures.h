/* pictures.h: prompts with pictures in a plan: a chunk ends before the first picture whose rows are
 * not there, and whose picture the tower sees next.
 *
 * A group is admitted as any other, and holds its blocks while the tower works for it. Engine
 * thread only; allocates nothing.
 */
#ifndef INFERD_ENGINE_SCHEDULE_PICTURES_H
#define INFERD_ENGINE_SCHEDULE_PICTURES_H

#include "engine/schedule/image_rows.h"
#include "engine/schedule/scheduler.h"

enum { PICTURES_BEGUN_MAX = 8 };

/* Of the next n tokens of a sequence, those before a picture that the tower has not seen (none
 * while its source lacks K and V, sources.h), and where pictures are whole in a step, before one
 * that these do not have to its end. Such a picture is a run of placeholders: of several views each
 * is one. */
int32_t pictures_cut(const scheduler_t *scheduler, const sequence_t *seq, int32_t n);
/* Tokens of the run that the next token is of, from there on; 0 = it is of none, or may be computed
 * without the others. A run that has begun is computed to that place, all of it, by another. */
int32_t pictures_run(const scheduler_t *scheduler, const sequence_t *seq);
/* Whether the next token is of a picture that the tower has not seen. */
bool pictures_block(const scheduler_t *scheduler, const sequence_t *seq);
/* Of draft tokens that were looked up, those before the first placeholder of a picture: nothing is
 * drawn there. */
int32_t pictures_cut_drafts(const scheduler_t *scheduler, const int32_t *ids, int32_t count);
/* The pictures that the tower works on. */
typedef struct pictures_begun {
  const group_t *groups[PICTURES_BEGUN_MAX]; /* [count] */
  int32_t count;
} pictures_begun_t;

/* Which of them goes on, by (with the priority policy) priority, with fair shares by what their
 * tenants were served, then by arrival; -1 = there are none. */
int32_t pictures_turn(const scheduler_t *scheduler, const pictures_begun_t *begun);
/* In that order, and whether a tenant may begin a further one: it has none, or less urgent ones. */
bool pictures_goes_before(const scheduler_t *scheduler, const group_t *left, const group_t *right);
bool pictures_may_begin(const scheduler_t *scheduler, const pictures_begun_t *begun,
                        const group_t *group);
/* The running group whose picture begins next, in this order, and that picture; NULL = none does.
 * It has at most `patches_max` patches, and its tenant has none in the tower, but less urgent ones.
 */
group_t *pictures_next(scheduler_t *scheduler, const pictures_begun_t *begun, int64_t patches_max,
                       const image_t **image);
/* Marks the rows that prompts which are being computed need, and those of all that have begun. */
void pictures_mark(const scheduler_t *scheduler);

#endif
