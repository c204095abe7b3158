/* pictures.h: the pictures of a request, or its sounds, by what its model takes: from parts of its
 * messages to what the engine reads.
 *
 * Files that lie on other hosts are fetched first, without a thread that waits: pictures_ask, then
 * media_job_begin. Then there are three steps, between which the request may be refused. The first
 * two need the headers of the files alone, and are all that a request takes that is only counted. A
 * job of the lanes calls them; it waits in the third for the process that decodes
 * (engine/helper/helper.h). A sound has no header that says what it becomes: it is decoded in the
 * first, and its spectrogram is made there.
 */
#ifndef INFERD_SERVER_COMPLETION_PICTURES_H
#define INFERD_SERVER_COMPLETION_PICTURES_H

#include "engine/base/json.h"
#include "engine/picture/data_url.h"
#include "engine/picture/work.h"
#include "engine/template/template.h"
#include "engine/vision/image.h"
#include "server/ledger/ledger.h"
#include "server/media/media.h"

#include <stdatomic.h>

struct server;

/* `(pictures_t){0}` has none. */
typedef struct pictures {
  const vision_t *vision;
  image_t *images;            /* [count], in the order of the messages; the engine borrows them */
  struct picture_file *files; /* [count]; NULL once they are decoded */
  int32_t count;              /* at first of parts; a sound of several windows is several of them */
  media_job_t *remote;        /* of files on other hosts, in their order; NULL = there are none */
  uint8_t *views;             /* of all images, one behind another; NULL before they are decoded */
  uint64_t decoder_ns;        /* what the processes took that decoded them */
  helper_t *sounds;           /* decodes sounds; NULL = the model hears none */
  data_kind_t sound_kind;
  uint32_t sound_seconds_max;
  float **rows; /* [num_rows] spectrograms of sounds, each of all its windows */
  int32_t num_rows;
  double sound_seconds; /* of all sounds */
  charge_t charge;
} pictures_t;

/* None yet; opens the charge of what the request will have, of a client. */
pictures_t pictures_open(const struct server *server, uint64_t client);
/* Notes in `remote`, once, which of the `count` pictures are on other hosts; media NULL: none may
 * be. Returns 0, or an error with the place of the picture. */
int pictures_ask(pictures_t *pictures, media_t *media, const json_t *messages, int32_t count,
                 inferd_error_t *error);
/* Frees what is still being fetched. Returns false if nothing is. Loop thread. */
bool pictures_leave(pictures_t *pictures);
/* Reads the `count` >= 1 pictures or sounds of checked messages: bytes, size, layout, key. Returns
 * 0, or an error with the place. */
int pictures_read(pictures_t *pictures, const vision_t *vision, const json_t *messages,
                  int32_t count, inferd_error_t *error);
/* Where the family writes texts around its pictures: puts them where the template has set its
 * marks, outside of what the request says. Returns 0, or ERR_INTERNAL. */
int pictures_write(const pictures_t *pictures, jinja_output_t *rendered, inferd_error_t *error);
/* Puts the placeholders of each picture where the template has set its mark, and fills in `first`
 * and `end`. *ids, from malloc, are replaced. Returns 0, or ERR_INVALID_VALUE if there are not as
 * many marks as pictures, or ERR_INTERNAL. */
int pictures_expand(pictures_t *pictures, int32_t **ids, size_t *count, inferd_error_t *error);
/* Fills in the views. Returns 0, or an error with the place of the picture; ERR_REQUEST_TIMEOUT
 * when cancelled. */
int pictures_decode(pictures_t *pictures, helper_t *helper, const atomic_bool *cancelled,
                    inferd_error_t *error);
/* Tokens of sounds; 0 of pictures. */
int32_t pictures_sound_tokens(const pictures_t *pictures);
void pictures_free(pictures_t *pictures);

#endif
