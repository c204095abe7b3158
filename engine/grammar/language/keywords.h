/* keywords.h: the keywords of JSON Schema in three tables: enforced, not built, annotations.
 *
 * In the first table the keywords of objects, of arrays and of numbers are each contiguous; the
 * code relies on it. A name in none of the tables is an annotation of its author: it is ignored,
 * and the answer's header names it (schema_names.c).
 */
#ifndef INFERD_ENGINE_GRAMMAR_LANGUAGE_KEYWORDS_H
#define INFERD_ENGINE_GRAMMAR_LANGUAGE_KEYWORDS_H

/* X(enum, name) */
#define KEYWORDS(X)                                                                                \
  X(REF, "$ref")                                                                                   \
  X(ALL_OF, "allOf")                                                                               \
  X(ANY_OF, "anyOf")                                                                               \
  X(ONE_OF, "oneOf")                                                                               \
  X(NOT, "not")                                                                                    \
  X(IF, "if")                                                                                      \
  X(THEN, "then")                                                                                  \
  X(ELSE, "else")                                                                                  \
  X(TYPE, "type")                                                                                  \
  X(ENUM, "enum")                                                                                  \
  X(CONST, "const")                                                                                \
  X(PROPERTIES, "properties")                                                                      \
  X(REQUIRED, "required")                                                                          \
  X(ADDITIONAL_PROPERTIES, "additionalProperties")                                                 \
  X(PATTERN_PROPERTIES, "patternProperties")                                                       \
  X(PROPERTY_NAMES, "propertyNames")                                                               \
  X(MIN_PROPERTIES, "minProperties")                                                               \
  X(MAX_PROPERTIES, "maxProperties")                                                               \
  X(DEPENDENT_REQUIRED, "dependentRequired")                                                       \
  X(DEPENDENT_SCHEMAS, "dependentSchemas")                                                         \
  X(UNEVALUATED_PROPERTIES, "unevaluatedProperties")                                               \
  X(DEPENDENCIES, "dependencies")                                                                  \
  X(ITEMS, "items")                                                                                \
  X(PREFIX_ITEMS, "prefixItems")                                                                   \
  X(ADDITIONAL_ITEMS, "additionalItems")                                                           \
  X(CONTAINS, "contains")                                                                          \
  X(MIN_CONTAINS, "minContains")                                                                   \
  X(MAX_CONTAINS, "maxContains")                                                                   \
  X(UNEVALUATED_ITEMS, "unevaluatedItems")                                                         \
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

/* Assertions and applicators of any draft that are not built: refused by name, because a schema
 * without them would allow more. X(name) */
#define KEYWORDS_NOT_BUILT(X)                                                                      \
  X("$dynamicRef")                                                                                 \
  X("$recursiveRef")                                                                               \
  X("extends")                                                                                     \
  X("disallow")                                                                                    \
  X("divisibleBy")

/* Names that the drafts define and that restrict nothing. X(name) */
#define KEYWORDS_ANNOTATIONS(X)                                                                    \
  X("title")                                                                                       \
  X("description")                                                                                 \
  X("default")                                                                                     \
  X("examples")                                                                                    \
  X("example")                                                                                     \
  X("$comment")                                                                                    \
  X("deprecated")                                                                                  \
  X("readOnly")                                                                                    \
  X("writeOnly")                                                                                   \
  X("contentEncoding")                                                                             \
  X("contentMediaType")                                                                            \
  X("contentSchema")                                                                               \
  X("$id")                                                                                         \
  X("id")                                                                                          \
  X("$schema")                                                                                     \
  X("$anchor")                                                                                     \
  X("$dynamicAnchor")                                                                              \
  X("$recursiveAnchor")                                                                            \
  X("$vocabulary")                                                                                 \
  X("$defs")                                                                                       \
  X("definitions")

#endif
