/* load_spm.c: tokenizer.model, the file of SentencePiece, where there is no tokenizer.json.
 *
 * The message is sentencepiece_model.proto. BPE and Unigram models are read; special tokens are
 * matched in a text as transformers does. The loading thread only.
 */
#include "engine/text/load/load.h"
#include "engine/text/load/protobuf.h"

#include <math.h>
#include <stdlib.h>

enum { SPM_BYTES_MAX = 256 << 20, SPM_PIECE_BYTES_MAX = 1024 };
/* ModelProto.SentencePiece.Type, TrainerSpec.ModelType */
enum { PIECE_NORMAL = 1, PIECE_UNKNOWN, PIECE_CONTROL, PIECE_USER, PIECE_UNUSED, PIECE_BYTE };
enum { MODEL_UNIGRAM = 1, MODEL_BPE = 2 };

static const double unk_penalty = 10; /* kUnkPenalty of SentencePiece */
static const double never = -1e30;    /* score of pieces that no text is segmented into */
static const char space_mark[] = "\xE2\x96\x81";

typedef struct spm_piece {
  const uint8_t *text;
  uint32_t length, type;
  float score;
} spm_piece_t;

typedef struct spm {
  tokenizer_load_t *load;
  spm_piece_t *pieces; /* [count], owned */
  uint32_t count;
  uint64_t model_type;
  int64_t unk, bos, eos;
  bool byte_fallback, suffix; /* suffix: the mark of a space stands after its word */
  bool dummy_prefix, extra_spaces_go, spaces_are_marks;
  const uint8_t *charsmap;
  size_t charsmap_length;
} spm_t;

static int malformed(const spm_t *spm, const char *where) {
  return load_fail(spm->load, where, "not a well-formed SentencePiece model");
}

static int read_piece(spm_t *spm, protobuf_t message, spm_piece_t *out) {
  protobuf_field_t field;
  *out = (spm_piece_t){.type = PIECE_NORMAL};
  while (protobuf_next(&message, &field)) {
    if (field.number == 1 && field.type == PROTOBUF_BYTES) {
      if (field.length > SPM_PIECE_BYTES_MAX)
        return load_fail(spm->load, "pieces", "a piece of %zu bytes, at most %d", field.length,
                         SPM_PIECE_BYTES_MAX);
      out->text = field.data, out->length = (uint32_t)field.length;
    } else if (field.number == 2 && field.type == PROTOBUF_FIXED32) {
      out->score = protobuf_float(&field);
    } else if (field.number == 3 && field.type == PROTOBUF_VARINT) {
      out->type = field.value > PIECE_BYTE ? 0 : (uint32_t)field.value;
    }
  }
  bool good = !message.failed && out->length > 0 && out->type != 0 && isfinite(out->score);
  return good ? 0 : malformed(spm, "pieces");
}

static int read_trainer(spm_t *spm, protobuf_t message) {
  protobuf_field_t field;
  while (protobuf_next(&message, &field)) {
    if (field.type != PROTOBUF_VARINT) continue;
    switch (field.number) {
    case 3: spm->model_type = field.value; break;
    case 24: spm->suffix = field.value != 0; break;
    case 35: spm->byte_fallback = field.value != 0; break;
    case 40: spm->unk = (int32_t)field.value; break;
    case 41: spm->bos = (int32_t)field.value; break;
    case 42: spm->eos = (int32_t)field.value; break;
    default: break;
    }
  }
  return message.failed ? malformed(spm, "trainer_spec") : 0;
}

static int read_normalizer(spm_t *spm, protobuf_t message) {
  protobuf_field_t field;
  while (protobuf_next(&message, &field)) {
    if (field.number == 2 && field.type == PROTOBUF_BYTES) {
      spm->charsmap = field.data, spm->charsmap_length = field.length;
    } else if (field.type == PROTOBUF_VARINT) {
      if (field.number == 3) spm->dummy_prefix = field.value != 0;
      if (field.number == 4) spm->extra_spaces_go = field.value != 0;
      if (field.number == 5) spm->spaces_are_marks = field.value != 0;
    }
  }
  return message.failed ? malformed(spm, "normalizer_spec") : 0;
}

/* Two passes over the message: to count the pieces, and to read them. */
static int read_model(spm_t *spm, const load_doc_t *file) {
  protobuf_t message = protobuf_of(file->text, file->length);
  protobuf_field_t field;
  uint32_t count = 0;
  while (protobuf_next(&message, &field)) count += field.number == 1;
  if (message.failed || count == 0)
    return load_fail(spm->load, "file",
                     "not a SentencePiece model; a tokenizer of tiktoken needs its tokenizer.json");
  if (count > VOCAB_COUNT_MAX)
    return load_fail(spm->load, "pieces", "%u pieces, at most %d", count, VOCAB_COUNT_MAX);
  spm->pieces = calloc(count, sizeof *spm->pieces);
  if (spm->pieces == NULL) return load_no_memory(spm->load);
  message = protobuf_of(file->text, file->length);
  int code = 0;
  while (code == 0 && protobuf_next(&message, &field)) {
    if (field.type != PROTOBUF_BYTES) continue;
    protobuf_t inner = protobuf_of(field.data, field.length);
    if (field.number == 1 && spm->count < count)
      code = read_piece(spm, inner, &spm->pieces[spm->count++]);
    if (field.number == 2) code = read_trainer(spm, inner);
    if (field.number == 3) code = read_normalizer(spm, inner);
  }
  return code != 0 || spm->count == count ? code : malformed(spm, "pieces");
}

static int check_model(const spm_t *spm) {
  tokenizer_load_t *load = spm->load;
  if (spm->model_type != MODEL_UNIGRAM && spm->model_type != MODEL_BPE)
    return load_fail(load, "trainer_spec",
                     "model_type %llu is not supported; supported: 1 "
                     "(unigram), 2 (bpe)",
                     (unsigned long long)spm->model_type);
  if (spm->unk < 0 || spm->unk >= spm->count)
    return load_fail(load, "trainer_spec", "unk_id %lld is no piece", (long long)spm->unk);
  if (spm->suffix || !spm->spaces_are_marks)
    return load_fail(load, "normalizer_spec",
                     "treat_whitespace_as_suffix and models without "
                     "escape_whitespaces are not supported");
  if (spm->extra_spaces_go && spm->charsmap_length == 0)
    return load_fail(load, "normalizer_spec",
                     "remove_extra_whitespaces without a map of characters is not supported");
  return 0;
}

static int fill_vocab(const spm_t *spm) {
  char quoted[96];
  vocab_t *vocab = &spm->load->tokenizer->bpe.vocab;
  if (!vocab_init(vocab, spm->count, spm->count)) return load_no_memory(spm->load);
  for (uint32_t id = 0; id < spm->count; id++) {
    const spm_piece_t *piece = &spm->pieces[id];
    vocab_result_t result = vocab_put(vocab, (const char *)piece->text, piece->length, id);
    if (result == VOCAB_NO_MEMORY) return load_no_memory(spm->load);
    if (result == VOCAB_DUPLICATE)
      return load_fail(
          spm->load, "pieces", "the piece \"%s\" is there twice",
          error_quote(quoted, sizeof quoted, (const char *)piece->text, piece->length));
  }
  return 0;
}

/* ---- normaliser: [map, strip, runs of spaces] prefix, space -> mark ---- */

static normalizer_step_t *add_step(normalizer_t *normalizer, normalizer_kind_t kind,
                                   const char *pattern, const char *content) {
  normalizer_step_t *step = &normalizer->steps[normalizer->num_steps++];
  step->kind = kind;
  step->pattern_length = (unsigned)strlen(pattern),
  step->content_length = (unsigned)strlen(content);
  memcpy(step->pattern, pattern, step->pattern_length);
  memcpy(step->content, content, step->content_length);
  return step;
}

static int fill_normalizer(const spm_t *spm) {
  tokenizer_load_t *load = spm->load;
  int code = load_normalizer(load, NULL);
  if (code != 0) return code;
  normalizer_t *normalizer = &load->tokenizer->normalizer;
  if (spm->charsmap_length > 0) {
    char reason[CHARSMAP_REASON_MAX];
    normalizer_step_t *step = add_step(normalizer, NORMALIZE_CHARSMAP, "", "");
    step->charsmap = charsmap_of_bytes(spm->charsmap, spm->charsmap_length, reason);
    if (step->charsmap == NULL && reason[0] == '\0') return load_no_memory(load);
    if (step->charsmap == NULL)
      return load_fail(load, "normalizer_spec", "precompiled_charsmap: %s", reason);
  }
  if (spm->extra_spaces_go) {
    normalizer_step_t *step = add_step(normalizer, NORMALIZE_STRIP, "", "");
    step->strip_left = step->strip_right = true;
    add_step(normalizer, NORMALIZE_SPACES, " {2,}", " ");
  }
  if (spm->dummy_prefix) add_step(normalizer, NORMALIZE_PREPEND, "", space_mark);
  add_step(normalizer, NORMALIZE_REPLACE, " ", space_mark);
  return 0;
}

/* ---- model ---- */

static bool is_normal(const void *context, uint32_t id) {
  const spm_t *spm = context;
  return spm->pieces[id].type == PIECE_NORMAL;
}

static int fill_bpe(const spm_t *spm) {
  scored_piece_t *sorted = calloc(spm->count, sizeof *sorted);
  uint32_t count = 0;
  int code = sorted == NULL ? load_no_memory(spm->load) : 0;
  for (uint32_t id = 0; code == 0 && id < spm->count; id++) {
    if (is_normal(spm, id)) sorted[count++] = (scored_piece_t){spm->pieces[id].score, id};
  }
  if (code == 0) code = load_splits_by_score(spm->load, sorted, count, is_normal, spm);
  free(sorted);
  return code;
}

static int fill_unigram(const spm_t *spm) {
  unigram_t *unigram = &spm->load->tokenizer->unigram;
  double lowest = INFINITY;
  unigram->scores = calloc(spm->count, sizeof *unigram->scores);
  if (unigram->scores == NULL) return load_no_memory(spm->load);
  for (uint32_t id = 0; id < spm->count; id++) {
    bool normal = is_normal(spm, id);
    unigram->scores[id] = normal ? (double)spm->pieces[id].score : never;
    if (normal && unigram->scores[id] < lowest) lowest = unigram->scores[id];
  }
  unigram->unk_score = lowest - unk_penalty;
  unigram->unk = (uint32_t)spm->unk;
  return unigram_finish(unigram, &spm->load->tokenizer->bpe.vocab) ? 0 : load_no_memory(spm->load);
}

/* Control tokens and the unknown one are special; user-defined ones are text that is never cut. */
static int fill_added(const spm_t *spm) {
  spm->load->tokenizer->bare_added = true;
  int code = load_added_begin(spm->load, spm->count);
  for (uint32_t id = 0; code == 0 && id < spm->count; id++) {
    const spm_piece_t *piece = &spm->pieces[id];
    bool special = piece->type == PIECE_CONTROL || piece->type == PIECE_UNKNOWN;
    if (!special && piece->type != PIECE_USER) continue;
    added_token_t token = {.special = special, .normalized = !special};
    code = load_added_token(spm->load, (const char *)piece->text, piece->length, token);
  }
  return code;
}

static int fill_decoder(const spm_t *spm) {
  decoder_t *decoder = &spm->load->tokenizer->decoder;
  decoder_step_t *replace = &decoder->steps[0];
  *replace = (decoder_step_t){.kind = DECODE_REPLACE,
                              .pattern_length = sizeof space_mark - 1,
                              .content_length = 1,
                              .content = " "};
  memcpy(replace->pattern, space_mark, sizeof space_mark - 1);
  decoder->steps[1].kind = DECODE_BYTE_FALLBACK;
  decoder->num_steps = 2;
  if (!spm->dummy_prefix) return 0;
  decoder->strip_text[0] = ' ';
  decoder->strip_length = decoder->strip_start = 1;
  return 0;
}

static int fill(spm_t *spm) {
  tokenizer_t *tokenizer = spm->load->tokenizer;
  int code = check_model(spm);
  if (code == 0) code = fill_normalizer(spm);
  if (code == 0) code = load_pretokenizer(spm->load, NULL);
  tokenizer->bpe.byte_fallback = tokenizer->unigram.byte_fallback = spm->byte_fallback;
  tokenizer->bpe.fuse_unk = true;
  tokenizer->bpe.unk = (uint32_t)spm->unk;
  if (code == 0) code = fill_vocab(spm);
  if (code == 0) code = spm->model_type == MODEL_BPE ? fill_bpe(spm) : fill_unigram(spm);
  if (code == 0) code = fill_added(spm);
  if (code == 0) code = fill_decoder(spm);
  return code;
}

int load_spm(tokenizer_load_t *load, load_ends_t *ends, bool *found) {
  spm_t spm = {.load = load,
               .model_type = MODEL_UNIGRAM, /* the defaults of the message */
               .bos = 1,
               .eos = 2,
               .dummy_prefix = true,
               .extra_spaces_go = true,
               .spaces_are_marks = true};
  load_doc_t file;
  int code = load_read(load, "tokenizer.model", SPM_BYTES_MAX, &file, found);
  if (code != 0 || !*found) return code;
  code = read_model(&spm, &file);
  if (code == 0) code = fill(&spm);
  *ends = (load_ends_t){spm.bos < spm.count ? (int32_t)spm.bos : -1,
                        spm.eos < spm.count ? (int32_t)spm.eos : -1};
  free(spm.pieces);
  load_close(&file);
  return code;
}
