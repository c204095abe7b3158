/* options.h: the table of options, for the programs that print documentation. */
#ifndef INFERD_SCRIPTS_OPTIONS_H
#define INFERD_SCRIPTS_OPTIONS_H

typedef enum option_kind {
  BOOL,
  INT,
  SIZE,
  GIB,
  DURATION,
  FRACTION,
  STRING,
  CHOICE,
  LIST
} option_kind_t;

typedef struct option {
  option_kind_t kind;
  const char *name, *initial;
  double min, max;
  const char *group, *alias, *metavar, *help;
} option_t;

static const option_t options[] = {
#define OPTION(kind, field, initial, min, max, group, shown, alias, metavar, help)                 \
  {kind, #field, initial, min, max, group, alias, metavar, help},
#include "config/options.def"
#undef OPTION
};

#endif
