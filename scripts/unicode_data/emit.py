"""How the tables of Unicode are printed as C."""

CODE_POINTS = [c for c in range(0x110000) if not 0xD800 <= c <= 0xDFFF]


def two_stage(table):
    """(index, blocks): blocks of 256 code points, each different one once."""
    blocks, index = {}, []
    for start in range(0, 0x110000, 256):
        index.append(blocks.setdefault(bytes(table[start : start + 256]), len(blocks)))
    assert len(blocks) <= 256
    return index, b"".join(blocks)


def print_bytes(declaration, values):
    print(f"const uint8_t {declaration} = {{")
    values = [str(v) for v in values]
    for i in range(0, len(values), 24):
        print("  " + ",".join(values[i : i + 24]) + ",")
    print("};")


def print_two_stage(prefix, table, before=""):
    index, blocks = two_stage(table)
    print(before, end="")
    print_bytes(f"{prefix}index[4352]", index)
    print(before, end="")
    print_bytes(f"{prefix}blocks[{len(blocks)}]", blocks)


def print_rows(rows, width):
    """Rows side by side, in lines of at most `width` columns."""
    line = " "
    for row in rows:
        if len(line) + len(row) + 1 > width:
            print(line)
            line = " "
        line += " " + row
    print(line)
