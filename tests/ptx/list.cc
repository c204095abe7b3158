/* list.cc: what the entries of a folder of modules are made of, for tests/ptx/ptx_report.
 *
 *   ptx_list FILE.ptx...
 *
 * A line for each entry: "entry", file, name; then one for each opcode in it: "opcode", opcode,
 * count; and where the interpreter refuses it, "refused" and why.
 */
#include "ptx_program.h"
#include <stdio.h>

static void list_entry(const ptx::Module &module, size_t number) {
  printf("entry\t%s\t%s\n", module.file.c_str(), module.names[number].c_str());
  const ptx::Entry entry = ptx::read_entry(module, number);
  std::map<std::string, int> counts;
  for (const ptx::Statement &s : entry.statements) counts[s.opcode]++;
  for (const auto &c : counts) printf("opcode\t%s\t%d\n", c.first.c_str(), c.second);
  try {
    delete ptx::make_program(module, entry);
  } catch (const ptx::Error &e) {
    printf("refused\t%s\n", e.what());
  }
}

int main(int argc, char **argv) {
  try {
    for (int i = 1; i < argc; i++) {
      const ptx::Module m = ptx::read_module_file(argv[i]);
      for (size_t n = 0; n < m.names.size(); n++) list_entry(m, n);
    }
  } catch (const ptx::Error &e) {
    fprintf(stderr, "ptx_list: %s\n", e.what());
    return 1;
  }
  return 0;
}
