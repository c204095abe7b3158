/* keywords.h: the keywords of JSON Schema that are enforced, in one table.
 *
 * The keywords of objects, of arrays and of numbers are each contiguous; the code relies on it.
 */
#ifndef INFERD_ENGINE_GRAMMAR_LANGUAGE_KEYWORDS_H
#define INFERD_ENGINE_GRAMMAR_LANGUAGE_KEYWORDS_H

/* X(enum, name) */
#define KEYWORDS(X)                                                                                \
  X(REF, "$ref")                                                                                   \
  X(ALL_OF, "allOf")                                                                               \
  X(ANY_OF, "anyOf")                                                                               \
  X(ONE_OF, "oneOf")                                                                               \
  X(TYPE, "type")                                                                                  \
  X(ENUM, "enum")                                                                                  \
  X(CONST, "const")                                                                                \
  X(PROPERTIES, "properties")                                                                      \
  X(REQUIRED, "required")                                                                          \
  X(ADDITIONAL_PROPERTIES, "additionalProperties")                                                 \
  X(PATTERN_PROPERTIES, "patternProperties")                                                       \
  X(MIN_PROPERTIES, "minProperties")                                                               \
  X(MAX_PROPERTIES, "maxProperties")                                                               \
  X(ITEMS, "items")                                                                                \
  X(PREFIX_ITEMS, "prefixItems")                                                                   \
  X(ADDITIONAL_ITEMS, "additionalItems")                                                           \
  X(MIN_ITEMS, "minItems")                                                                         \
  X(MAX_ITEMS, "maxItems")                                                                         \
  X(UNIQUE_ITEMS, "uniqueItems")                                                                   \
  X(MIN_LENGTH, "minLength")                                                                       \
  X(MAX_LENGTH, "maxLength")                                                                       \
  X(PATTERN, "pattern")                                                                            \
  X(FORMAT, "format")                                                                              \
  X(MINIMUM, "minimum")                                                                            \
  X(MAXIMUM, "maximum")                                                                            \
  X(EXCLUSIVE_MINIMUM, "exclusiveMinimum")                                                         \
  X(EXCLUSIVE_MAXIMUM, "exclusiveMaximum")                                                         \
  X(MULTIPLE_OF, "multipleOf")

#endif
