"""A function that a header declares is there for another file of the product."""

import re

from .names import HEAD, PRODUCT, blank_comments

PICTURES = "parts of the reading of pictures that tests look at alone"
TOWERS = "no request has an image yet; tests run towers beside the reference"
# Declared for a reader outside the product. A name goes away with its reason: one that the product
# uses is a complaint too.
FOR_OTHERS = {
    "journal_parse": "the fuzzer reads journals that are no files",
    "grammar_matcher_accept": "tests and benchmarks take a token in one piece",
    "grammar_matcher_fill": "tests and benchmarks make a mask without the cache of masks",
    "grammar_masks_fill": "tests and benchmarks make a kept mask in one piece",
    "prefix_keys": "tests and benchmarks hash a prompt that is of no request",
    "matcher_walk": "tests make a mask without ready rows, in one piece",
    "sampler_row_on": "tests compare the instruction-set tiers row by row",
    "sequence_transition_allowed": "a test compares the table of states with the documented one",
    "topology_cgroup_cpus": "a test passes the root of a made-up /sys",
    "token_quote": "a test of how the strings of tokens are written",
    "log_access_format": "a test reads the line that the access log would have",
    "gguf_has_quant": "a test of which names mean which quantisation",
    "bench_percentile": "a test of inferd-bench's figures",
    "auth_comparisons": "a test counts the digests that a check of a key compares",
    "life_looks": "a test counts the models that an event looks at",
    "engine_make_replicas": "tests make replicas without their threads",
    "comm_barrier": "tests of ranks that stay away or fail",
    "inferd_mpi_open": "the daemon looks it up in inferd-mpi.so by its name",
    "address_split": "a test of inferd-bench's addresses",
    "vision_processor_default": PICTURES,
    "vision_processor_check": PICTURES,
    "tower_num_rows": TOWERS,
    "picture_work": PICTURES,
    "audio_samples": "tests and the fuzzer count what a resampler makes",
    "encode_read": "tests compare the rows of encoders with the reference",
    "cross_blocks_num_entries": "tests count what is kept",
    "cross_blocks_num_free": "tests count what is kept",
}
STRING = re.compile(r'"(?:\\.|[^"\\\n])*"')


def declared(headers):
    """{function: headers that declare it}, without those that a header defines."""
    where = {}
    for name, text in headers.items():
        for head in HEAD.finditer(text):
            if not head[0].startswith("static") and head[0].endswith((";", "__attribute__")):
                where.setdefault(head[1], []).append(name)
    return where


def check_unused(tree):
    """A function in a header is used by a file of the product that does not define it."""
    texts = {f.name: STRING.sub('""', blank_comments(f.text)) for f in tree
             if f.is_c and f.name.startswith(PRODUCT)}
    tables = [name for name in tree.names if name.startswith(PRODUCT) and name.endswith(".def")]
    texts.update({name: (tree.root / name).read_text("utf-8") for name in tables})
    words = {name: set(re.findall(r"\w+", text)) for name, text in texts.items()}
    headers = {f.name: texts[f.name] for f in tree if f.is_header and f.name in texts}
    for function, homes in sorted(declared(headers).items()):
        defines = re.compile(rf"^[A-Za-z_][^\n;={{}}]*\b{function}\([^;{{]*\{{", re.MULTILINE)
        used = any(len(re.findall(rf"\b{function}\b", texts[home])) > 1 for home in homes)
        used = used or any(function in found and name not in homes
                           and not defines.search(texts[name]) for name, found in words.items())
        if used and function in FOR_OTHERS:
            yield f"scripts/tidy_rules/functions.py: the product uses {function}: not FOR_OTHERS"
        elif not used and function not in FOR_OTHERS:
            yield f"{homes[0]}: no other file of the product uses {function}"
