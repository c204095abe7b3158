/* base64.h: reads base64, in which model files write bytes. Any thread; no state. */
#ifndef INFERD_ENGINE_TEXT_BASE64_H
#define INFERD_ENGINE_TEXT_BASE64_H

#include "engine/base/buffer.h"

/* Appends what base64 in its padded, canonical form stands for. False: it is none, or no memory. */
bool base64_append(buffer_t *out, const char *text, size_t length);

#endif
