/* test_served_names.c: aliases, --any-model, and the names of awkward model directories. */
#include "tests/expect.h"
#include "tests/server/api/fake.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

TestSuite(names, .timeout = 60);

static void with_names(const char *directory, const char *names, const char *first, int count) {
  config_t settings;
  completions_t live = {0};
  inferd_error_t error = {0};
  char *arguments[] = {strdup(directory), strdup("--served-model-name"), strdup(names)};
  int code = config_load(&settings, names[0] != '\0' ? 3 : 1, arguments, &error);
  ASSERT_EQ_FOR(code, 0, "%s", error.message);
  ASSERT_EQ(model_names_set(&live, &settings.served_model_name, settings.model), 0);
  ASSERT_STR_EQ(model_name(&live), first);
  ASSERT_EQ(model_names(&live)->count, count);
  cr_assert(model_name_known(&live, first, strlen(first)));
  cr_assert(!model_name_known(&live, first, strlen(first) - 1));
  model_names_free(&live);
  for (int i = 0; i < 3; i++) free(arguments[i]);
  config_free(&settings);
}

Test(names, from_directories_and_flags) {
  ASSERT_EQ(chdir("/usr/lib"), 0); /* is there everywhere, and no link */
  with_names(".", "", "lib", 1);
  with_names("./", "", "lib", 1);
  with_names("..", "", "usr", 1);
  with_names("../..", "", "model", 1);
  with_names("/models/tiny", "", "tiny", 1);
  with_names("/models/tiny///", "", "tiny", 1);
  with_names("tiny", "", "tiny", 1);
  with_names("/", "", "model", 1);
  with_names("/models/tiny", "a/b,c", "a/b", 2);
}

Test(names, any_model) {
  fake_start();
  fake_option("any_model", "true");
  fake_exchange_t *exchange = fake_call(api_completions, "{\"prompt\":[1],\"model\":\"gpt-4\"}");
  ASSERT_EQ(fake_engine.num_requests, 1);
  fake_done(fake_engine.requests[0], FINISH_LENGTH, "");
  fake_deliver();
  cr_assert(strstr(exchange->body, "\"model\":\"tiny\"") != NULL);
  fake_exchange_free(exchange);
  fake_stop();
}
