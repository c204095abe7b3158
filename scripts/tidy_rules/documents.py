"""What documents and comments point at must be there."""

import json
import re
from pathlib import PurePosixPath

from .names import PRODUCT, blank_comments

# Written C++, CUDA and Python of other projects, which comments may name.
FOREIGN = re.compile(r"(modeling|configuration|tokenization|convert|image_processing|processing)"
                     r"_\w+\.py|ggml[\w-]*\.\w+|"
                     r"(cuda|cublas|nccl|uv|sys|linux|std|pcre2|criterion|microhttpd|curl|cJSON)"
                     r"[\w/]*\.h|(errno|limits|math|signal|stdint|stdio|stdlib|string|unistd)\.h")
NAME = re.compile(r"(?<![\w./<*%{}-])((?:[A-Za-z_][\w-]*/|\.\./)*[A-Za-z_][\w-]+"
                  r"\.(?:c|h|cc|cu|cuh|inc|def|py))\b(?![\w(>])")
# A function, field or option, as comments write it; parts of one letter are those of formulas.
WORD = re.compile(r"(?<![\w./-])[a-z][a-z0-9]+(?:_[a-z0-9]{2,})+(?![\w.]*\*|\w)")
# Names of other projects and of the system that comments use.
FOREIGN_WORDS = {
    "dequantize_blocks": "gguf", "dynamic_complete": "Lark", "float_divmod": "CPython",
    "make_attrgetter": "Jinja", "soft_str": "markupsafe", "sentencepiece_model": "sentencepiece",
    "modeling_lfm2_moe": "transformers", "modeling_rope_utils": "transformers",
    "serde_json": "Rust", "sd_listen_fds": "systemd", "sd_notify": "systemd",
    "pidfd_open": "Linux", "uv_cancel": "libuv",
    "compute_index_ranges_int16_weights": "PyTorch",
    **dict.fromkeys(["smart_resize", "get_aspect_ratio_preserving_size", "pan_and_scan_batched",
                     "get_resize_output_image_size", "resize_for_vision_encoder", "unpad_image",
                     "get_optimal_tiled_canvas", "select_best_resolution", "pack_image_features",
                     "get_patch_output_size", "rescale_and_normalize", "replace_image_token"],
                    "transformers"),
}
COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.DOTALL)
LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)\s]*)?\)")


def normal(path):
    """`a/../b` is `b`; None above the root."""
    parts = []
    for part in PurePosixPath(path).parts:
        if part == "..":
            if not parts:
                return None
            parts.pop()
        else:
            parts.append(part)
    return "/".join(parts)


def check_links(tree):
    """What a tracked document links to exists, seen from the document's folder."""
    for name in tree.names:
        if not name.endswith(".md"):
            continue
        text = (tree.root / name).read_text("utf-8")
        text = re.sub(r"^```.*?^```", lambda code: re.sub(r"[^\n]", "", code[0]), text,
                      flags=re.DOTALL | re.MULTILINE)
        for link in LINK.finditer(text):
            if re.match(r"\w+:", link[1]):
                continue
            target = normal(PurePosixPath(name).parent / link[1])
            if target is None or not (tree.root / target).exists():
                number = text.count("\n", 0, link.start()) + 1
                yield f"{name}:{number}: links to {link[1]}, which is not there"


def check_comment_files(tree):
    """A file that a comment names exists: as a path, the end of one, or a name in any folder."""
    ends = {"/".join(PurePosixPath(name).parts[at:]) for name in tree.names
            for at in range(len(PurePosixPath(name).parts))}
    for f in tree:
        if not f.is_c:
            continue
        for comment in COMMENT.finditer(f.text):
            for match in NAME.finditer(comment[0]):
                named = match[1]
                beside = normal(PurePosixPath(f.name).parent / named)
                if named in ends or beside in ends or FOREIGN.fullmatch(named):
                    continue
                number = f.text.count("\n", 0, comment.start() + match.start()) + 1
                yield f"{f.name}:{number}: the comment names {named}, which is not there"


def check_comment_words(tree):
    """A name that a comment of the product uses is one in the code, of a file, or FOREIGN_WORDS."""
    known = set(FOREIGN_WORDS) | set(re.findall(r"\w+", "\n".join(tree.names)))
    for f in tree:
        known.update(re.findall(r"\w+", blank_comments(f.text) if f.is_c else f.text))
    for name in tree.names:
        if name.endswith((".def", ".mk", "Makefile")):
            known.update(re.findall(r"\w+", (tree.root / name).read_text("utf-8")))
    for f in tree:
        if not f.is_c or not f.name.startswith(PRODUCT):
            continue
        for comment in COMMENT.finditer(f.text):
            for match in WORD.finditer(comment[0]):
                if match[0] not in known:
                    number = f.text.count("\n", 0, comment.start() + match.start()) + 1
                    yield f"{f.name}:{number}: the comment names {match[0]}, which is not there"


def check_messages(tree):
    """A message in the first column of docs/troubleshooting.md is a part of one in the product."""
    name = "docs/troubleshooting.md"
    if name not in tree.names:
        return
    literals = []
    for f in tree:
        if f.is_c and not f.name.startswith(("tests/", "scripts/")):
            joined = re.sub(r'"\s*"', "", COMMENT.sub("", f.text))
            literals += re.findall(r'"(?:[^"\\\n]|\\.)*"', joined)
    text = "\n".join(literals).replace('\\"', '"')
    for number, line in enumerate((tree.root / name).read_text("utf-8").splitlines(), 1):
        quoted = re.match(r"\| `([^`]+)` \|", line)
        if quoted and quoted[1] not in text:
            yield f"{name}:{number}: no message says '{quoted[1]}'"


FAMILY = re.compile(r'\{(?:(\w+), )?NAMES\(\s*"[^"]+",\s*"(\w+)"\)((?:,\s*TEXT_OF\("\w+"\))?\})?'
                    r'|(?:\.architecture = |(?:WRAPPER|CHAT)\()"(\w+)"')


def check_families(tree):
    """Every architecture that is served stands in the page of models and in a line of parity, and
    has a vector, unless its row is that of another under other names."""
    pages = [name for name in ("docs/models.md", "tests/PARITY.md") if name in tree.names]
    named = {page: set(re.findall(r"`(\w+)`", (tree.root / page).read_text("utf-8")))
             for page in pages}
    shown = set()
    for path in tree.root.glob("tests/vectors/*/*/config.json"):
        shown.update(json.loads(path.read_text("utf-8")).get("architectures") or [])
    for f in tree:
        if not f.name.startswith(("engine/model/config/", "engine/model/families/")):
            continue
        rows = [(f.text.count("\n", 0, row.start()) + 1, *row.groups())
                for row in FAMILY.finditer(f.text)]
        like = {macro for _, macro, name, _, _ in rows if name in shown}
        for number, macro, name, bare, wrapper in rows:
            for page in pages:
                if (name or wrapper) not in named[page]:
                    yield f"{f.name}:{number}: {name or wrapper} is not in {page}"
            if name is not None and name not in shown and not (bare and macro in like):
                yield f"{f.name}:{number}: {name} has no vector in tests/vectors"
