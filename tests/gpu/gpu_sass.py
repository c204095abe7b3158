"""gpu_sass: what stands in the machine code of the kernels, for tests/gpu/gpu_report.

Reads cubins: registers and threads from the ELF, instructions from nvdisasm. Of each kernel it
finds the hot loop, the smallest backward branch round most of its products (HGMMA, HMMA) or, where
it has none, of its widest loads, and counts one trip of it along the shortest way that passes all
products and loads: blocks that a trip may skip (a rescaling, or a fold, which writes to device
memory) are not counted.
"""

import re
import struct
import subprocess
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

INSTRUCTION = re.compile(r"^\s+/\*([0-9a-f]{4,})\*/\s+(@!?U?P\w+ )?([A-Z][\w.]*)(.*?);\s*$")
LABEL = re.compile(r"^(\.L_x?_?\w+):")
TARGET = re.compile(r"`\((\.L_x?_?\w+)\)")
WIDTH = re.compile(r"\.(8|16|U8|S8|U16|S16|64|128)\b")
MAX_THREADS, REGISTERS = 0x05, 0x2f  # attributes of .nv.info
EARLY = re.compile(r"(LD|LDG|LDGSTS|UBLKCP|ST|STG|ATOM|ATOMG|RED|REDG|EXIT|PREEXIT)(\.|$)")
# What runs on narrow pipes: special functions, doubles, conversions from and to 64 bits, others.
PIPES = {"special": re.compile(r"MUFU"), "double": re.compile(r"D(ADD|MUL|FMA|SETP|MNMX)\b"),
         "wide": re.compile(r"(F2F|F2I|I2F|FRND)\.(\w+\.)*([FUS]64)\b"),
         "converts": re.compile(r"F2F\b|F2I\b|I2F\b|FRND\b|F2FP\b")}
ENDS = ("BRA", "EXIT", "RET", "BRX", "JMP")


# ---- the file ----

def sections(data):
    """[(name, bytes, size)] of an ELF64 file; the bytes of NOBITS are empty."""
    offset, = struct.unpack_from("<Q", data, 40)
    count, names = struct.unpack_from("<HH", data, 60)
    rows = [struct.unpack_from("<IIQQQQIIQQ", data, offset + 64 * i) for i in range(count)]
    strings = data[rows[names][4]:rows[names][4] + rows[names][5]]
    for row in rows:
        name = strings[row[0]:strings.index(b"\0", row[0])].decode()
        body = b"" if row[1] == 8 else data[row[4]:row[4] + row[5]]
        yield name, body, row[5]


def attributes(body):
    """[(attribute, its words)] of a section .nv.info or .nv.info.KERNEL."""
    at = 0
    while at + 4 <= len(body):
        form, kind, size = struct.unpack_from("<BBH", body, at)
        at += 4
        if form == 4:
            yield kind, struct.unpack_from(f"<{size // 4}I", body, at)
            at += size


def symbols(found):
    """Names of all symbols, by their numbers."""
    table, strings = found[".symtab"][0], found[".strtab"][0]
    starts = [struct.unpack_from("<I", table, at)[0] for at in range(0, len(table), 24)]
    return [strings[start:strings.index(b"\0", start)].decode() for start in starts]


def facts_of(data):
    """Kernel -> registers, threads at most, static shared bytes, from the ELF of a cubin."""
    found = {name: (body, size) for name, body, size in sections(data)}
    names, facts = symbols(found), {}
    for kind, words in attributes(found[".nv.info"][0]):
        if kind == REGISTERS and ".text." + names[words[0]] in found:
            facts[names[words[0]]] = {"registers": words[1]}
    for name, fact in facts.items():
        own = dict(attributes(found[".nv.info." + name][0]))
        x, y, z = own.get(MAX_THREADS, (0, 0, 0))
        fact["threads"] = x * y * z
        fact["static"] = found.get(".nv.shared." + name, (b"", 0))[1]
    return facts


# ---- instructions ----

def read_code(text):
    """Kernel -> ([(predicate, opcode, operands)], label -> index)."""
    kernels, code, labels = {}, [], {}
    for line in text.splitlines():
        if line.startswith(".text."):
            code, labels = [], {}
            kernels[line[len(".text."):].rstrip(":")] = (code, labels)
            continue
        label = LABEL.match(line)
        if label:
            labels[label[1]] = len(code)
            continue
        found = INSTRUCTION.match(line)
        if found:
            code.append(((found[2] or "").strip(), found[3], found[4]))
    return kernels


def width(opcode):
    """Bytes that a lane moves."""
    found = WIDTH.search(opcode.replace("U16x2", ""))
    if not found:
        return 4
    return {"8": 1, "U8": 1, "S8": 1, "16": 2, "U16": 2, "S16": 2, "64": 8, "128": 16}[found[1]]


def is_product(opcode):
    return opcode.startswith(("HMMA", "HGMMA"))


def is_stream(opcode):
    """A load of weights or keys: 16 bytes a lane that skip L1, or a copy to shared memory."""
    if opcode.startswith(("LDGSTS", "UBLKCP")):
        return True
    return opcode.startswith("LDG") and width(opcode) == 16 and ".NA" in opcode


def is_load(opcode):
    return opcode.startswith("LDG") and not opcode.startswith("LDGDEPBAR")


def jump_of(instruction, labels):
    """Index that a branch goes to, or None."""
    if not instruction[1].startswith("BRA") or ".DIV" in instruction[1]:
        return None
    found = TARGET.search(instruction[2])
    return labels.get(found[1]) if found else None


def falls_through(instruction):
    """Whether the next instruction may follow this one."""
    predicate, opcode, _ = instruction
    return bool(predicate) or opcode.split(".")[0] not in ENDS or ".DIV" in opcode


def comes_back(code, labels, first, last):
    """Whether a way between these two leads from the first to the last. None leads to a wait for an
    mbarrier that goes on behind the kernel's end, and comes back to where it was left."""
    seen, left = {first}, [first]
    while left:
        i = left.pop()
        for way in (i + 1 if falls_through(code[i]) else None, jump_of(code[i], labels)):
            if way is not None and first <= way <= last and way not in seen:
                seen.add(way)
                left.append(way)
    return last in seen


def loops(code, labels):
    """[(first, last)] of all backward branches. Behind the kernel's end lies what divergent lanes
    take (BRA.DIV) and come back from; that is no loop."""
    found = []
    rare = [labels[TARGET.search(operands)[1]] for _, opcode, operands in code
            if opcode.startswith("BRA.DIV")]
    for i, instruction in enumerate(code[:min(rare, default=len(code))]):
        target = jump_of(instruction, labels)
        if target is not None and target < i and comes_back(code, labels, target, i):
            found.append((target, i))
    return found


def hot_loop(code, labels):
    """(first, last) and what was looked for; None when the kernel has no such loop."""
    for wanted in (is_product, is_stream, is_load):
        places = [i for i, (_, opcode, _) in enumerate(code) if wanted(opcode)]
        if not places:
            continue
        counted = [(sum(first <= p <= last for p in places), first, last)
                   for first, last in loops(code, labels)]
        most = max((c[0] for c in counted), default=0)
        if most == 0:
            continue
        held = [c for c in counted if c[0] >= 0.6 * most]
        _, first, last = min(held, key=lambda c: c[2] - c[1])
        return first, last, wanted
    return None


def may_skip(code, first, last):
    """Whether the shortest way may leave out these instructions: they are no part of every trip."""
    ops = [opcode for _, opcode, _ in code[first:last]]
    if any(is_product(op) or is_stream(op) for op in ops):
        return False
    return not any(map(is_load, ops)) or any(op.startswith("STG") for op in ops)


def one_trip(code, labels, first, last, wanted):
    """Indices of the shortest way from `first` back to it, past all wanted instructions."""
    must = [i for i in range(first, last + 1) if wanted(code[i][1]) or is_stream(code[i][1])]
    best, came = {first: 0}, {}
    for i in range(first, last + 1):
        if i not in best:
            continue
        jump = jump_of(code[i], labels)
        ways = [i + 1] if falls_through(code[i]) else []
        if jump is not None and i < jump <= last and may_skip(code, i + 1, jump):
            ways.append(jump)
        for way in ways:
            if way > last:
                continue
            if way not in best or best[i] + 1 < best[way]:
                best[way], came[way] = best[i] + 1, i
    ends = [i for i in best if i >= must[-1] and jump_of(code[i], labels) == first]
    if not ends:
        return list(range(first, last + 1))
    path = [min(ends, key=best.get)]
    while path[-1] != first:
        path.append(came[path[-1]])
    return path[::-1]


def one_pass(code, labels):
    """Instructions of the shortest way to the end of a kernel without a loop that stores 16 bytes
    four times, as a warp does that unpacks a unit; None without one."""
    seen, left = {(0, 0)}, [(0, 0)]
    for steps in range(1, len(code)):
        ahead = []
        for at, stores in left:
            predicate, opcode, _ = code[at]
            stores += opcode.startswith("STG") and width(opcode) == 16
            if opcode.startswith("EXIT") and not predicate and stores == 4:
                return steps
            jump = jump_of(code[at], labels)
            for way in (at + 1 if falls_through(code[at]) else None, jump):
                if way is not None and way < len(code) and (way, stores) not in seen:
                    seen.add((way, stores))
                    ahead.append((way, stores))
        left = ahead
    return None


def hgmma_flop(opcode):
    """Flop of one HGMMA of a warpgroup, a fourth for each of its warps."""
    m, n, k = map(int, re.search(r"\.(\d+)x(\d+)x(\d+)", opcode).groups())
    return 2 * m * n * k // 4


def count_trip(code, path):
    """What a warp does in one trip of its hot loop."""
    ops = [code[i][1] for i in path]
    kinds = Counter(op.split(".")[0] for op in ops)
    streamed = sum(width(op) * 32 for op in ops if is_stream(op) and not op.startswith("UBLKCP"))
    flop = sum(4096 if op.startswith("HMMA.16816") else 2048 for op in ops
               if op.startswith("HMMA"))
    flop += sum(hgmma_flop(op) for op in ops if op.startswith("HGMMA"))
    shared = sum({"4": 512, "2": 256}.get(op[-1], 128) for op in ops if op.startswith("LDSM"))
    shared += sum(width(op) * 32 for op in ops if re.match(r"(LDS|STS)(\.|$)", op))
    return {
        "instructions": len(ops),
        "streamed": streamed,
        "loads": sum(is_load(op) and not is_stream(op) for op in ops),
        "narrow": sum(is_load(op) and width(op) <= 4 for op in ops),
        "flop": flop,
        "products": kinds["HMMA"] + kinds["HGMMA"],
        "shared": shared,
        "barriers": kinds["BAR"],
        "local": kinds["LDL"] + kinds["STL"],
        **{pipe: sum(bool(form.match(op)) for op in ops) for pipe, form in PIPES.items()},
        "atomics": kinds["ATOMS"] + kinds["ATOMG"] + kinds["RED"],
    }


def beside_products(code, path):
    """Exponentials of one trip of a softmax, and how many of them stand behind the trip's last
    wgmma and before the wait for it: the tensor cores work meanwhile."""
    ops = [code[i] for i in path]
    last = max(i for i, op in enumerate(ops) if op[1].startswith("HGMMA"))
    wait = next((i for i in range(last, len(ops)) if ops[i][1].startswith("WARPGROUP.DEPBAR")
                 and ops[i][2].rstrip().endswith("0x0")), last)
    places = [i for i, op in enumerate(ops) if op[1].startswith("MUFU.EX2")]
    return [sum(last < i < wait for i in places), len(places)]


def early(code):
    """What stands before the wait for the launch before (ACQBULK) and should not: accesses to
    memory that is not shared, an end, leave for the next launch (PREEXIT). Prefetches may."""
    ops = [opcode for _, opcode, _ in code]
    wait = next((i for i, op in enumerate(ops) if op.startswith("ACQBULK")), 0)
    return sorted({op.split(".")[0] for op in ops[:wait] if EARLY.match(op)})


def describe(code, labels):
    """What the report says of one kernel's instructions."""
    ops = [opcode for _, opcode, _ in code]
    described = {
        "size": len(ops),
        "spilled": sum(width(op) for op in ops if op.startswith(("LDL", "STL"))),
        "spins": sum(op.startswith("ATOMS.CAST.SPIN") for op in ops),
        "arrives": sum(op.startswith("WARPGROUP.ARRIVE") for op in ops),
        "hgmma": sum(op.startswith("HGMMA") for op in ops),
        "dependent": any(op.startswith("ACQBULK") for op in ops),
        "early": early(code),
        "read_only": sum(is_load(op) and ".CONSTANT" in op and ".NA" not in op for op in ops),
        "hot": None,
    }
    found = hot_loop(code, labels)
    if found:
        first, last, wanted = found
        path = one_trip(code, labels, first, last, wanted)
        described["hot"] = count_trip(code, path)
        if any(code[i][1].startswith("HGMMA") for i in path):
            described["hot"]["beside"] = beside_products(code, path)
    elif any(map(is_stream, ops)):
        described["pass"] = one_pass(code, labels)
    return described


# ---- all files ----

def demangled(names):
    done = subprocess.run(["c++filt"], input="\n".join(names), stdout=subprocess.PIPE, text=True,
                          check=True)
    short = [re.sub(r"^void ", "", line) for line in done.stdout.splitlines()]
    return [re.sub(r"\(\w+\)(?=[\d-])", "", re.sub(r"(?<=>)\(.*$|^(\w+)\(.*$", r"\1", name))
            for name in short]


def read_cubin(path, nvdisasm):
    """Name of a kernel -> what the report knows of it."""
    text = subprocess.run([nvdisasm, "-c", path], stdout=subprocess.PIPE, text=True,
                          check=True).stdout
    facts, code = facts_of(path.read_bytes()), read_code(text)
    names = [name for name in sorted(facts) if name in code]
    return {short: {**facts[name], **describe(*code[name])}
            for short, name in zip(demangled(names), names)}


def read_folder(folder, nvdisasm, jobs):
    """Target -> kernel -> facts, of all FILE.TARGET.cubin of a folder."""
    paths = sorted(folder.glob("*.cubin"))
    with ThreadPoolExecutor(jobs) as pool:
        read = list(pool.map(lambda path: read_cubin(path, nvdisasm), paths))
    found = {}
    for path, kernels in zip(paths, read):
        found.setdefault(path.name.split(".")[-2], {}).update(kernels)
    return found
