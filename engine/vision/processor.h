/* processor.h: from a picture to what a vision tower reads, as transformers' image processors do
 * it.
 *
 * Four steps, each a function. All of a request but the pixels is known after the second, which
 * needs the header of a picture alone:
 *
 *   config files      -> vision_processor_t   vision_processor_read, once, at start
 *   width and height  -> vision_layout_t      views, grid, tokens; vision_expand: the placeholder
 *   picture, layout   -> bytes of the views   vision_views: resize, pad, cut
 *   bytes of the views -> rows of patches     vision_rows: normalise, order
 *
 * A view is one image that the tower sees by itself: no attention crosses views. Most families make
 * one view of a picture; those with tiles make several, all of one size. The tower gets
 * `layout.views * layout.grid_height * layout.grid_width` rows of `vision_row_values` floats, view
 * by view, and gives `layout.view_tokens` embeddings for each view.
 *
 * The numbers are those of transformers 5 with its default back end (torchvision, bytes resized
 * with antialias on a CPU that has AVX2): views and rows have the same bits (resize.h).
 * Plain data and pure functions: any thread, no allocation but the scratch of vision_views.
 */
#ifndef INFERD_ENGINE_VISION_PROCESSOR_H
#define INFERD_ENGINE_VISION_PROCESSOR_H

#include "engine/base/error.h"
#include "engine/base/json.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Of a picture that is taken at all, and of a view. Sizes are below 2^31 by these bounds. */
enum { PICTURE_SIDE_MAX = 16384, PICTURE_PIXELS_MAX = 40 * 1000 * 1000 };
enum {
  VISION_SIDE_MAX = 32768,
  VISION_PIXELS_MAX = 2 * PICTURE_PIXELS_MAX,
  VISION_PINPOINTS_MAX = 64,
  VISION_TILES_MAX = 64
};

/* Pixels as a decoder left them: turned upright, alpha laid on white. */
typedef struct picture {
  uint8_t *rgb;           /* (height, width, 3); the maker says who frees it */
  uint32_t width, height; /* 1 .. PICTURE_SIDE_MAX, at most PICTURE_PIXELS_MAX together */
} picture_t;

/* Named after the class of transformers, without `ImageProcessor`. */
typedef enum vision_kind {
  VISION_QWEN2_VL,        /* Qwen2-VL, 2.5-VL, 3-VL, 3.5: any size, limits of pixels */
  VISION_GLM4V,           /* GLM-4.1V and later: the same with other limits */
  VISION_GEMMA3,          /* a square; crops with tiles on (pan and scan) */
  VISION_GEMMA4,          /* any size, a budget of tokens */
  VISION_PIXTRAL,         /* any size, a longest edge; a token behind each row */
  VISION_IDEFICS3,        /* SmolVLM too: square tiles and the whole picture, last */
  VISION_GOT_OCR2,        /* InternVL: square tiles and the whole picture, last */
  VISION_LLAVA_ONEVISION, /* the whole picture, first, and square tiles without their padding */
  VISION_LLAVA_NEXT,      /* the same of every picture, and all of the tiles */
  VISION_CLIP             /* LLaVA 1.5: a square from the middle */
} vision_kind_t;

typedef enum vision_filter { VISION_BILINEAR, VISION_BICUBIC, VISION_LANCZOS } vision_filter_t;

/* The order of rows within a view, and of the values of a row. */
typedef enum vision_order {
  VISION_BLOCKS,      /* rows: blocks of merge x merge in raster order, raster within a block;
                         values: (channel, frame, y, x) */
  VISION_RASTER,      /* rows: raster; values: (channel, y, x), as a convolution reads them */
  VISION_RASTER_PIXEL /* rows: raster; values: (y, x, channel) */
} vision_order_t;

/* What the files say, checked. No pointers: it may be copied to another process. */
typedef struct vision_processor {
  vision_kind_t kind;
  vision_filter_t filter;
  vision_order_t order;
  uint32_t patch;                 /* side of a patch in pixels */
  uint32_t frames;                /* how often a row repeats a still picture: 1 or 2 */
  uint32_t merge;                 /* merge x merge patches make one token: side of that square */
  bool normalizes;                /* else values are only multiplied by rescale */
  double mean[3], std[3];         /* of red, green, blue between 0 and 1 */
  double rescale;                 /* 1 / 255 */
  int64_t pixels_min, pixels_max; /* of a view: QWEN2_VL, GLM4V (there of all frames together) */
  uint32_t longest_edge;          /* PIXTRAL, IDEFICS3 */
  uint32_t shortest_edge;         /* CLIP: that of a picture before its middle is cut out */
  uint32_t view_side;             /* height and width of a view where all views are squares */
  uint32_t view_tokens;           /* per view where all views are squares; GEMMA4: the budget */
  bool tiles;                     /* GEMMA3, IDEFICS3, GOT_OCR2: cuts large pictures */
  uint32_t tiles_min, tiles_max;  /* GOT_OCR2; GEMMA3: at most tiles_max crops */
  uint32_t crop_min;              /* GEMMA3: the shortest side of a crop */
  double crop_ratio;              /* GEMMA3: long / short from which on it cuts */
  uint32_t num_pinpoints;         /* LLAVA: sizes that tiles may fill; 0: no picture is cut */
  uint32_t pinpoints[VISION_PINPOINTS_MAX][2]; /* (height, width) */
  uint32_t tiles_kept;                         /* LLAVA_ONEVISION: `anyres_max_9` is 9 */
} vision_processor_t;

/* What a picture of one size becomes. Tokens are embeddings of the tower, each in the place of one
 * placeholder id; breaks, ends and names of tiles are not among them. */
typedef struct vision_layout {
  uint32_t views;                     /* >= 1 */
  uint32_t whole;                     /* index of the view that is the whole picture */
  uint32_t tile_rows, tile_columns;   /* tiles in raster order; 0: the picture is not cut */
  uint32_t view_height, view_width;   /* pixels */
  uint32_t grid_height, grid_width;   /* patches of a view; pixels behind the last are left out */
  uint32_t view_tokens;               /* embeddings that the tower makes of a view */
  uint32_t token_rows, token_columns; /* the same as a grid */
  uint32_t tokens;                    /* of the picture: views * view_tokens, but see packed */
  uint32_t step_height, step_width;   /* IDEFICS3, CLIP: it is resized to this before; else 0 */
  uint32_t fit_height, fit_width;     /* pixels to which the picture is resized before it is cut */
  /* LLAVA: the tokens are those of the whole, then of the tiles joined to one grid
   * (tile_rows * token_rows, tile_columns * token_columns), of which the rectangle kept_* is what
   * the picture covers. It is resized to (packed_rows, packed_columns), bilinear, where these
   * differ, and each of its rows gets the embedding of a new line behind it. A picture that is not
   * cut has one view and one new line. See vision_taps. */
  bool packed;
  uint32_t kept_top, kept_left, kept_rows, kept_columns, packed_rows, packed_columns;
  uint32_t short_rows; /* of a sound that is heard by chunks, see sound.h; else 0 */
} vision_layout_t;

/* Pieces of what stands in the prompt in the place of one picture. The tokens around it that a chat
 * template writes itself, as Qwen's does, are not among them. */
typedef enum vision_piece {
  VISION_TOKENS, /* `count` placeholder ids, for as many of the picture's tokens, in their order */
  VISION_BEGIN,  /* boi of Gemma, <img> of InternVL, the fake token of Idefics 3 */
  VISION_END,    /* eoi, </img>, [IMG_END] of Pixtral, the fake token */
  VISION_BREAK,  /* [IMG_BREAK] */
  VISION_TILE,   /* <row_R_col_C>, from 1 */
  VISION_WHOLE,  /* <global-img> */
  VISION_TEXT    /* ordinary text: it is joined with the text beside it, then made tokens */
} vision_piece_t;

typedef struct vision_run {
  vision_piece_t piece;
  uint32_t count;       /* of VISION_TOKENS; else 1 */
  uint32_t row, column; /* of VISION_TILE */
  const char *text;     /* of VISION_TEXT, static */
} vision_run_t;

/* ---- make ---- */

/* What the files of a model say. `preprocessor` is the preprocessor's file, or its part of the
 * processor's file; `processor` is the latter or NULL, `config` is config.json. Absent
 * numbers are those of the class. Returns 0, or ERR_MODEL_MALFORMED with the key: a class that is
 * none of vision_kind_t, or a number by which no picture can be cut. */
int vision_processor_read(const json_t *preprocessor, const json_t *processor, const json_t *config,
                          vision_processor_t *out, inferd_error_t *error);
/* The same of the config.json of a model of OpenGVLab (InternVLChatModel), which has the numbers of
 * its processor: tiles and whole pictures as VISION_GOT_OCR2. */
int vision_processor_read_internvl(const json_t *config, vision_processor_t *out,
                                   inferd_error_t *error);
/* The numbers of a class by itself, as an mmproj file names them by other keys; patch, merge and
 * sides are those of its first checkpoint. */
void vision_processor_default(vision_kind_t kind, vision_processor_t *out);
/* For numbers from elsewhere. Returns 0, or ERR_MODEL_MALFORMED with the field. */
int vision_processor_check(const vision_processor_t *processor, inferd_error_t *error);

/* ---- use ---- */

/* Of a checked processor. `alone`: no other picture is in the prompt (LLAVA_ONEVISION cuts only
 * such). Returns 0, or ERR_INVALID_VALUE where the family cannot take the size: the message has
 * both numbers, and `param` is left to the caller. */
int vision_layout(const vision_processor_t *processor, uint32_t width, uint32_t height, bool alone,
                  vision_layout_t *out, inferd_error_t *error);
/* Patches that no picture has more of. Of a checked processor. */
int64_t vision_patches_max(const vision_processor_t *processor);
/* Tokens beside those of patches that a picture of at most so many views may have: its new lines.
 */
int64_t vision_lines_max(const vision_processor_t *processor, int64_t views);
/* Lowers the limits by which pictures are made smaller, as if the files said so, until none has
 * more tokens than these; the least is a view, and of one that is far longer than wide a row of
 * tokens. Gemma 4 takes budgets of its own. Of a checked processor. */
void vision_limit(vision_processor_t *processor, uint32_t tokens);
/* Writes at most `capacity` runs and returns how many there are. */
size_t vision_expand(const vision_processor_t *processor, const vision_layout_t *layout,
                     vision_run_t *out, size_t capacity);

size_t vision_view_bytes(const vision_layout_t *layout); /* of all views: (views, h, w, 3) */
/* Resizes and cuts a picture of exactly the size that the layout was made of. `bytes` has room for
 * vision_view_bytes. Returns 0, or ERR_NO_MEMORY. */
int vision_views(const vision_processor_t *processor, const vision_layout_t *layout,
                 const picture_t *picture, uint8_t *bytes);

/* A token that an embedding of a view counts in, and with which weight. */
typedef struct vision_tap {
  uint32_t token;
  float weight;
} vision_tap_t;
enum { VISION_TAPS_MAX = 4 };

/* Of embedding `row` of all views, in their order: the token of that number, or of packed layouts
 * none, one or several. Writes at most VISION_TAPS_MAX and returns how many. */
uint32_t vision_taps(const vision_layout_t *layout, uint32_t row, vision_tap_t *out);
/* Whether some tokens are sums over several rows. */
bool vision_sums(const vision_layout_t *layout);
/* Whether a token is a new line, which no row counts in. */
bool vision_is_line(const vision_layout_t *layout, uint32_t token);

size_t vision_row_values(const vision_processor_t *processor); /* 3 * frames * patch * patch */
size_t vision_row_count(const vision_layout_t *layout);        /* views * grid */
/* Rows `first` to `first + count` of the picture: (count, vision_row_values). */
void vision_rows(const vision_processor_t *processor, const vision_layout_t *layout,
                 const uint8_t *bytes, size_t first, size_t count, float *rows);

#endif
