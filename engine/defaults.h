/* defaults.h: the defaults of engine options that are not 0, once: engine_options_default takes
 * them from here, and config/options.def, which shows them to users.
 */
#ifndef INFERD_ENGINE_DEFAULTS_H
#define INFERD_ENGINE_DEFAULTS_H

#define DEFAULT_DEVICE "auto"
#define DEFAULT_ISA "auto"
#define DEFAULT_DTYPE "auto"
#define DEFAULT_CHUNKED_PREFILL 1
#define DEFAULT_PREFIX_CACHING 1
#define DEFAULT_SHORT_PROMPTS_PASS 1
#define DEFAULT_FAIR_SHARE 1 /* requests of one tenant keep the order of arrival */
#define DEFAULT_MATCH_MIN 2  /* tokens, of prompt lookup */
#define DEFAULT_MATCH_MAX 4
#define DEFAULT_MAX_SKIPS 4
#define DEFAULT_MAX_PREEMPTIONS 3
#define DEFAULT_MAX_QUEUE_REQUESTS 1024
#define DEFAULT_MAX_QUEUE_TIME_S 30
#define DEFAULT_QUEUE_TIME_TOKENS 8192
#define DEFAULT_IMAGE_MAX_TOKENS 4096
#define DEFAULT_LIMIT_IMAGES 16

/* A number, or a bool, as the text that an option has. */
#define DEFAULT_TEXT(number) DEFAULT_QUOTE(number)
#define DEFAULT_QUOTE(text) #text
#define DEFAULT_BOOL(value) ((value) ? "true" : "false")

#endif
