/* manual.c: prints the manual pages and the completions of shells from the tables that inferd is
 * built from.
 *
 * `manual inferd.8|inferd.conf.5|bash|zsh|fish VERSION` prints that file; the Makefile runs it for
 * `make install`. Links nothing but libc. A page is roff of man(7).
 */
#include "engine/defaults.h"
#include "scripts/options.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#define LENGTH(array) (sizeof(array) / sizeof(array)[0])

typedef struct command {
  const char *name, *arguments, *own, *help;
} command_t;

static const command_t commands[] = {
#define COMMAND(name, arguments, own, help) {#name, arguments, own, help},
#include "config/commands.def"
#undef COMMAND
};

/* The exit status of a process that an error ends. Errors of requests have EXIT_SOFTWARE, and end
 * none. */
static const struct status {
  const char *name, *help;
  int status;
} statuses[] = {
#define ERROR(name, number, http_status, type, code, exit_status, help) {#name, help, exit_status},
#include "engine/base/error.def"
#undef ERROR
};

enum { EXIT_SOFTWARE = 70 };

/* ---- roff ---- */

/* Text in roff: `code` is bold, a minus is no hyphen, and no line begins with a control character.
 */
static void print_roff(const char *text) {
  bool code = false;
  if (text[0] == '.' || text[0] == '\'') fputs("\\&", stdout);
  for (const char *at = text; *at != '\0'; at++) {
    switch (*at) {
    case '`':
      code = !code;
      fputs(code ? "\\fB" : "\\fR", stdout);
      break;
    case '\\': fputs("\\e", stdout); break;
    case '-': fputs("\\-", stdout); break;
    case '|': fputs("|\\:", stdout); break; /* a line may end behind it */
    default: putchar(*at);
    }
  }
  if (code) fputs("\\fR", stdout);
}

/* A name of the table as a flag: max_model_len -> max-model-len. */
static void print_name(const char *name, const char *minus) {
  for (const char *at = name; *at != '\0'; at++) {
    if (*at == '_') {
      fputs(minus, stdout);
    } else {
      putchar(*at);
    }
  }
}

/* Calls `print` for every option, those of a group together, each group under its name. */
static void print_groups(void (*print)(const option_t *option)) {
  for (size_t first = 0; first < LENGTH(options); first++) {
    const char *group = options[first].group;
    bool seen = false;
    for (size_t i = 0; i < first; i++) seen = seen || strcmp(options[i].group, group) == 0;
    if (seen) continue;
    printf(".SS %s\n", group);
    for (size_t i = first; i < LENGTH(options); i++) {
      if (strcmp(options[i].group, group) == 0) print(&options[i]);
    }
  }
}

static void print_flag_roff(const option_t *option, const char *name) {
  fputs("\\fB\\-\\-", stdout);
  if (option->kind == BOOL) fputs("\\fR[\\fBno\\-\\fR]\\fB", stdout);
  print_name(name, "\\-");
  fputs("\\fR", stdout);
  if (option->kind == BOOL) return;
  fputs(" \\fI", stdout);
  print_roff(option->metavar);
  fputs("\\fR", stdout);
}

static void print_help_roff(const option_t *option) {
  putchar('\n');
  print_roff(option->help);
  putchar('.');
  if (option->initial[0] != '\0') {
    fputs("\nDefault: ", stdout);
    print_roff(option->initial);
    putchar('.');
  }
  putchar('\n');
}

static void print_option_roff(const option_t *option) {
  puts(".TP");
  print_flag_roff(option, option->name);
  if (option->alias[0] != '\0') {
    fputs(", ", stdout);
    print_flag_roff(option, option->alias);
  }
  print_help_roff(option);
}

static void print_key_roff(const option_t *option) {
  printf(".TP\n\\fB%s\\fR = \\fI", option->name);
  print_roff(option->kind == BOOL ? "true|false" : option->metavar);
  fputs("\\fR", stdout);
  print_help_roff(option);
}

static void print_commands_roff(void) {
  for (size_t i = 0; i < LENGTH(commands); i++) {
    printf(".TP\n\\fBinferd %s\\fR ", commands[i].name);
    print_roff(commands[i].arguments);
    putchar('\n');
    print_roff(commands[i].help);
    puts(".");
  }
}

static void print_statuses_roff(void) {
  for (int status = 0; status < 128; status++) {
    bool first = true;
    for (size_t i = 0; i < LENGTH(statuses); i++) {
      bool ends = statuses[i].status != EXIT_SOFTWARE || strcmp(statuses[i].name, "INTERNAL") == 0;
      if (statuses[i].status != status || !ends) continue;
      if (first) {
        printf(".TP\n\\fB%d\\fR\n", status);
      } else {
        puts(".br");
      }
      print_roff(statuses[i].help);
      putchar('\n');
      first = false;
    }
  }
}

static void print_head(const char *name, const char *section, const char *version) {
  printf(".\\\" Made from the tables of inferd by scripts/manual.c.\n"
         ".TH %s %s \"\" \"inferd %s\" \"inferd\"\n.nh\n.ad l\n.SH NAME\n",
         name, section, version);
}

static void print_manual(const char *version) {
  print_head("INFERD", "8", version);
  fputs("inferd \\- serves large language models over the OpenAI HTTP API\n"
        ".SH SYNOPSIS\n"
        ".B inferd serve\n.I MODEL\n.RI [ flags ]\n.br\n"
        ".B inferd\n.I command\n.RI [ arguments ]\n"
        ".SH DESCRIPTION\n"
        "The daemon loads one model and answers requests of the OpenAI API at\n"
        "http://127.0.0.1:8000/v1 unless told otherwise. It runs on a CPU, or on an NVIDIA GPU\n"
        "where the driver is installed. Without a key it listens on loopback addresses alone.\n"
        ".PP\n"
        ".I MODEL\nis a directory of safetensors, a GGUF file, or\n.I ORG/NAME\n"
        "of a model in the Hugging Face cache.\n"
        ".SH COMMANDS\n",
        stdout);
  print_commands_roff();
  fputs(".SH OPTIONS\n"
        "Options of\n.B serve\nand\n.BR check .\nEach is also a line of the configuration file,\n"
        ".IR name \" = \" value ,\nand a variable of the environment,\n.BR INFERD_ \\fINAME\\fR.\n"
        "A flag is stronger than the environment, and the environment is stronger than the file.\n",
        stdout);
  print_groups(print_option_roff);
  fputs(".SH EXIT STATUS\n", stdout);
  print_statuses_roff();
  fputs(
      ".SH SIGNALS\n"
      ".TP\n.BR SIGTERM \", \" SIGINT\n"
      "Requests that run may finish within \\fB\\-\\-drain\\-timeout\\fR; no new ones are taken.\n"
      "The second signal ends them.\n"
      ".TP\n.B SIGHUP\nThe files of keys are read again.\n"
      ".TP\n.B SIGUSR1\nThe log file is opened again.\n"
      ".SH FILES\n"
      ".TP\n.I /etc/inferd/inferd.conf\nthe configuration that the systemd unit uses,\n"
      "see\n.BR inferd.conf (5)\n"
      ".TP\n.I ~/.cache/huggingface/hub\nmodels that \\fBinferd pull\\fR, hf and others "
      "downloaded\n"
      ".SH SEE ALSO\n.BR inferd.conf (5),\n.BR systemctl (1),\n.BR journalctl (1)\n",
      stdout);
}

static void print_file_manual(const char *version) {
  print_head("INFERD.CONF", "5", version);
  fputs("inferd.conf \\- configuration of inferd\n"
        ".SH SYNOPSIS\n.I /etc/inferd/inferd.conf\n"
        ".SH DESCRIPTION\n"
        "A line is\n.IR name \" = \" value .\nA line that begins with # is a comment. An unknown\n"
        "name or a bad value ends the start with a message that has the line. Check a change with\n"
        ".PP\n.B inferd config check /etc/inferd/inferd.conf\n"
        ".SH VALUES\n"
        ".TP\ntrue or false\ntrue false yes no on off 1 0\n"
        ".TP\nnumber\n12, 32k (times 1000), 32K (times 1024), also m M g G\n"
        ".TP\nbytes\n4096, 64K, 16MiB, 10GiB, 5GB\n"
        ".TP\ntime\n90, 90s, 250ms, 5m, 2h\n"
        ".TP\nfraction\n0.8 or 80%\n"
        ".TP\nlist\nseparated by commas\n"
        ".SH NAMES\n",
        stdout);
  print_groups(print_key_roff);
  fputs(".SH SEE ALSO\n.BR inferd (8)\n", stdout);
}

/* ---- shells ---- */

/* Every flag of `option`, each after `before` and before `after`. */
static void print_flags(const option_t *option, const char *before, const char *after) {
  const char *names[] = {option->name, option->alias};
  for (size_t i = 0; i < LENGTH(names); i++) {
    for (int no = 0; names[i][0] != '\0' && no <= (option->kind == BOOL); no++) {
      printf("%s--%s", before, no ? "no-" : "");
      print_name(names[i], "-");
      fputs(after, stdout);
    }
  }
}

static bool takes_file(const option_t *option) {
  return strstr(option->metavar, "FILE") != NULL || strstr(option->metavar, "DIR") != NULL ||
         strstr(option->metavar, "PATH") != NULL || strcmp(option->metavar, "MODEL") == 0;
}

static void print_bash(void) {
  fputs("# Completion of inferd for bash. Made from its tables by scripts/manual.c.\n"
        "_inferd() {\n"
        "  local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]}\n"
        "  local commands=\"",
        stdout);
  for (size_t i = 0; i < LENGTH(commands); i++) printf("%s ", commands[i].name);
  fputs("\"\n  local flags=\"--help --help=all ", stdout);
  for (size_t i = 0; i < LENGTH(options); i++) print_flags(&options[i], "", " ");
  fputs("\"\n  COMPREPLY=()\n"
        "  if [ \"$COMP_CWORD\" -eq 1 ]; then\n"
        "    mapfile -t COMPREPLY < <(compgen -W \"$commands\" -- \"$word\")\n"
        "    return\n  fi\n"
        "  case \"${COMP_WORDS[1]}\" in\n",
        stdout);
  for (size_t i = 0; i < LENGTH(commands); i++) {
    if (commands[i].own[0] != '\0') {
      printf("    %s) flags=\"%s $flags\" ;;\n", commands[i].name, commands[i].own);
    }
  }
  fputs("    config) [ \"$COMP_CWORD\" -eq 2 ] && flags=\"dump check\" ;;\n"
        "  esac\n"
        "  case \"$before\" in\n",
        stdout);
  for (size_t i = 0; i < LENGTH(options); i++) {
    const option_t *option = &options[i];
    if (option->kind == BOOL) continue;
    fputs("    --", stdout);
    print_name(option->name, "-");
    if (option->alias[0] != '\0') {
      fputs("|--", stdout);
      print_name(option->alias, "-");
    }
    if (option->kind == CHOICE) {
      fputs(") mapfile -t COMPREPLY < <(compgen -W \"", stdout);
      for (const char *at = option->metavar; *at != '\0'; at++) putchar(*at == '|' ? ' ' : *at);
      fputs("\" -- \"$word\"); return ;;\n", stdout);
    } else if (takes_file(option)) {
      fputs(") compopt -o default 2>/dev/null; return ;;\n", stdout);
    } else {
      fputs(") return ;;\n", stdout);
    }
  }
  fputs("  esac\n"
        "  case \"$word\" in\n"
        "    -*) mapfile -t COMPREPLY < <(compgen -W \"$flags\" -- \"$word\") ;;\n"
        "    *) [ \"${COMP_WORDS[1]} $COMP_CWORD\" = \"config 2\" ] &&\n"
        "         mapfile -t COMPREPLY < <(compgen -W \"$flags\" -- \"$word\")\n"
        "       [ ${#COMPREPLY[@]} -gt 0 ] || compopt -o default 2>/dev/null ;;\n"
        "  esac\n"
        "}\n"
        "complete -F _inferd inferd\n",
        stdout);
}

/* Text within single quotes of a shell and the brackets of zsh's _arguments. */
static void print_zsh(const char *text) {
  for (const char *at = text; *at != '\0'; at++) {
    if (*at == '\'') {
      fputs("'\\''", stdout);
    } else {
      if (strchr("[]:\\", *at) != NULL) putchar('\\');
      putchar(*at);
    }
  }
}

static void print_zsh_flag(const option_t *option, const char *name, bool no) {
  printf("    '%s--%s", option->kind == LIST ? "*" : "", no ? "no-" : "");
  print_name(name, "-");
  if (option->kind != BOOL) putchar('=');
  putchar('[');
  print_zsh(option->help);
  putchar(']');
  if (option->kind != BOOL) {
    putchar(':');
    print_zsh(option->kind == CHOICE ? option->name : option->metavar);
    putchar(':');
  }
  if (option->kind == CHOICE) {
    putchar('(');
    for (const char *at = option->metavar; *at != '\0'; at++) putchar(*at == '|' ? ' ' : *at);
    putchar(')');
  } else if (option->kind != BOOL && takes_file(option)) {
    fputs("_files", stdout);
  }
  fputs("'\n", stdout);
}

static void print_zsh_completion(void) {
  fputs("#compdef inferd\n"
        "# Completion of inferd for zsh. Made from its tables by scripts/manual.c.\n"
        "_inferd() {\n"
        "  local -a commands flags\n"
        "  commands=(\n",
        stdout);
  for (size_t i = 0; i < LENGTH(commands); i++) {
    printf("    '%s:", commands[i].name);
    print_zsh(commands[i].help);
    fputs("'\n", stdout);
  }
  fputs("  )\n  flags=(\n", stdout);
  for (size_t i = 0; i < LENGTH(options); i++) {
    for (int no = 0; no <= (options[i].kind == BOOL); no++) {
      print_zsh_flag(&options[i], options[i].name, no);
      if (options[i].alias[0] != '\0') print_zsh_flag(&options[i], options[i].alias, no);
    }
  }
  fputs("  )\n"
        "  if (( CURRENT == 2 )); then\n"
        "    _describe command commands\n"
        "    return\n"
        "  fi\n"
        "  case $words[2] in\n",
        stdout);
  for (size_t i = 0; i < LENGTH(commands); i++) {
    if (commands[i].own[0] != '\0') {
      printf("    %s) flags+=(%s) ;;\n", commands[i].name, commands[i].own);
    }
  }
  fputs("    config) if (( CURRENT == 3 )); then _values action dump check; return; fi ;;\n"
        "  esac\n"
        "  shift words\n"
        "  (( CURRENT-- ))\n"
        "  _arguments -s $flags '*:model:_files'\n"
        "}\n"
        "_inferd \"$@\"\n",
        stdout);
}

/* Text within single quotes of fish. */
static void print_fish(const char *text) {
  putchar('\'');
  for (const char *at = text; *at != '\0'; at++) {
    if (*at == '\'' || *at == '\\') putchar('\\');
    putchar(*at);
  }
  putchar('\'');
}

static void print_fish_flag(const option_t *option, const char *name, bool no) {
  printf("complete -c inferd -n 'not __fish_use_subcommand' -l %s", no ? "no-" : "");
  print_name(name, "-");
  if (option->kind == CHOICE) {
    fputs(" -x -a '", stdout);
    for (const char *at = option->metavar; *at != '\0'; at++) putchar(*at == '|' ? ' ' : *at);
    putchar('\'');
  } else if (option->kind != BOOL) {
    fputs(takes_file(option) ? " -r" : " -x", stdout);
  }
  fputs(" -d ", stdout);
  print_fish(option->help);
  putchar('\n');
}

static void print_fish_completion(void) {
  puts("# Completion of inferd for fish. Made from its tables by scripts/manual.c.");
  for (size_t i = 0; i < LENGTH(commands); i++) {
    printf("complete -c inferd -n __fish_use_subcommand -x -a %s -d ", commands[i].name);
    print_fish(commands[i].help);
    putchar('\n');
    for (const char *own = commands[i].own; (own = strstr(own, "--")) != NULL; own += 2) {
      printf("complete -c inferd -n '__fish_seen_subcommand_from %s' -l %.*s\n", commands[i].name,
             (int)strcspn(own + 2, " "), own + 2);
    }
  }
  puts("complete -c inferd -n '__fish_seen_subcommand_from config' -x -a 'dump check'");
  for (size_t i = 0; i < LENGTH(options); i++) {
    for (int no = 0; no <= (options[i].kind == BOOL); no++) {
      print_fish_flag(&options[i], options[i].name, no);
      if (options[i].alias[0] != '\0') print_fish_flag(&options[i], options[i].alias, no);
    }
  }
}

int main(int argc, char **argv) {
  const char *page = argc == 3 ? argv[1] : "";
  if (strcmp(page, "inferd.8") == 0) {
    print_manual(argv[2]);
  } else if (strcmp(page, "inferd.conf.5") == 0) {
    print_file_manual(argv[2]);
  } else if (strcmp(page, "bash") == 0) {
    print_bash();
  } else if (strcmp(page, "zsh") == 0) {
    print_zsh_completion();
  } else if (strcmp(page, "fish") == 0) {
    print_fish_completion();
  } else {
    fputs("usage: manual inferd.8|inferd.conf.5|bash|zsh|fish VERSION\n", stderr);
    return 1;
  }
  return 0;
}
