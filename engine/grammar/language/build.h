/* build.h: what build.c and build_object.c share.
 *
 * Part of a compilation, on its thread.
 */
#ifndef INFERD_ENGINE_GRAMMAR_LANGUAGE_BUILD_H
#define INFERD_ENGINE_GRAMMAR_LANGUAGE_BUILD_H

#include "engine/grammar/compile.h"

/* Frames that an object takes beyond its own level: those of its required members. */
uint32_t build_object_need(compile_t *compile, const grammar_node_t *node);
/* Tries and tables of an object, once it is known which members can occur. */
void build_object_finish(compile_t *compile, uint32_t object);

#endif
